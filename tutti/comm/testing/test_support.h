// Helpers of the tests of collectives: buffers with values that name rank and element, worlds as
// threads, plain references.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/rng.h"
#include "tutti/comm/world/thread_world.h"
#include "tutti/engine/tensor.h"

namespace tutti::comm::testing {

using engine::Stream;
using engine::Vector;

inline const std::vector<DType> kTypes = {DType::f32, DType::bf16, DType::i32, DType::i64};

// `count` elements and a canary behind them.
class Buffer {
 public:
  Buffer(DType dtype, int64_t count)
      : dtype_(dtype),
        count_(count),
        bytes_(static_cast<size_t>(count * dtype_bytes(dtype)) + kCanary, 0xff) {}

  Vector view() { return {bytes_.data(), dtype_, count_}; }
  Vector view(int64_t begin, int64_t count) {
    return {bytes_.data() + begin * dtype_bytes(dtype_), dtype_, count};
  }
  int64_t count() const { return count_; }
  bool same(const Buffer& other) const { return bytes_ == other.bytes_; }

  double at(int64_t i) const {
    switch (dtype_) {
      case DType::bf16: return static_cast<double>(to_f32(get<bf16>(i)));
      case DType::i32: return get<int32_t>(i);
      case DType::i64: return static_cast<double>(get<int64_t>(i));
      default: return static_cast<double>(get<float>(i));
    }
  }
  void set(int64_t i, double value) {
    switch (dtype_) {
      case DType::bf16: return put(i, to_bf16(static_cast<float>(value)));
      case DType::i32: return put(i, static_cast<int32_t>(value));
      case DType::i64: return put(i, static_cast<int64_t>(value));
      default: return put(i, static_cast<float>(value));
    }
  }
  // Values that differ between seeds and elements; of integers whole numbers.
  Buffer& fill(uint64_t seed) {
    for (int64_t i = 0; i < count_; ++i) {
      const uint64_t bits = random_u64(seed, static_cast<uint64_t>(i));
      const double value = static_cast<double>(bits % 2001) - 1000;
      set(i, dtype_ == DType::i32 || dtype_ == DType::i64 ? value : value / 7);
    }
    return *this;
  }

 private:
  static constexpr size_t kCanary = 64;
  template <typename T>
  T get(int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void put(int64_t i, T value) {
    std::memcpy(bytes_.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  DType dtype_;
  int64_t count_;
  std::vector<unsigned char> bytes_;
};

// The buffers that ranks 0.. give: filled with seed + rank.
inline std::vector<Buffer> buffers_of_ranks(int ranks, DType dtype, int64_t count, uint64_t seed) {
  std::vector<Buffer> out;
  out.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    out.push_back(Buffer(dtype, count).fill(seed + static_cast<uint64_t>(rank)));
  }
  return out;
}

// Element by element in rank order, in f32 for floating-point types, rounded once.
inline Buffer reduced(const std::vector<Buffer>& sends, DType dtype, Reduce reduce) {
  Buffer out(dtype, sends[0].count());
  const bool whole = dtype == DType::i32 || dtype == DType::i64;
  for (int64_t i = 0; i < out.count(); ++i) {
    double result = sends[0].at(i);
    for (size_t rank = 1; rank < sends.size(); ++rank) {
      const double x = sends[rank].at(i);
      if (reduce == Reduce::max) {
        result = std::max(result, x);
      } else {
        result = whole ? result + x
                       : static_cast<double>(static_cast<float>(result) + static_cast<float>(x));
      }
    }
    out.set(i, result);
  }
  return out;
}

inline spec::Mesh mesh_of(int64_t ranks) {
  spec::Mesh mesh;
  mesh.dp = ranks;
  return mesh;
}

// Far more than it takes on a busy machine, far less than waiting for a timeout (60 s).
constexpr double kAtOnceSeconds = 20;

// Waits until so many ranks have counted.
inline void await(const std::atomic<int>& counted, int ranks) {
  const double end = monotonic_seconds() + 60;
  while (counted < ranks && monotonic_seconds() < end) sleep_seconds(0.001);
  EXPECT_EQ(counted, ranks);
}

// The message of the error of kind peer that body() throws; "" and a failure when it does not.
template <typename Body>
std::string peer_error(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace tutti::comm::testing
