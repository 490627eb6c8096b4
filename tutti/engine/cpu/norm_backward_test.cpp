// Gradients of a norm's input and weights from one call, against two calls and the reference
// (engine/testing/norm_check.h, which norm_test.cpp checks against finite differences).
#include <gtest/gtest.h>

#include "tutti/engine/recorder.h"
#include "tutti/engine/testing/norm_check.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

constexpr NormKind kKindsOfNorm[] = {NormKind::layer, NormKind::rms};

struct NormOperands {
  TestMatrix x, dy, weight, mean, rstd;

  NormOperands(NormKind kind, DType dtype, int64_t n, int64_t h)
      : x(random_matrix(n, h, DType::f32, 21, 2.0, 2)),
        dy(random_matrix(n, h, dtype, 22, 1.0, 4)),
        weight(random_vector(h, dtype, 23)),
        mean(saved_statistics(kind, x, &NormStatistics::mean)),
        rstd(saved_statistics(kind, x, &NormStatistics::rstd)) {}

  NormBackwardInputArgs args(NormKind kind) const {
    NormBackwardInputArgs out;
    out.kind = kind;
    out.dy = dy;
    out.residual = x;
    out.weight = weight;
    if (kind == NormKind::layer) out.mean = mean;
    out.rstd = rstd;
    return out;
  }
};

void expect_both(NormKind kind, DType dtype, int64_t n, int64_t h, float beta, bool with_bias) {
  SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << " N " << n << " H " << h
                                    << " beta " << beta << " bias " << with_bias);
  const NormOperands of(kind, dtype, n, h);
  const TestMatrix before = random_matrix(n, h, DType::f32, 24, 1.0, 1);
  TestMatrix d_residual = before, alone = before;
  TestMatrix d_branch = poisoned_matrix(n, h, dtype, 3), branch_alone = d_branch;
  NormBackwardInputArgs args = of.args(kind);
  args.d_residual = alone;
  args.d_branch = branch_alone;
  test_stream().ops().norm_backward_input(test_stream(), args);

  TestMatrix d_weight = beta == 0 ? poisoned_vector(h) : random_vector(h, DType::f32, 33);
  TestMatrix d_bias = beta == 0 ? poisoned_vector(h) : random_vector(h, DType::f32, 34);
  NormGradients expected = norm_gradients(kind, of.x.values(), of.weight.values(), of.dy.values());
  if (beta == 1) {
    expected.weight = plus(expected.weight, d_weight.values());
    expected.bias = plus(expected.bias, d_bias.values());
  }
  args.d_residual = d_residual;
  args.d_branch = d_branch;
  args.beta = beta;
  args.d_weight = d_weight;
  if (with_bias) args.d_bias = d_bias;
  test_stream().ops().norm_backward_input(test_stream(), args);

  EXPECT_TRUE(d_residual.same_bytes(alone));
  EXPECT_TRUE(d_branch.same_bytes(branch_alone));
  // With one column, x_hat of LayerNorm is only rounding error.
  if (h == 1) {
    EXPECT_NEAR(d_weight.at(0, 0), expected.weight[0], 1e-3 * static_cast<double>(n));
  } else {
    EXPECT_TRUE(close(d_weight, expected.weight, 2e-5));
  }
  if (with_bias) {
    EXPECT_TRUE(close(d_bias, expected.bias, 2e-5));
  }
}

TEST(NormBackward, FusedEqualsSeparateCalls) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const NormKind kind : kKindsOfNorm) {
      const bool layer = kind == NormKind::layer;
      for (const int64_t n : {1, 3, 21}) {
        for (const int64_t h : {1, 24, 101, 768}) {
          expect_both(kind, dtype, n, h, 0, layer);
          expect_both(kind, dtype, n, h, 1, layer);
        }
      }
      expect_both(kind, dtype, 3, 24, 1, false);
    }
  });
}

// More rows than a device has blocks for, and rows too long to keep their sums in registers.
TEST(NormBackward, ManyRowsAndLongRows) {
  for (const NormKind kind : kKindsOfNorm) {
    const bool layer = kind == NormKind::layer;
    expect_both(kind, DType::bf16, 1103, 24, 1, layer);
    for (const int64_t h : {1500, 5003, 8200, 20001})
      expect_both(kind, DType::bf16, 2, h, 0, layer);
  }
}

// Repeated calls give the same bits.
TEST(NormBackward, SumsAreReproducible) {
  const NormOperands of(NormKind::layer, DType::bf16, 1103, 20);
  const auto run = [&] {
    TestMatrix d_residual = poisoned_matrix(1103, 20);
    TestMatrix d_weight = poisoned_vector(20);
    NormBackwardInputArgs args = of.args(NormKind::layer);
    args.accumulate = false;
    args.d_residual = d_residual;
    args.beta = 0;
    args.d_weight = d_weight;
    test_stream().ops().norm_backward_input(test_stream(), args);
    return d_weight;
  };
  EXPECT_TRUE(run().same_bytes(run()));
}

TEST(NormBackward, EmptyShapesAndRecord) {
  Recorder recorder;
  const auto stream = make_test_stream(1);
  stream->set_recorder(&recorder);
  for (const int64_t n : {0, 3}) {
    const NormOperands of(NormKind::layer, DType::bf16, n, 24);
    TestMatrix d_residual = poisoned_matrix(n, 24);
    TestMatrix sums = random_vector(24, DType::f32, 5);
    const TestMatrix before = sums;
    NormBackwardInputArgs args = of.args(NormKind::layer);
    args.accumulate = false;
    args.d_residual = d_residual;
    args.beta = n == 0 ? 0 : 1;
    args.d_weight = sums;
    stream->ops().norm_backward_input(*stream, args);
    stream->synchronize();
    EXPECT_EQ(sums.same_bytes(before), n == 0);
  }
  const OpRecord& record = recorder.records().at(1);
  EXPECT_STREQ(record.op, "norm_backward_input");
  // dy 2, residual 4, d_residual 4 written; weight 2 per column, mean and rstd 4 per row; sums read
  // and written.
  EXPECT_EQ(record.bytes, 3 * 24 * 10 + 24 * 2 + 3 * 8 + 24 * 8);
}

// An offset equals weights that include it.
TEST(NormBackward, OffsetIsAddedToTheWeights) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: offsets are CPU only";
  for_each_isa_and_dtype([](DType dtype) {
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      for (const auto& [n, h] : {std::pair<int64_t, int64_t>{1, 24}, {3, 101}, {21, 7}}) {
        SCOPED_TRACE(fmt::format("kind {} N {} H {}", static_cast<int>(kind), n, h));
        const NormOperands of(kind, dtype, n, h);
        Values added = of.weight.values();
        for (double& w : added) w += 1;

        TestMatrix y = poisoned_matrix(n, h, dtype, 1);
        NormForwardArgs forward;
        forward.kind = kind;
        forward.residual_in = of.x;
        forward.weight = of.weight;
        forward.y = y;
        forward.offset = 1;
        test_stream().ops().norm_forward(test_stream(), forward);
        EXPECT_TRUE(close(y, norm_reference(kind, of.x.values(), added, {})));

        TestMatrix d_residual = poisoned_matrix(n, h, DType::f32, 1);
        NormBackwardInputArgs backward = of.args(kind);
        backward.accumulate = false;
        backward.d_residual = d_residual;
        backward.offset = 1;
        test_stream().ops().norm_backward_input(test_stream(), backward);
        EXPECT_TRUE(
            close(d_residual, norm_gradients(kind, of.x.values(), added, of.dy.values()).x, 2e-5));
      }
    }
  });
}

}  // namespace
}  // namespace tutti::engine::testing
