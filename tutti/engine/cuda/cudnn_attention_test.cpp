// Shapes of real models use cuDNN's kernels, and these agree with the plain ones.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/engine/backend.h"
#include "tutti/engine/cuda/attention.h"
#include "tutti/engine/cuda/attention_plain.h"
#include "tutti/engine/cuda/stream.h"

namespace tutti::engine {
namespace {

struct Shape {
  int64_t b, t, a, k, d;
};

class OnDevice {
 public:
  OnDevice(Stream& stream, int64_t rows, int64_t cols, DType dtype, uint64_t seed)
      : stream_(stream),
        arena_("attention", rows * cols * dtype_bytes(dtype), ArenaKind::device),
        view_(matrix(arena_.data(), dtype, rows, cols)) {
    arena_.poison(0, arena_.bytes());
    if (seed == 0) return;
    std::vector<float> values(static_cast<size_t>(rows * cols));
    fill_normal(values.data(), rows * cols, seed, 0, 0.0F, 1.0F);
    std::vector<bf16> rounded(values.size());
    for (size_t i = 0; i < values.size(); ++i) rounded[i] = to_bf16(values[i]);
    stream.transfer(arena_.data(), rounded.data(), arena_.bytes());
  }
  operator Matrix() const { return view_; }  // NOLINT: as TestMatrix
  operator Vector() const {                  // NOLINT
    return vector(arena_.data(), view_.dtype, view_.rows * view_.cols);
  }
  std::vector<double> values() const {
    std::vector<double> out(static_cast<size_t>(view_.rows * view_.cols));
    if (view_.dtype == DType::f32) {
      std::vector<float> here(out.size());
      stream_.transfer(here.data(), arena_.data(), arena_.bytes());
      stream_.synchronize();
      out.assign(here.begin(), here.end());
      return out;
    }
    std::vector<bf16> here(out.size());
    stream_.transfer(here.data(), arena_.data(), arena_.bytes());
    stream_.synchronize();
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(to_f32(here[i]));
    return out;
  }

 private:
  Stream& stream_;
  Arena arena_;
  Matrix view_;
};

double error(const OnDevice& actual, const OnDevice& expected) {
  const std::vector<double> a = actual.values(), e = expected.values();
  double difference = 0, whole = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - e[i]) * (a[i] - e[i]);
    whole += e[i] * e[i];
  }
  return std::sqrt(difference / whole);
}

// No version of cuDNN guarantees a deterministic kernel for odd lengths with grouped heads.
bool may_refuse(const Shape& s) { return s.t % 2 != 0 && s.a != s.k; }

TEST(CudnnAttention, SupportsShapesOfModelsAndAgreesWithThePlainKernels) {
  if (!cuda_backend().missing().empty()) {
    GTEST_SKIP() << "skipped: " << cuda_backend().missing();
  }
  const std::unique_ptr<Stream> owned = cuda_backend().make_stream({.blocking = true});
  CudaStream& stream = cuda_stream(*owned);
  for (const Shape& s : {Shape{2, 1024, 12, 12, 64}, Shape{1, 1024, 25, 25, 64},
                         Shape{1, 2048, 32, 8, 128}, Shape{3, 257, 6, 2, 64}}) {
    SCOPED_TRACE(fmt::format("B{} T{} A{} K{} D{}", s.b, s.t, s.a, s.k, s.d));
    const int64_t rows = s.b * s.t;
    const int64_t width = (s.a + 2 * s.k) * s.d;
    const OnDevice qkv(stream, rows, width, DType::bf16, 1);
    const OnDevice d_out(stream, rows, s.a * s.d, DType::bf16, 2);
    AttentionForwardArgs forward;
    forward.batch = s.b;
    forward.sequence = s.t;
    forward.heads = s.a;
    forward.kv_heads = s.k;
    forward.head_dim = s.d;
    forward.qkv = qkv;
    AttentionBackwardArgs backward;
    backward.batch = s.b;
    backward.sequence = s.t;
    backward.heads = s.a;
    backward.kv_heads = s.k;
    backward.head_dim = s.d;
    backward.qkv = qkv;
    backward.d_out = d_out;
    std::vector<std::unique_ptr<OnDevice>> out, lse, d_qkv, delta;
    std::vector<std::string> refused;
    for (const bool plain : {true, false}) {
      out.push_back(std::make_unique<OnDevice>(stream, rows, s.a * s.d, DType::bf16, 0));
      lse.push_back(std::make_unique<OnDevice>(stream, 1, rows * s.a, DType::f32, 0));
      delta.push_back(std::make_unique<OnDevice>(stream, 1, rows * s.a, DType::f32, 0));
      d_qkv.push_back(std::make_unique<OnDevice>(stream, rows, width, DType::bf16, 0));
      forward.out = backward.out = *out.back();
      forward.lse = backward.lse = *lse.back();
      backward.delta = *delta.back();
      backward.d_qkv = *d_qkv.back();
      if (plain) {
        attention_plain_forward(stream, forward);
        attention_plain_backward(stream, backward);
      } else {
        const bool supported =
            stream.attention().forward(forward) && stream.attention().backward(backward);
        if (!supported) refused.push_back(stream.attention().refusal());
        EXPECT_TRUE(supported || may_refuse(s)) << stream.attention().refusal();
      }
      stream.synchronize();
    }
    if (!refused.empty()) {
      std::cout << fmt::format(
          "B{} T{} A{} K{} D{}: refused by cuDNN, uses the plain kernels: {}\n", s.b, s.t, s.a, s.k,
          s.d, refused.front());
      continue;
    }
    EXPECT_LT(error(*out[1], *out[0]), 8e-3);
    EXPECT_LT(error(*lse[1], *lse[0]), 1e-4);
    EXPECT_LT(error(*d_qkv[1], *d_qkv[0]), 1.5e-2);

    // Bitwise reproducible.
    const std::vector<double> first = d_qkv[1]->values();
    ASSERT_TRUE(stream.attention().backward(backward));
    stream.synchronize();
    EXPECT_EQ(d_qkv[1]->values(), first);
  }
}

}  // namespace
}  // namespace tutti::engine
