// Operations that compute the amax of their result, and quantization that uses it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/engine/testing/narrow_check.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

using testing::kNarrowKinds;
using testing::poisoned_matrix;
using testing::quantized;
using testing::random_matrix;
using testing::random_vector;
using testing::test_stream;
using testing::TestMatrix;
using testing::TestNarrow;
using testing::zero_matrix;

// Rows and columns: smaller than a block, partial blocks, and rows for every norm kernel (up to
// 1,024, 2,048, 8,192, 16,384 and more elements).
constexpr std::pair<int64_t, int64_t> kShapes[] = {{1, 1},    {3, 5},    {33, 70},   {7, 256},
                                                   {5, 1030}, {3, 3000}, {2, 10000}, {2, 17001}};

double largest(const TestMatrix& x) {
  double most = 0;
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t c = 0; c < x.cols(); ++c) most = std::max(most, std::abs(x.at(r, c)));
  }
  return most;
}

// x has one element that is much larger than all others, and a neighbour of the opposite sign.
TestMatrix with_peak(int64_t rows, int64_t columns, DType dtype, uint64_t seed) {
  TestMatrix x = random_matrix(rows, columns, dtype, seed, 1, 3);
  x.set(rows / 2, columns / 3, -7.3);
  return x;
}

TEST(Amax, OfNormOutputsAndBranchGradients) {
  testing::for_each_dtype([](DType dtype) {
    for (const auto& [n, h] : kShapes) {
      for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
        SCOPED_TRACE(fmt::format("[{}, {}] {}", n, h, kind == NormKind::layer));
        const bool layer = kind == NormKind::layer;
        const TestMatrix x = with_peak(n, h, DType::f32, 1), weight = random_vector(h, dtype, 2);
        const TestMatrix bias = random_vector(h, dtype, 3);
        TestMatrix y = poisoned_matrix(n, h, dtype), amax = poisoned_matrix(1, 1, DType::f32);
        TestMatrix mean = poisoned_matrix(1, n, DType::f32);
        TestMatrix rstd = poisoned_matrix(1, n, DType::f32);
        test_stream().ops().norm_forward(test_stream(), {.kind = kind,
                                                         .residual_in = x,
                                                         .weight = weight,
                                                         .bias = layer ? bias.vec() : Vector{},
                                                         .y = y,
                                                         .mean = layer ? mean.vec() : Vector{},
                                                         .rstd = rstd,
                                                         .amax = amax});
        EXPECT_EQ(amax.at(0, 0), largest(y));

        const TestMatrix dy = with_peak(n, h, dtype, 4);
        for (const bool weights : {false, true}) {
          TestMatrix d_residual = random_matrix(n, h, DType::f32, 5, 1e-3);
          TestMatrix d_branch = poisoned_matrix(n, h, dtype), d_weight = zero_matrix(1, h);
          amax.set(0, 0, 1e9);
          test_stream().ops().norm_backward_input(
              test_stream(), {.kind = kind,
                              .dy = dy,
                              .residual = x,
                              .weight = weight,
                              .mean = layer ? mean.vec() : Vector{},
                              .rstd = rstd,
                              .d_residual = d_residual,
                              .d_branch = d_branch,
                              .amax = amax,
                              .d_weight = weights ? d_weight.vec() : Vector{}});
          EXPECT_EQ(amax.at(0, 0), largest(d_branch)) << weights;
        }
      }
    }
  });
}

TEST(Amax, OfActivationsAndTheirGradients) {
  testing::for_each_dtype([](DType dtype) {
    for (const auto& [n, f] : kShapes) {
      for (const Activation kind : {Activation::gelu, Activation::swiglu}) {
        SCOPED_TRACE(fmt::format("[{}, {}] {}", n, f, kind == Activation::gelu));
        const int64_t columns = kind == Activation::gelu ? f : 2 * f;
        const TestMatrix x = with_peak(n, columns, dtype, 1), dy = with_peak(n, f, dtype, 2);
        TestMatrix y = poisoned_matrix(n, f, dtype), dx = poisoned_matrix(n, columns, dtype);
        TestMatrix amax = poisoned_matrix(1, 1, DType::f32);
        test_stream().ops().activation_forward(test_stream(),
                                               {.kind = kind, .x = x, .y = y, .amax = amax});
        EXPECT_EQ(amax.at(0, 0), largest(y));
        amax.set(0, 0, 1e9);
        test_stream().ops().activation_backward(
            test_stream(), {.kind = kind, .x = x, .dy = dy, .dx = dx, .amax = amax});
        EXPECT_EQ(amax.at(0, 0), largest(dx));
      }
    }
  });
}

// Non-finite values win in any order; the amax of an empty matrix is 0.
TEST(Amax, NaNIsLargerThanInfinity) {
  testing::for_each_dtype([](DType dtype) {
    for (const bool nan : {false, true}) {
      TestMatrix x = with_peak(40, 70, dtype, 1), y = poisoned_matrix(40, 70, dtype);
      TestMatrix amax = poisoned_matrix(1, 1, DType::f32);
      x.set(39, 69, HUGE_VAL);
      if (nan) x.set(3, 4, std::nan(""));
      test_stream().ops().activation_forward(test_stream(), {.x = x, .y = y, .amax = amax});
      EXPECT_EQ(std::isnan(amax.at(0, 0)), nan);
      EXPECT_EQ(std::isinf(amax.at(0, 0)), !nan);
    }
    TestMatrix none = poisoned_matrix(0, 8, dtype), amax = poisoned_matrix(1, 1, DType::f32);
    test_stream().ops().activation_forward(test_stream(), {.x = none, .y = none, .amax = amax});
    EXPECT_EQ(amax.at(0, 0), 0);
  });
}

bool same(const TestNarrow& a, const TestNarrow& b) {
  return std::equal(a.bytes(), a.bytes() + a.view.layout().bytes, b.bytes());
}

// Quantization with an unknown amax stores it for the next call; the bits are the same with an
// unknown, a known and no amax.
TEST(Amax, QuantizeStoresAndReusesIt) {
  testing::for_each_dtype([](DType dtype) {
    const std::pair<int64_t, int64_t> shapes[] = {{1, 1},     {17, 5},   {33, 70}, {128, 128},
                                                  {130, 129}, {257, 48}, {0, 8},   {8, 0}};
    for (const auto& [rows, columns] : shapes) {
      for (const NarrowKind kind : kNarrowKinds) {
        SCOPED_TRACE(fmt::format("{} [{}, {}]", narrow_format(kind).name, rows, columns));
        const TestMatrix x = random_matrix(rows, columns, dtype, 3, 0.02, 3);
        const TestNarrow plain = quantized(kind, x), transposed = quantized(kind, x, true);
        TestMatrix amax = zero_matrix(1, 1);
        for (const bool known : {false, true}) {
          TestNarrow a(kind, rows, columns), b(kind, columns, rows);
          TestNarrow both_a(kind, rows, columns), both_b(kind, columns, rows);
          const Magnitude magnitude = {amax, known};
          test_stream().ops().quantize(test_stream(), {.x = x, .out = a.view, .amax = magnitude});
          test_stream().ops().quantize(
              test_stream(), {.x = x, .transpose = true, .out = b.view, .amax = magnitude});
          test_stream().ops().quantize(
              test_stream(),
              {.x = x, .out = both_a.view, .transposed = both_b.view, .amax = magnitude});
          EXPECT_TRUE(same(a, plain) && same(both_a, plain));
          EXPECT_TRUE(same(b, transposed) && same(both_b, transposed));
          EXPECT_EQ(amax.at(0, 0), kind == NarrowKind::mxfp8 ? 0 : largest(x));
        }
      }
    }
  });
}

// The scale comes from the given amax.
TEST(Amax, KnownAmaxIsNotRecomputed) {
  TestMatrix x = random_matrix(33, 70, DType::bf16, 3), larger = x, amax = zero_matrix(1, 1);
  larger.set(0, 0, 100);
  amax.set(0, 0, 100);
  for (const NarrowKind kind : {NarrowKind::e4m3, NarrowKind::e5m2, NarrowKind::nvfp4}) {
    TestNarrow out(kind, 33, 70);
    const TestNarrow expected = quantized(kind, larger);
    test_stream().ops().quantize(test_stream(), {.x = x, .out = out.view, .amax = {amax, true}});
    EXPECT_EQ(out.header().inverse_scale, expected.header().inverse_scale);
    EXPECT_EQ(out.header().amax, 100);
    EXPECT_EQ(out.code(7, 9), expected.code(7, 9));
  }
}

}  // namespace
}  // namespace tutti::engine
