// Attention with a sink against an f64 softmax with one more column, forward and backward.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

using testing::close;
using testing::for_each_dtype;
using testing::on_cpu;
using testing::poisoned_matrix;
using testing::poisoned_vector;
using testing::random_matrix;
using testing::random_vector;
using testing::test_stream;
using testing::TestMatrix;
using Values = std::vector<double>;

struct SinkShape {
  int64_t batch, tokens, heads, kv_heads, head_dim;
  int64_t rows() const { return batch * tokens; }
  int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
};
const SinkShape kSinkShapes[] = {{1, 1, 1, 1, 2}, {2, 7, 4, 2, 6}, {1, 37, 3, 1, 8}};

// sum of out * d_out, causal, by the definition.
double sink_objective(const SinkShape& s, const Values& qkv, const Values& sinks,
                      const Values& d_out, Values* out = nullptr, Values* lse = nullptr) {
  double sum = 0;
  const auto at = [&](int64_t row, int64_t column) {
    return qkv[static_cast<size_t>(row * s.width() + column)];
  };
  if (out != nullptr) out->assign(static_cast<size_t>(s.rows() * s.heads * s.head_dim), 0);
  if (lse != nullptr) lse->assign(static_cast<size_t>(s.rows() * s.heads), 0);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t a = 0; a < s.heads; ++a) {
      const int64_t key = (s.heads + a / (s.heads / s.kv_heads)) * s.head_dim;
      const int64_t value = key + s.kv_heads * s.head_dim;
      for (int64_t t = 0; t < s.tokens; ++t) {
        const int64_t row = b * s.tokens + t;
        Values weights;
        double total = std::exp(sinks[static_cast<size_t>(a)]);
        for (int64_t i = 0; i <= t; ++i) {
          double score = 0;
          for (int64_t d = 0; d < s.head_dim; ++d) {
            score += at(row, a * s.head_dim + d) * at(b * s.tokens + i, key + d);
          }
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s.head_dim))));
          total += weights.back();
        }
        if (lse != nullptr) {
          (*lse)[static_cast<size_t>((b * s.heads + a) * s.tokens + t)] = std::log(total);
        }
        for (int64_t d = 0; d < s.head_dim; ++d) {
          double y = 0;
          for (int64_t i = 0; i <= t; ++i) {
            y += weights[static_cast<size_t>(i)] / total * at(b * s.tokens + i, value + d);
          }
          const auto index = static_cast<size_t>((row * s.heads + a) * s.head_dim + d);
          if (out != nullptr) (*out)[index] = y;
          sum += y * d_out[index];
        }
      }
    }
  }
  return sum;
}

Values sink_slopes(Values x, const std::function<double(const Values&)>& f) {
  Values out;
  for (double& value : x) {
    const double before = value;
    value = before + 1e-5;
    const double above = f(x);
    value = before - 1e-5;
    out.push_back((above - f(x)) / 2e-5);
    value = before;
  }
  return out;
}

class AttentionSink : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_cpu()) GTEST_SKIP() << "skipped: CPU-only operation";
  }
};

TEST_F(AttentionSink, EqualsOneMoreColumnOfTheSoftmax) {
  for (const SinkShape& s : kSinkShapes) {
    for_each_dtype([&](DType dtype) {
      SCOPED_TRACE(fmt::format("{} x {}, {} heads", s.batch, s.tokens, s.heads));
      Stream& stream = test_stream();
      const OpTable& ops = stream.ops();
      const int64_t width = s.heads * s.head_dim;
      const TestMatrix qkv = random_matrix(s.rows(), s.width(), dtype, 1, 1.0, 3);
      const TestMatrix d_out = random_matrix(s.rows(), width, dtype, 2);
      const TestMatrix sinks = random_vector(s.heads, dtype, 3, 2.0);
      TestMatrix out = poisoned_matrix(s.rows(), width, dtype, 3);
      TestMatrix lse = poisoned_vector(s.rows() * s.heads);
      TestMatrix delta = poisoned_vector(s.rows() * s.heads);
      TestMatrix d_qkv = poisoned_matrix(s.rows(), s.width(), dtype, 3);
      TestMatrix d_sinks = poisoned_vector(s.heads);
      ops.attention_forward(stream, {.batch = s.batch,
                                     .sequence = s.tokens,
                                     .heads = s.heads,
                                     .kv_heads = s.kv_heads,
                                     .head_dim = s.head_dim,
                                     .qkv = qkv,
                                     .out = out,
                                     .lse = lse.vec()});
      ops.attention_sink_forward(stream, {.batch = s.batch,
                                          .rows = s.tokens,
                                          .heads = s.heads,
                                          .head_dim = s.head_dim,
                                          .sinks = sinks.vec(),
                                          .out = out,
                                          .lse = lse.vec()});
      Values want_out, want_lse;
      sink_objective(s, qkv.values(), sinks.values(), d_out.values(), &want_out, &want_lse);
      const double tolerance = dtype == DType::bf16 ? 2e-2 : 1e-5;
      EXPECT_TRUE(close(out, want_out, tolerance));
      EXPECT_TRUE(close(lse, want_lse, tolerance));

      ops.attention_backward(stream, {.batch = s.batch,
                                      .sequence = s.tokens,
                                      .heads = s.heads,
                                      .kv_heads = s.kv_heads,
                                      .head_dim = s.head_dim,
                                      .qkv = qkv,
                                      .out = out,
                                      .d_out = d_out,
                                      .lse = lse.vec(),
                                      .delta = delta.vec(),
                                      .d_qkv = d_qkv});
      AttentionSinkBackwardArgs backward = {.batch = s.batch,
                                            .rows = s.tokens,
                                            .heads = s.heads,
                                            .sinks = sinks.vec(),
                                            .lse = lse.vec(),
                                            .delta = delta.vec(),
                                            .beta = 0,
                                            .d_sinks = d_sinks.vec()};
      ops.attention_sink_backward(stream, backward);
      const Values d_want = sink_slopes(sinks.values(), [&](const Values& x) {
        return sink_objective(s, qkv.values(), x, d_out.values());
      });
      const double slope_tolerance = dtype == DType::bf16 ? 5e-2 : 1e-4;
      EXPECT_TRUE(close(d_sinks, d_want, slope_tolerance));
      EXPECT_TRUE(close(d_qkv,
                        sink_slopes(qkv.values(),
                                    [&](const Values& x) {
                                      return sink_objective(s, x, sinks.values(), d_out.values());
                                    }),
                        slope_tolerance));
      backward.beta = 1;  // adds the same gradient again
      ops.attention_sink_backward(stream, backward);
      Values twice = d_want;
      for (double& value : twice) value *= 2;
      EXPECT_TRUE(close(d_sinks, twice, slope_tolerance));
    });
  }
}

// A sink far below all scores changes nothing; one far above takes all the weight.
TEST_F(AttentionSink, ExtremeSinksTakeNothingOrAll) {
  TestMatrix out = random_matrix(3, 4, DType::f32, 1);
  const TestMatrix before = out;
  TestMatrix lse = random_vector(6);
  TestMatrix sinks(1, 2);
  sinks.assign({-1e4, 1e4});
  test_stream().ops().attention_sink_forward(test_stream(), {.batch = 1,
                                                             .rows = 3,
                                                             .heads = 2,
                                                             .head_dim = 2,
                                                             .sinks = sinks.vec(),
                                                             .out = out,
                                                             .lse = lse.vec()});
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t j = 0; j < 2; ++j) {
      EXPECT_EQ(out.at(r, j), before.at(r, j));
      EXPECT_EQ(out.at(r, 2 + j), 0);
    }
    EXPECT_EQ(lse.at(0, 3 + r), 1e4);
  }
}

}  // namespace
}  // namespace tutti::engine
