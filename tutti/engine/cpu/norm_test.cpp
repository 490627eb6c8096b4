// Shapes: N rows, H columns. References (engine/testing/norm_check.h) use the stored (rounded)
// operands.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tutti/engine/recorder.h"
#include "tutti/engine/testing/norm_check.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

using testing::close;
using testing::dot;
using testing::for_each_isa_and_dtype;
using testing::make_test_stream;
using testing::norm_gradients;
using testing::norm_reference;
using testing::NormGradients;
using testing::NormStatistics;
using testing::plus;
using testing::poisoned_matrix;
using testing::poisoned_vector;
using testing::random_matrix;
using testing::random_vector;
using testing::saved_statistics;
using testing::test_stream;
using testing::TestMatrix;
using testing::Values;

constexpr NormKind kNormKinds[] = {NormKind::layer, NormKind::rms};
constexpr int64_t kNormRows[] = {1, 3, 21};
constexpr int64_t kNormColumns[] = {1, 24, 101, 768};

// The numerical d sum(dy * y) / d parameter equals the reference's gradient: this checks the
// formulas that the kernels are tested against.
TEST(Norm, ReferenceGradientsEqualFiniteDifferences) {
  for (const NormKind kind : kNormKinds) {
    Values x = random_matrix(3, 7, DType::f32, 1).values();
    Values weight = random_vector(7, DType::f32, 2).values();
    Values bias = random_vector(7, DType::f32, 3).values();
    const Values dy = random_matrix(3, 7, DType::f32, 4).values();
    const NormGradients d = norm_gradients(kind, x, weight, dy);
    const auto check = [&](Values& parameter, const Values& gradient) {
      constexpr double kStep = 1e-5;
      for (size_t i = 0; i < parameter.size(); ++i) {
        const double before = parameter[i];
        parameter[i] = before + kStep;
        const double above = dot(dy, norm_reference(kind, x, weight, bias));
        parameter[i] = before - kStep;
        const double below = dot(dy, norm_reference(kind, x, weight, bias));
        parameter[i] = before;
        EXPECT_NEAR((above - below) / (2 * kStep), gradient[i], 1e-7);
      }
    };
    check(x, d.x);
    check(weight, d.weight);
    check(bias, d.bias);
  }
}

void expect_forward(NormKind kind, DType dtype, int64_t n, int64_t h, bool with_branch,
                    bool with_bias) {
  SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << " N " << n << " H " << h
                                    << " branch " << with_branch << " bias " << with_bias);
  const TestMatrix residual = random_matrix(n, h, DType::f32, 11, 2.0, 3);
  const TestMatrix branch = random_matrix(n, h, dtype, 12, 1.0, 5);
  const TestMatrix weight = random_vector(h, dtype, 13);
  const TestMatrix bias = random_vector(h, dtype, 14);
  TestMatrix sum = poisoned_matrix(n, h, DType::f32, 2);
  TestMatrix y = poisoned_matrix(n, h, dtype, 1);
  TestMatrix mean = poisoned_vector(n);
  TestMatrix rstd = poisoned_vector(n);

  NormForwardArgs args;
  args.kind = kind;
  args.residual_in = residual;
  if (with_branch) {
    args.branch = branch;
    args.residual_out = sum;
  }
  args.weight = weight;
  if (with_bias) args.bias = bias;
  args.y = y;
  if (kind == NormKind::layer) args.mean = mean;
  args.rstd = rstd;
  test_stream().ops().norm_forward(test_stream(), args);

  Values x = residual.values();
  if (with_branch) {
    x = plus(x, branch.values());
    EXPECT_TRUE(close(sum, x, 1e-6));
    x = sum.values();
  }
  EXPECT_TRUE(
      close(y, norm_reference(kind, x, weight.values(), with_bias ? bias.values() : Values())));
  const TestMatrix normalised = TestMatrix(n, h).assign(x);
  EXPECT_TRUE(
      close(rstd, saved_statistics(kind, normalised, &NormStatistics::rstd).values(), 3e-6));
  if (kind == NormKind::layer) {
    EXPECT_TRUE(
        close(mean, saved_statistics(kind, normalised, &NormStatistics::mean).values(), 1e-5));
  }

  // Bitwise equal in place (residual_out is residual_in) and without statistics.
  if (with_branch) {
    TestMatrix in_place = residual;
    TestMatrix y2 = poisoned_matrix(n, h, dtype, 1);
    args.residual_in = in_place;
    args.residual_out = in_place;
    args.y = y2;
    args.mean = {};
    args.rstd = {};
    test_stream().ops().norm_forward(test_stream(), args);
    EXPECT_EQ(in_place.values(), sum.values());
    EXPECT_TRUE(in_place.outside_untouched());
    EXPECT_TRUE(y2.same_bytes(y));
  }
}

TEST(Norm, ForwardEqualsReference) {
  for_each_isa_and_dtype([&](DType dtype) {
    for (const NormKind kind : kNormKinds) {
      for (const int64_t n : kNormRows) {
        for (const int64_t h : kNormColumns) {
          for (const bool branch : {false, true}) {
            expect_forward(kind, dtype, n, h, branch, kind == NormKind::layer);
          }
        }
      }
      expect_forward(kind, dtype, 3, 24, true, false);
    }
  });
}

// A large common offset must not cause cancellation in the variance.
TEST(Norm, VarianceSurvivesALargeMean) {
  TestMatrix x = random_matrix(2, 768, DType::f32, 5, 1.0);
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t j = 0; j < 768; ++j) x.set(r, j, x.at(r, j) + 1000);
  }
  const TestMatrix weight = testing::zero_vector(768).fill(1);
  TestMatrix y = poisoned_matrix(2, 768);
  NormForwardArgs args;
  args.residual_in = x;
  args.weight = weight;
  args.y = y;
  test_stream().ops().norm_forward(test_stream(), args);
  // x itself is only known to 6e-5 at 1000.
  EXPECT_TRUE(close(y, norm_reference(NormKind::layer, x.values(), weight.values(), {}), 2e-4));
}

void expect_backward_input(NormKind kind, DType dtype, int64_t n, int64_t h, bool accumulate,
                           bool with_branch) {
  SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << " N " << n << " H " << h
                                    << " accumulate " << accumulate << " branch " << with_branch);
  const TestMatrix x = random_matrix(n, h, DType::f32, 21, 2.0, 2);
  const TestMatrix dy = random_matrix(n, h, dtype, 22, 1.0, 4);
  const TestMatrix weight = random_vector(h, dtype, 23);
  const TestMatrix mean = saved_statistics(kind, x, &NormStatistics::mean);
  const TestMatrix rstd = saved_statistics(kind, x, &NormStatistics::rstd);
  TestMatrix d_residual = accumulate ? random_matrix(n, h, DType::f32, 24, 1.0, 1)
                                     : poisoned_matrix(n, h, DType::f32, 1);
  TestMatrix d_branch = poisoned_matrix(n, h, dtype, 3);
  const Values before = d_residual.values();

  NormBackwardInputArgs args;
  args.kind = kind;
  args.dy = dy;
  args.residual = x;
  args.weight = weight;
  if (kind == NormKind::layer) args.mean = mean;
  args.rstd = rstd;
  args.accumulate = accumulate;
  args.d_residual = d_residual;
  if (with_branch) args.d_branch = d_branch;
  test_stream().ops().norm_backward_input(test_stream(), args);

  Values expected = norm_gradients(kind, x.values(), weight.values(), dy.values()).x;
  // With one column the gradient through LayerNorm is exactly 0, so errors are relative to the
  // terms that cancel.
  const double tolerance = h == 1 ? 2e-3 : 2e-5;
  if (accumulate) expected = plus(expected, before);
  if (h == 1 && !accumulate) {
    for (int64_t r = 0; r < n; ++r) {
      EXPECT_NEAR(d_residual.at(r, 0), expected[static_cast<size_t>(r)], tolerance);
    }
  } else {
    EXPECT_TRUE(close(d_residual, expected, tolerance));
  }
  if (with_branch) {
    EXPECT_TRUE(close(d_branch, d_residual.values(), 4e-3));
  }
}

TEST(Norm, BackwardInputEqualsReference) {
  for_each_isa_and_dtype([&](DType dtype) {
    for (const NormKind kind : kNormKinds) {
      for (const int64_t n : kNormRows) {
        for (const int64_t h : kNormColumns) {
          expect_backward_input(kind, dtype, n, h, true, true);
          expect_backward_input(kind, dtype, n, h, false, true);
          expect_backward_input(kind, dtype, n, h, false, false);
        }
      }
    }
  });
}

void expect_backward_weight(NormKind kind, DType dtype, int64_t n, int64_t h, float beta,
                            bool with_bias) {
  SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << " N " << n << " H " << h
                                    << " beta " << beta << " bias " << with_bias);
  const TestMatrix x = random_matrix(n, h, DType::f32, 31, 2.0, 2);
  const TestMatrix dy = random_matrix(n, h, dtype, 32, 1.0, 4);
  const TestMatrix mean = saved_statistics(kind, x, &NormStatistics::mean);
  const TestMatrix rstd = saved_statistics(kind, x, &NormStatistics::rstd);
  TestMatrix d_weight = beta == 0 ? poisoned_vector(h) : random_vector(h, DType::f32, 33);
  TestMatrix d_bias = beta == 0 ? poisoned_vector(h) : random_vector(h, DType::f32, 34);
  NormGradients expected =
      norm_gradients(kind, x.values(), Values(static_cast<size_t>(h), 1.0), dy.values());
  if (beta == 1) {
    expected.weight = plus(expected.weight, d_weight.values());
    expected.bias = plus(expected.bias, d_bias.values());
  }

  NormBackwardWeightArgs args;
  args.kind = kind;
  args.dy = dy;
  args.residual = x;
  if (kind == NormKind::layer) args.mean = mean;
  args.rstd = rstd;
  args.beta = beta;
  args.d_weight = d_weight;
  if (with_bias) args.d_bias = d_bias;
  test_stream().ops().norm_backward_weight(test_stream(), args);

  const double tolerance = h == 1 ? 1e-3 : 2e-5;  // one column: x_hat of LayerNorm is only error
  if (h == 1) {
    EXPECT_NEAR(d_weight.at(0, 0), expected.weight[0], tolerance * static_cast<double>(n));
  } else {
    EXPECT_TRUE(close(d_weight, expected.weight, tolerance));
  }
  if (with_bias) {
    EXPECT_TRUE(close(d_bias, expected.bias, 2e-5));
  }
}

TEST(Norm, BackwardWeightEqualsReference) {
  for_each_isa_and_dtype([&](DType dtype) {
    for (const NormKind kind : kNormKinds) {
      for (const int64_t n : kNormRows) {
        for (const int64_t h : kNormColumns) {
          for (const float beta : {0.0F, 1.0F}) {
            expect_backward_weight(kind, dtype, n, h, beta, true);
          }
          expect_backward_weight(kind, dtype, n, h, 1.0F, false);
        }
      }
    }
  });
}

// Rows from one vector per thread of a block to too long for the registers of any block, and more
// rows than one block sums.
TEST(Norm, LongRowsAndManyRows) {
  for (const NormKind kind : kNormKinds) {
    for (const int64_t h : {1500, 5003, 12040, 20001}) {
      testing::for_each_dtype([&](DType dtype) {
        expect_forward(kind, dtype, 2, h, true, kind == NormKind::layer);
        expect_backward_input(kind, dtype, 2, h, true, true);
      });
    }
    expect_backward_weight(kind, DType::bf16, 1003, 24, 1.0F, kind == NormKind::layer);
  }
}

// Threads split the columns, so the sums are bitwise equal for any number of threads.
TEST(Norm, BackwardWeightDoesNotDependOnThreads) {
  const TestMatrix x = random_matrix(37, 300, DType::f32, 41);
  const TestMatrix dy = random_matrix(37, 300, DType::f32, 42);
  const TestMatrix mean = saved_statistics(NormKind::layer, x, &NormStatistics::mean);
  const TestMatrix rstd = saved_statistics(NormKind::layer, x, &NormStatistics::rstd);
  const auto run = [&](int threads) {
    TestMatrix d_weight = poisoned_vector(300);
    NormBackwardWeightArgs args;
    args.dy = dy;
    args.residual = x;
    args.mean = mean;
    args.rstd = rstd;
    args.beta = 0;
    args.d_weight = d_weight;
    const auto stream = make_test_stream(threads);
    stream->ops().norm_backward_weight(*stream, args);
    return d_weight;
  };
  EXPECT_TRUE(run(1).same_bytes(run(3)));
}

TEST(Norm, EmptyShapesDoNothing) {
  for (const auto& [n, h] : {std::pair<int64_t, int64_t>{0, 24}, {3, 0}, {0, 0}}) {
    TestMatrix rows = poisoned_matrix(n, h);
    TestMatrix columns = poisoned_vector(h);
    TestMatrix statistic = poisoned_vector(n);
    NormForwardArgs forward_args;
    forward_args.residual_in = rows;
    forward_args.weight = columns;
    forward_args.y = rows;
    forward_args.mean = statistic;
    forward_args.rstd = statistic;
    test_stream().ops().norm_forward(test_stream(), forward_args);
    NormBackwardInputArgs input_args;
    input_args.dy = rows;
    input_args.residual = rows;
    input_args.weight = columns;
    input_args.mean = statistic;
    input_args.rstd = statistic;
    input_args.d_residual = rows;
    test_stream().ops().norm_backward_input(test_stream(), input_args);
    NormBackwardWeightArgs weight_args;
    weight_args.dy = rows;
    weight_args.residual = rows;
    weight_args.mean = statistic;
    weight_args.rstd = statistic;
    weight_args.d_weight = columns;
    test_stream().ops().norm_backward_weight(test_stream(), weight_args);
    EXPECT_TRUE(columns.same_bytes(poisoned_vector(h)));
    EXPECT_TRUE(statistic.same_bytes(poisoned_vector(n)));
  }
}

TEST(Norm, RecordsTheOperation) {
  constexpr int64_t kN = 3;
  constexpr int64_t kH = 24;
  const TestMatrix residual = random_matrix(kN, kH);
  const TestMatrix branch = random_matrix(kN, kH, DType::bf16);
  const TestMatrix weight = random_vector(kH, DType::bf16);
  TestMatrix out = poisoned_matrix(kN, kH);
  TestMatrix y = poisoned_matrix(kN, kH, DType::bf16);
  TestMatrix mean = poisoned_vector(kN);
  TestMatrix rstd = poisoned_vector(kN);
  TestMatrix d_weight = testing::zero_vector(kH);

  Recorder recorder;
  const auto stream = make_test_stream(1);
  stream->set_recorder(&recorder);
  NormForwardArgs forward_args;
  forward_args.residual_in = residual;
  forward_args.branch = branch;
  forward_args.residual_out = out;
  forward_args.weight = weight;
  forward_args.bias = weight;
  forward_args.y = y;
  forward_args.mean = mean;
  forward_args.rstd = rstd;
  stream->ops().norm_forward(*stream, forward_args);
  NormBackwardInputArgs input_args;
  input_args.dy = y;
  input_args.residual = residual;
  input_args.weight = weight;
  input_args.mean = mean;
  input_args.rstd = rstd;
  input_args.d_residual = out;
  input_args.d_branch = branch;
  stream->ops().norm_backward_input(*stream, input_args);
  NormBackwardWeightArgs weight_args;
  weight_args.dy = y;
  weight_args.residual = residual;
  weight_args.mean = mean;
  weight_args.rstd = rstd;
  weight_args.d_weight = d_weight;
  stream->ops().norm_backward_weight(*stream, weight_args);

  const auto& records = recorder.records();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_STREQ(records[0].op, "norm_forward");
  EXPECT_STREQ(records[1].op, "norm_backward_input");
  EXPECT_STREQ(records[2].op, "norm_backward_weight");
  for (const OpRecord& record : records) {
    EXPECT_EQ(record.dims[0], kN);
    EXPECT_EQ(record.dims[1], kH);
    EXPECT_EQ(record.flops, 0);
    EXPECT_LE(record.begin_seconds, record.end_seconds);
  }
  // Per element of [N, H]: residual 4, branch 2, sum 4, y 2; weight and bias 2 per column; mean and
  // rstd 4 per row.
  EXPECT_EQ(records[0].bytes, kN * kH * 12 + kH * 4 + kN * 8);
  // dy 2, residual 4, d_residual 4 read and 4 written, d_branch 2.
  EXPECT_EQ(records[1].bytes, kN * kH * 16 + kH * 2 + kN * 8);
  EXPECT_EQ(records[2].bytes, kN * kH * 6 + kH * 8 + kN * 8);
}

}  // namespace
}  // namespace tutti::engine
