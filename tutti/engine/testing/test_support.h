// Helpers of the engine's tests: matrices that own their memory, are filled reproducibly, and
// detect writes outside their shape; comparison with f64 references; loops over element types and
// instruction sets; the device that the tests run on.
//
// The environment variable TUTTI_TEST_DEVICE selects a backend (engine/backend.h), "cpu" by
// default: test_stream() is a stream of it, and all operands are in memory that both that device
// and the host can access. On a GPU that is managed memory, which is on the device while kernels
// run (device_memory.h), on the host stand-in pinned memory. If the machine has no such device,
// every test is skipped (test_main.cpp).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/engine/backend.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/stream.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine::testing {

// The backend that the tests run on.
const Backend& test_backend();
// For checks that only apply to the CPU: equal bits, its instruction sets, its threads.
bool on_cpu();
// The memory of test operands.
std::pmr::memory_resource* test_memory();

// Whether rows of new matrices with gaps begin at multiples of kAlignedElements, by longer gaps, as
// kernels with vector loads need. Otherwise they have the requested gaps, which are odd.
inline constexpr int64_t kAlignedElements = 16;
void align_rows(bool aligned);
int64_t row_stride(int64_t cols, int64_t gap);

// One value that operations read or write through a pointer.
template <typename T>
class TestValue {
 public:
  explicit TestValue(const T& value = {}) : value_(1, value, test_memory()) {}
  T* data() { return value_.data(); }
  const T& value() const { return value_.front(); }

 private:
  std::pmr::vector<T> value_;
};

// Row-major [rows, cols] with `gap` extra elements after each row and 64 canary bytes after the
// last. A vector is a matrix of one row. New memory is poisoned: every element is NaN (or an
// invalid integer), which exposes outputs that are not written and inputs that are read out of
// bounds.
class TestMatrix {
 public:
  TestMatrix(int64_t rows, int64_t cols, DType dtype = DType::f32, int64_t gap = 0)
      : view_{nullptr, dtype, rows, cols, row_stride(cols, gap)},
        bytes_(static_cast<size_t>(rows * view_.ld * dtype_bytes(dtype)) + kCanaryBytes, kPoison,
               test_memory()) {
    view_.data = bytes_.data();
  }
  TestMatrix(const TestMatrix& other) : view_(other.view_), bytes_(other.bytes_, test_memory()) {
    view_.data = bytes_.data();
  }
  TestMatrix& operator=(const TestMatrix& other) {
    view_ = other.view_;
    bytes_ = other.bytes_;
    view_.data = bytes_.data();
    return *this;
  }

  Matrix view() const { return view_; }
  // A matrix of one row as a vector. (A matrix without gaps: all elements.)
  Vector vec() const {
    return {view_.data, view_.dtype, view_.rows == 1 ? view_.cols : view_.rows * view_.cols};
  }
  operator Matrix() const { return view(); }  // NOLINT: tests read better
  operator Vector() const { return vec(); }   // NOLINT

  int64_t rows() const { return view_.rows; }
  int64_t cols() const { return view_.cols; }

  double at(int64_t row, int64_t col) const {
    const int64_t index = row * view_.ld + col;
    switch (view_.dtype) {
      case DType::bf16:
        return static_cast<double>(to_f32(static_cast<const bf16*>(view_.data)[index]));
      case DType::i32: return static_cast<double>(static_cast<const int32_t*>(view_.data)[index]);
      default: return static_cast<double>(static_cast<const float*>(view_.data)[index]);
    }
  }
  void set(int64_t row, int64_t col, double value) {
    const int64_t index = row * view_.ld + col;
    switch (view_.dtype) {
      case DType::bf16:
        static_cast<bf16*>(view_.data)[index] = to_bf16(static_cast<float>(value));
        break;
      case DType::i32:
        static_cast<int32_t*>(view_.data)[index] = static_cast<int32_t>(value);
        break;
      default: static_cast<float*>(view_.data)[index] = static_cast<float>(value);
    }
  }

  // All elements, row after row, as stored (so after rounding to the element type).
  std::vector<double> values() const {
    std::vector<double> out;
    for (int64_t r = 0; r < rows(); ++r) {
      for (int64_t c = 0; c < cols(); ++c) out.push_back(at(r, c));
    }
    return out;
  }
  TestMatrix& assign(const std::vector<double>& values) {
    for (int64_t r = 0; r < rows(); ++r) {
      for (int64_t c = 0; c < cols(); ++c)
        set(r, c, values.at(static_cast<size_t>(r * cols() + c)));
    }
    return *this;
  }
  TestMatrix& fill(double value) {
    return assign(std::vector<double>(static_cast<size_t>(rows() * cols()), value));
  }

  // Whether gaps between rows and the canary bytes are unchanged.
  bool outside_untouched() const {
    const auto item = static_cast<size_t>(dtype_bytes(view_.dtype));
    const auto poisoned = [](unsigned char byte) { return byte == kPoison; };
    for (int64_t r = 0; r < rows(); ++r) {
      const auto* row = bytes_.data() + static_cast<size_t>(r * view_.ld) * item;
      if (!std::all_of(row + static_cast<size_t>(cols()) * item,
                       row + static_cast<size_t>(view_.ld) * item, poisoned)) {
        return false;
      }
    }
    return std::all_of(bytes_.end() - kCanaryBytes, bytes_.end(), poisoned);
  }
  bool same_bytes(const TestMatrix& other) const { return bytes_ == other.bytes_; }

 private:
  static constexpr unsigned char kPoison = 0xff;  // NaN in f32 and bf16, -1 in i32
  static constexpr int kCanaryBytes = 64;
  Matrix view_;
  std::pmr::vector<unsigned char> bytes_;
};

// Normal with standard deviation `scale`, a pure function of (seed, element).
inline TestMatrix random_matrix(int64_t rows, int64_t cols, DType dtype = DType::f32,
                                uint64_t seed = 1, double scale = 1, int64_t gap = 0) {
  TestMatrix out(rows, cols, dtype, gap);
  std::vector<float> values(static_cast<size_t>(rows * cols));
  fill_normal(values.data(), rows * cols, seed * 0x9E3779B97F4A7C15U + 1, 0, 0.0F,
              static_cast<float>(scale));
  return out.assign({values.begin(), values.end()});
}
inline TestMatrix random_vector(int64_t count, DType dtype = DType::f32, uint64_t seed = 1,
                                double scale = 1) {
  return random_matrix(1, count, dtype, seed, scale);
}
// Uniform integers in [0, limit).
inline TestMatrix random_tokens(int64_t count, int64_t limit, uint64_t seed = 1) {
  TestMatrix out(1, count, DType::i32);
  for (int64_t i = 0; i < count; ++i) {
    out.set(0, i,
            static_cast<double>(random_u64(seed, static_cast<uint64_t>(i)) %
                                static_cast<uint64_t>(limit)));
  }
  return out;
}
// Outputs: every element NaN.
inline TestMatrix poisoned_matrix(int64_t rows, int64_t cols, DType dtype = DType::f32,
                                  int64_t gap = 0) {
  return {rows, cols, dtype, gap};
}
inline TestMatrix poisoned_vector(int64_t count, DType dtype = DType::f32) {
  return {1, count, dtype};
}
inline TestMatrix zero_matrix(int64_t rows, int64_t cols, DType dtype = DType::f32,
                              int64_t gap = 0) {
  return TestMatrix(rows, cols, dtype, gap).fill(0);
}
inline TestMatrix zero_vector(int64_t count, DType dtype = DType::f32) {
  return zero_matrix(1, count, dtype);
}

// Tolerance for a result of this type with f32 accumulation: a few roundings in f32, or one
// rounding to bf16 (half of 2^-7) and slack.
inline double tolerance(DType dtype) { return dtype == DType::bf16 ? 6e-3 : 2e-5; }

// Checks |actual - expected| <= tolerance * max(|expected|, rms of all expected) for every element
// (a sum that cancels to nearly zero has the rounding error of its terms); NaN never passes. Also
// checks that nothing was written outside the matrix.
inline ::testing::AssertionResult close(const TestMatrix& actual,
                                        const std::vector<double>& expected, double tolerance) {
  if (static_cast<int64_t>(expected.size()) != actual.rows() * actual.cols()) {
    return ::testing::AssertionFailure() << "expected has " << expected.size() << " elements";
  }
  double squares = 0;
  for (const double value : expected) squares += value * value;
  const double rms =
      expected.empty() ? 0 : std::sqrt(squares / static_cast<double>(expected.size()));
  for (int64_t r = 0; r < actual.rows(); ++r) {
    for (int64_t c = 0; c < actual.cols(); ++c) {
      const double want = expected[static_cast<size_t>(r * actual.cols() + c)];
      const double have = actual.at(r, c);
      const double allowed = tolerance * std::max({std::abs(want), rms, 1e-30});
      if (!(std::abs(have - want) <= allowed)) {
        return ::testing::AssertionFailure()
               << "element (" << r << ", " << c << ") is " << have << ", expected " << want
               << ", error " << std::abs(have - want) << " > " << allowed;
      }
    }
  }
  if (!actual.outside_untouched()) {
    return ::testing::AssertionFailure() << "written outside the matrix";
  }
  return ::testing::AssertionSuccess();
}
inline ::testing::AssertionResult close(const TestMatrix& actual,
                                        const std::vector<double>& expected) {
  return close(actual, expected, tolerance(actual.view().dtype));
}

// Calls body() once per instruction set of this machine, in ascending order, then restores the
// previous one. On other devices twice: with misaligned and with aligned rows.
template <typename Body>
void for_each_isa(const Body& body) {
  if (!on_cpu()) {
    for (const bool aligned : {false, true}) {
      SCOPED_TRACE(aligned ? "aligned rows" : "misaligned rows");
      align_rows(aligned);
      body();
    }
    align_rows(false);
    return;
  }
  const Isa before = current_isa();
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(std::string("isa ") + isa_name(isa));
    set_isa(isa);
    body();
  }
  set_isa(before);
}

// Calls body(dtype) for both compute types.
template <typename Body>
void for_each_dtype(const Body& body) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(dtype_name(dtype));
    body(dtype);
  }
}

// Calls body(dtype) for every instruction set and compute type.
template <typename Body>
void for_each_isa_and_dtype(const Body& body) {
  for_each_isa([&] { for_each_dtype(body); });
}

// The process-wide stream of the tests. It has two threads even on one core, to test the splitting
// of work. Every operation is complete when its call returns.
Stream& test_stream();
// Another stream on the same device. Only the CPU uses `threads`: on other devices equal bits show
// only that results are reproducible.
std::unique_ptr<Stream> make_test_stream(int threads);

}  // namespace tutti::engine::testing
