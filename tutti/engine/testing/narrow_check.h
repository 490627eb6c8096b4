// References for tests of narrow operations: quantization element by element as defined in
// base/narrow_format.h, and the decoded values of a kernel's output.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory_resource>
#include <vector>

#include "tutti/base/testing/narrow.h"
#include "tutti/engine/narrow_ops.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {

inline constexpr NarrowKind kNarrowKinds[] = {NarrowKind::e4m3, NarrowKind::e5m2, NarrowKind::mxfp8,
                                              NarrowKind::nvfp4};

// A narrow matrix that owns its memory, which is poisoned.
struct TestNarrow {
  NarrowMatrix view;
  std::pmr::vector<uint8_t> storage;

  TestNarrow(NarrowKind kind, int64_t rows, int64_t columns)
      : view{kind, rows, columns, nullptr},
        storage(static_cast<size_t>(view.layout().bytes) + 512, 0xff, test_memory()) {
    const auto past = reinterpret_cast<uintptr_t>(storage.data()) % 256;
    view.data = storage.data() + (past == 0 ? 0 : 256 - past);
  }
  TestNarrow(TestNarrow&&) = default;  // moving a vector does not move its elements
  TestNarrow(const TestNarrow&) = delete;
  TestNarrow& operator=(const TestNarrow&) = delete;

  const uint8_t* bytes() const { return static_cast<const uint8_t*>(view.data); }
  NarrowHeader header() const {
    NarrowHeader out;
    std::memcpy(&out, view.data, sizeof out);
    return out;
  }
  uint8_t code(int64_t row, int64_t column) const {
    const NarrowLayout layout = view.layout();
    const uint8_t* codes = bytes() + layout.codes_offset + row * layout.row_bytes;
    if (view.kind != NarrowKind::nvfp4) return codes[column];
    return column % 2 == 0 ? codes[column / 2] & 15U : codes[column / 2] >> 4;
  }
  uint8_t scale(int64_t row, int64_t block) const {
    const NarrowLayout layout = view.layout();
    return bytes()[layout.scales_offset + row * layout.blocks + block];
  }
  // The decoded element, without and with the per-tensor scale.
  double unscaled(int64_t row, int64_t column) const {
    const uint8_t at = code(row, column);
    switch (view.kind) {
      case NarrowKind::e4m3: return tutti::testing::defined_value(kE4m3, at);
      case NarrowKind::e5m2: return tutti::testing::defined_value(kE5m2, at);
      case NarrowKind::mxfp8:
        return tutti::testing::defined_value(kE4m3, at) *
               std::ldexp(1, scale(row, column / 32) - 127);
      case NarrowKind::nvfp4:
        return tutti::testing::defined_value(kE2m1, at) *
               tutti::testing::defined_value(kE4m3, scale(row, column / 16));
    }
    return 0;
  }
  double value(int64_t row, int64_t column) const {
    return unscaled(row, column) * static_cast<double>(header().inverse_scale);
  }
  // All decoded elements, row after row.
  std::vector<double> values() const {
    std::vector<double> out;
    for (int64_t r = 0; r < view.rows; ++r) {
      for (int64_t c = 0; c < view.columns; ++c) out.push_back(value(r, c));
    }
    return out;
  }
};

inline TestNarrow quantized(NarrowKind kind, const TestMatrix& x, bool transpose = false) {
  TestNarrow out(kind, transpose ? x.cols() : x.rows(), transpose ? x.rows() : x.cols());
  test_stream().ops().quantize(test_stream(), {.x = x, .transpose = transpose, .out = out.view});
  return out;
}

// The product of quantized operands in f64: a [m, k] b [n, k]^T.
inline std::vector<double> product_of(const TestNarrow& a, const TestNarrow& b) {
  const std::vector<double> left = a.values();
  const std::vector<double> right = b.values();
  const auto k = static_cast<size_t>(a.view.columns);
  std::vector<double> out;
  for (size_t i = 0; i < static_cast<size_t>(a.view.rows); ++i) {
    for (size_t j = 0; j < static_cast<size_t>(b.view.rows); ++j) {
      double sum = 0;
      for (size_t p = 0; p < k; ++p) sum += left[i * k + p] * right[j * k + p];
      out.push_back(sum);
    }
  }
  return out;
}

}  // namespace tutti::engine::testing
