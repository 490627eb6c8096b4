// The three products of a linear layer below 16 bits, against a straight-through reference:
// products of the quantized operands in f64.
#include "tutti/model/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tutti/engine/testing/narrow_check.h"
#include "tutti/spec/program/narrow.h"

namespace tutti::model {
namespace {

using engine::testing::close;
using engine::testing::poisoned_matrix;
using engine::testing::product_of;
using engine::testing::quantized;
using engine::testing::random_matrix;
using engine::testing::random_vector;
using engine::testing::test_stream;
using engine::testing::TestMatrix;
using engine::testing::TestNarrow;
using engine::testing::zero_matrix;

constexpr spec::Precision kPrecisions[] = {spec::Precision::fp8, spec::Precision::mxfp8,
                                           spec::Precision::fp4};

// A layer with odd sizes and memory for its products.
struct Layer {
  int64_t rows = 37, in = 53, out = 71;
  TestMatrix x = random_matrix(rows, in, DType::bf16, 1);
  TestMatrix w = random_matrix(out, in, DType::bf16, 2, 0.1);
  TestMatrix dy = random_matrix(rows, out, DType::bf16, 3, 1e-3);
  TestMatrix bias = random_vector(out, DType::bf16, 4);
  TestMatrix y = poisoned_matrix(rows, out, DType::bf16);
  TestMatrix dx = poisoned_matrix(rows, in, DType::bf16);
  TestMatrix dw = zero_matrix(out, in);
  TestMatrix db = zero_matrix(1, out);
  TestNarrow left, right;
  Linear linear;

  explicit Layer(spec::Precision precision)
      : left(spec::operand_kind(precision), 128, 128),
        right(spec::operand_kind(precision), 128, 128) {
    linear.weight = w;
    linear.bias = bias;
    linear.d_weight = dw;
    linear.d_bias = db;
    if (!spec::is_narrow(precision)) return;
    const auto buffer_of = [](const TestNarrow& operand) {
      return engine::vector(operand.view.data, DType::u8, operand.view.layout().bytes);
    };
    linear.narrow = {.operand = spec::operand_kind(precision),
                     .gradient = spec::gradient_kind(precision),
                     .left = buffer_of(left),
                     .right = buffer_of(right)};
  }
  void run(float beta = 0) {
    linear_forward(test_stream(), linear, x, y);
    linear_backward_input(test_stream(), linear, dy, dx);
    linear_backward_weight(test_stream(), linear, x, dy, beta);
  }
};

TEST(NarrowLinear, ProductsAreThoseOfTheQuantizedOperands) {
  for (const spec::Precision precision : kPrecisions) {
    const NarrowKind kind = spec::operand_kind(precision);
    const NarrowKind gradient = spec::gradient_kind(precision);
    SCOPED_TRACE(narrow_format(kind).name);
    Layer layer(precision);
    layer.run();
    std::vector<double> y = product_of(quantized(kind, layer.x), quantized(kind, layer.w));
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] += layer.bias.at(0, static_cast<int64_t>(i) % layer.out);
    }
    EXPECT_TRUE(close(layer.y, y));
    EXPECT_TRUE(
        close(layer.dx, product_of(quantized(gradient, layer.dy), quantized(kind, layer.w, true))));
    std::vector<double> dw =
        product_of(quantized(gradient, layer.dy, true), quantized(kind, layer.x, true));
    EXPECT_TRUE(close(layer.dw, dw));
    const std::vector<double> once = layer.dw.values();
    layer.run(1);
    for (size_t i = 0; i < dw.size(); ++i) dw[i] += once[i];
    EXPECT_TRUE(close(layer.dw, dw));
    for (int64_t j = 0; j < layer.out; ++j) {  // not a product: unchanged
      double sum = 0;
      for (int64_t r = 0; r < layer.rows; ++r) sum += 2 * layer.dy.at(r, j);
      EXPECT_NEAR(layer.db.at(0, j), sum, 1e-5);
    }
  }
}

// Weights quantized in advance: the same bits, even if the weight changes in between.
TEST(NarrowLinear, WeightQuantizedOnceServesAllProducts) {
  Layer each(spec::Precision::fp8), once(spec::Precision::fp8);
  const NarrowKind kind = spec::operand_kind(spec::Precision::fp8);
  TestNarrow straight(kind, once.out, once.in), turned(kind, once.in, once.out);
  const auto buffer_of = [](const TestNarrow& operand) {
    return engine::vector(operand.view.data, DType::u8, operand.view.layout().bytes);
  };
  once.linear.narrow.weight = buffer_of(straight);
  once.linear.narrow.weight_turned = buffer_of(turned);
  quantize_weight(test_stream(), once.linear);
  for (const double value : {0.0, 100.0}) {
    each.run();
    once.run();
    EXPECT_EQ(once.y.values(), each.y.values());
    EXPECT_EQ(once.dx.values(), each.dx.values());
    EXPECT_EQ(once.dw.values(), each.dw.values());
    once.w.set(3, 5, value);
  }
  each.w.set(3, 5, 100);
  quantize_weight(test_stream(), once.linear);
  each.run();
  once.run();
  EXPECT_EQ(once.y.values(), each.y.values());
  EXPECT_EQ(once.dx.values(), each.dx.values());
}

// Known, or stored by the forward product for the weight gradient.
TEST(NarrowLinear, StoredMagnitudeChangesNoBit) {
  for (const spec::Precision precision : {spec::Precision::fp8, spec::Precision::fp4}) {
    Layer plain(precision), kept(precision);
    plain.run();
    TestMatrix of_x = poisoned_matrix(1, 1, DType::f32), of_dy = zero_matrix(1, 1);
    for (int64_t r = 0; r < kept.rows; ++r) {
      for (int64_t c = 0; c < kept.out; ++c) {
        of_dy.set(0, 0, std::max(of_dy.at(0, 0), std::abs(kept.dy.at(r, c))));
      }
    }
    linear_forward(test_stream(), kept.linear, kept.x, kept.y, {}, {of_x, false});
    linear_backward_input(test_stream(), kept.linear, kept.dy, kept.dx, {}, {of_dy, true});
    linear_backward_weight(test_stream(), kept.linear, kept.x, kept.dy, 0, {}, {of_x, true});
    EXPECT_EQ(kept.y.values(), plain.y.values());
    EXPECT_EQ(kept.dx.values(), plain.dx.values());
    EXPECT_EQ(kept.dw.values(), plain.dw.values());
  }
}

double relative_error(const TestMatrix& actual, const TestMatrix& expected) {
  double off = 0, size = 0;
  for (int64_t r = 0; r < expected.rows(); ++r) {
    for (int64_t c = 0; c < expected.cols(); ++c) {
      off += std::pow(actual.at(r, c) - expected.at(r, c), 2);
      size += std::pow(expected.at(r, c), 2);
    }
  }
  return std::sqrt(off / size);
}

// Against 16-bit products. Rounding with m bits of mantissa has an error of at most 2^-(m+1) of an
// element, and in the root mean square over a binade less than 2^-(m+1) / sqrt(3); for two
// independent operands the squares add up. E4M3 x E4M3 therefore stays below 5.2%, E5M2 x E4M3
// below 8.1% (elements too small for a normal code, here few, have larger errors).
TEST(NarrowLinear, GradientErrorsMatchTheFormats) {
  Layer wide(spec::Precision::bf16);
  wide.run();
  const auto eps = [](int bits) { return std::ldexp(1, -bits - 1) / std::sqrt(3.0); };
  Layer fp8(spec::Precision::fp8);
  fp8.run();
  EXPECT_LT(relative_error(fp8.dx, wide.dx), 1.1 * std::hypot(eps(2), eps(3)));
  EXPECT_LT(relative_error(fp8.dw, wide.dw), 1.1 * std::hypot(eps(2), eps(3)));
  EXPECT_GT(relative_error(fp8.dw, wide.dw), 0.4 * eps(2));
  Layer mxfp8(spec::Precision::mxfp8);
  mxfp8.run();
  // The largest element of a block may exceed 448 times its scale by up to 1/8: a few elements in
  // 32.
  EXPECT_LT(relative_error(mxfp8.dx, wide.dx), 1.3 * std::hypot(eps(3), eps(3)));
  EXPECT_LT(relative_error(mxfp8.dw, wide.dw), 1.3 * std::hypot(eps(3), eps(3)));
  Layer fp4(spec::Precision::fp4);
  fp4.run();
  // Steps of 1/2 up to 2, of 1 up to 4, of 2 up to 6 in a block whose largest element is 6: for
  // normal elements about a tenth in each operand.
  EXPECT_LT(relative_error(fp4.dx, wide.dx), 0.19);
  EXPECT_LT(relative_error(fp4.dw, wide.dw), 0.19);
  EXPECT_GT(relative_error(fp4.dw, wide.dw), 2 * relative_error(mxfp8.dw, wide.dw));
}

// The mean of the weight gradient over many roundings is that of the unrounded dy.
TEST(NarrowLinear, StochasticGradientsAreUnbiased) {
  const spec::Precision precision = spec::Precision::fp4;
  Layer layer(precision);
  layer.linear.narrow.stochastic = true;
  layer.linear.narrow.key = 99;
  std::vector<double> sum(static_cast<size_t>(layer.out * layer.in));
  constexpr int kTimes = 64;
  for (int i = 0; i < kTimes; ++i) {
    linear_backward_weight(test_stream(), layer.linear, layer.x, layer.dy, 0,
                           {.first_row = i * layer.rows});
    const std::vector<double> once = layer.dw.values();
    for (size_t j = 0; j < sum.size(); ++j) sum[j] += once[j] / kTimes;
  }
  const std::vector<double> x =
      quantized(spec::operand_kind(precision), layer.x, true).values();  // [in, rows]
  double off = 0, size = 0;
  for (int64_t o = 0; o < layer.out; ++o) {
    for (int64_t i = 0; i < layer.in; ++i) {
      double exact = 0;
      for (int64_t r = 0; r < layer.rows; ++r)
        exact += layer.dy.at(r, o) * x[static_cast<size_t>(i * layer.rows + r)];
      off += std::pow(sum[static_cast<size_t>(o * layer.in + i)] - exact, 2);
      size += exact * exact;
    }
  }
  // One rounding has an error of about 0.15; the mean of 64 an eighth of that.
  EXPECT_LT(std::sqrt(off / size), 0.03);
}

}  // namespace
}  // namespace tutti::model
