// Routers of the DeepSeek family: sigmoid scores, groups of experts, a factor of the weights,
// against plain references in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

using Row = std::vector<double>;

struct Router {
  int64_t sequences, tokens, experts, k;
  RouterGroups groups;
  RouterScores scores;
  float factor;
  bool renormalize;
  int64_t rows() const { return sequences * tokens; }
};
const Router kRouters[] = {
    {1, 5, 6, 2, {3, 1, 1}, RouterScores::softmax, 16, false},
    {2, 13, 12, 3, {4, 2, 1}, RouterScores::softmax, 1, false},
    {2, 31, 15, 4, {5, 3, 2}, RouterScores::sigmoid, 2.5, true},
    {1, 7, 8, 2, {8, 3, 1}, RouterScores::sigmoid, 1, false},
    {3, 11, 7, 3, {}, RouterScores::sigmoid, 0.5, true},
    {1, 1, 4, 4, {2, 2, 2}, RouterScores::sigmoid, 1, true},
};

struct Choices {
  TestMatrix probabilities, lse, experts, weights;
  explicit Choices(const Router& r)
      : probabilities(r.rows(), r.experts),
        lse(1, r.rows()),
        experts(r.rows(), r.k, DType::i32),
        weights(r.rows(), r.k) {}
};

void choose(const Router& r, const TestMatrix& logits, const TestMatrix& bias, Choices& out) {
  test_stream().ops().route_forward(test_stream(), {.logits = logits,
                                                    .bias = bias,
                                                    .probabilities = out.probabilities,
                                                    .lse = out.lse,
                                                    .experts = out.experts,
                                                    .weights = out.weights,
                                                    .renormalize = r.renormalize,
                                                    .scores = r.scores,
                                                    .groups = r.groups,
                                                    .factor = r.factor});
}

Row scores_of(const Router& r, const double* x) {
  Row p(x, x + r.experts);
  double sum = 0;
  for (double& value : p) {
    value = r.scores == RouterScores::sigmoid ? 1 / (1 + std::exp(-value)) : std::exp(value);
    sum += value;
  }
  if (r.scores == RouterScores::softmax) {
    for (double& value : p) value /= sum;
  }
  return p;
}

std::vector<int64_t> descending(const Row& values) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  return order;
}

class RouterOfDeepSeek : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_cpu()) GTEST_SKIP() << "skipped: these routers are the CPU's";
  }
};

TEST_F(RouterOfDeepSeek, ChoosesWithinTheBestGroups) {
  for (const Router& r : kRouters) {
    SCOPED_TRACE(
        fmt::format("{} experts, {} of {} groups", r.experts, r.groups.chosen, r.groups.count));
    const TestMatrix logits = random_matrix(r.rows(), r.experts, DType::f32, 1, 1.5);
    const TestMatrix bias = random_vector(r.experts, DType::f32, 2, 0.2);
    Choices out(r);
    choose(r, logits, bias, out);
    const Row x = logits.values();
    const int64_t width = r.experts / r.groups.count;
    Row experts, weights, probabilities;
    for (int64_t n = 0; n < r.rows(); ++n) {
      const Row p = scores_of(r, x.data() + n * r.experts);
      probabilities.insert(probabilities.end(), p.begin(), p.end());
      Row biased = p;
      for (int64_t e = 0; e < r.experts; ++e) biased[static_cast<size_t>(e)] += bias.at(0, e);
      Row marks;
      for (int64_t g = 0; g < r.groups.count; ++g) {
        Row in(biased.begin() + g * width, biased.begin() + (g + 1) * width);
        std::sort(in.rbegin(), in.rend());
        marks.push_back(std::accumulate(in.begin(), in.begin() + r.groups.best, 0.0));
      }
      std::vector<int64_t> open = descending(marks);
      open.resize(static_cast<size_t>(r.groups.chosen));
      double sum = 0;
      std::vector<int64_t> chosen;
      for (const int64_t e : descending(biased)) {
        if (std::find(open.begin(), open.end(), e / width) == open.end()) continue;
        if (static_cast<int64_t>(chosen.size()) < r.k) chosen.push_back(e);
      }
      for (const int64_t e : chosen) sum += p[static_cast<size_t>(e)];
      for (const int64_t e : chosen) {
        experts.push_back(static_cast<double>(e));
        weights.push_back(static_cast<double>(r.factor) * p[static_cast<size_t>(e)] /
                          (r.renormalize ? sum : 1));
      }
    }
    EXPECT_EQ(out.experts.values(), experts);
    EXPECT_TRUE(close(out.weights, weights));
    EXPECT_TRUE(close(out.probabilities, probabilities));
  }
}

// Without the limit other experts are chosen: the groups are not for nothing.
TEST_F(RouterOfDeepSeek, GroupsChangeWhatIsChosen) {
  for (Router r : {kRouters[0], kRouters[1], kRouters[2]}) {
    const TestMatrix logits = random_matrix(r.rows(), r.experts, DType::f32, 1, 1.5);
    const TestMatrix bias = zero_vector(r.experts);
    Choices limited(r), free(r);
    choose(r, logits, bias, limited);
    r.groups = {};
    choose(r, logits, bias, free);
    EXPECT_FALSE(limited.experts.same_bytes(free.experts));
  }
}

// Equal scores: the lowest numbers, each once. NaN: each once.
TEST_F(RouterOfDeepSeek, TiesAndNaN) {
  const Router r = {1, 2, 8, 3, {4, 2, 2}, RouterScores::sigmoid, 1, true};
  TestMatrix logits = zero_matrix(2, 8);
  for (int64_t e = 0; e < 8; ++e) logits.set(1, e, std::nan(""));
  Choices out(r);
  choose(r, logits, zero_vector(8), out);
  EXPECT_EQ(out.experts.at(0, 0), 0);
  EXPECT_EQ(out.experts.at(0, 1), 1);
  EXPECT_EQ(out.experts.at(0, 2), 2);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < i; ++j) EXPECT_NE(out.experts.at(1, i), out.experts.at(1, j));
  }
}

// Sigmoids that are all 0 in f32: no expert has a weight, and nothing divides by their sum.
TEST_F(RouterOfDeepSeek, ScoresThatAreAllZeroGiveNoNaN) {
  const Router r = {1, 3, 6, 2, {3, 2, 1}, RouterScores::sigmoid, 2.5, true};
  TestMatrix logits = zero_matrix(r.rows(), r.experts);
  for (int64_t e = 0; e < r.experts; ++e) {
    for (int64_t n = 0; n < r.rows(); ++n) logits.set(n, e, -200);
  }
  Choices forward(r);
  choose(r, logits, zero_vector(r.experts), forward);
  EXPECT_EQ(forward.weights.values(), Row(static_cast<size_t>(r.rows() * r.k), 0.0));
  TestMatrix counts = zero_matrix(1, r.experts, DType::i32);
  for (int64_t e = 0; e < r.experts; ++e) counts.set(0, e, 1);
  TestMatrix d_logits = poisoned_matrix(r.rows(), r.experts, DType::f32, 3);
  TestMatrix load = poisoned_vector(r.experts), sums = poisoned_vector(3);
  test_stream().ops().route_backward(test_stream(),
                                     {.probabilities = forward.probabilities,
                                      .lse = forward.lse,
                                      .experts = forward.experts,
                                      .weights = forward.weights,
                                      .d_weights = random_matrix(r.rows(), r.k, DType::f32, 4),
                                      .counts = counts,
                                      .positions = zero_matrix(r.rows(), r.k, DType::i32),
                                      .balance_scale = 0.7F,
                                      .renormalize = true,
                                      .scores = r.scores,
                                      .factor = r.factor,
                                      .d_logits = d_logits,
                                      .beta = 0,
                                      .load = load,
                                      .sums = sums});
  EXPECT_EQ(d_logits.values(), Row(static_cast<size_t>(r.rows() * r.experts), 0.0));
  EXPECT_EQ(sums.at(0, 0), 0);
}

TEST_F(RouterOfDeepSeek, BackwardIsTheFiniteDifference) {
  constexpr float kBalance = 0.7F;
  for (const Router& r : kRouters) {
    for_each_dtype([&](DType dtype) {
      SCOPED_TRACE(fmt::format("{} experts, k {}, renormalize {}", r.experts, r.k, r.renormalize));
      const TestMatrix logits = random_matrix(r.rows(), r.experts);
      const TestMatrix d_weights = random_matrix(r.rows(), r.k, DType::f32, 4);
      Choices forward(r);
      choose(r, logits, zero_vector(r.experts), forward);
      TestMatrix counts = zero_matrix(r.sequences, r.experts, DType::i32);
      for (int64_t n = 0; n < r.rows(); ++n) {
        for (int64_t i = 0; i < r.k; ++i) {
          const auto e = static_cast<int64_t>(forward.experts.at(n, i));
          counts.set(n / r.tokens, e, counts.at(n / r.tokens, e) + 1);
        }
      }
      TestMatrix d_logits = poisoned_matrix(r.rows(), r.experts, dtype, 3);
      TestMatrix load = poisoned_vector(r.experts), sums = poisoned_vector(3);
      const TestMatrix positions = zero_matrix(r.rows(), r.k, DType::i32);
      test_stream().ops().route_backward(test_stream(), {.probabilities = forward.probabilities,
                                                         .lse = forward.lse,
                                                         .experts = forward.experts,
                                                         .weights = forward.weights,
                                                         .d_weights = d_weights,
                                                         .counts = counts,
                                                         .positions = positions,
                                                         .balance_scale = kBalance,
                                                         .renormalize = r.renormalize,
                                                         .scores = r.scores,
                                                         .factor = r.factor,
                                                         .d_logits = d_logits,
                                                         .beta = 0,
                                                         .load = load,
                                                         .sums = sums});
      double balance = 0;
      const auto objective = [&](const Row& x) {
        double sum = 0;
        balance = 0;
        for (int64_t n = 0; n < r.rows(); ++n) {
          const Row p = scores_of(r, x.data() + n * r.experts);
          const double all = std::accumulate(p.begin(), p.end(), 0.0);
          for (int64_t e = 0; e < r.experts; ++e) {
            const double share = counts.at(n / r.tokens, e) / static_cast<double>(r.tokens);
            balance += static_cast<double>(r.experts) * share * p[static_cast<size_t>(e)] / all /
                       static_cast<double>(r.tokens);
          }
          double total = 0;
          const auto chosen = [&](int64_t i) {
            return p[static_cast<size_t>(forward.experts.at(n, i))];
          };
          for (int64_t i = 0; i < r.k; ++i) total += chosen(i);
          for (int64_t i = 0; i < r.k; ++i) {
            sum += d_weights.at(n, i) * static_cast<double>(r.factor) * chosen(i) /
                   (r.renormalize ? total : 1);
          }
        }
        return sum + static_cast<double>(kBalance) * balance;
      };
      Row x = logits.values(), expected;
      for (double& value : x) {
        const double before = value;
        value = before + 1e-5;
        const double above = objective(x);
        value = before - 1e-5;
        expected.push_back((above - objective(x)) / 2e-5);
        value = before;
      }
      EXPECT_TRUE(close(d_logits, expected, dtype == DType::bf16 ? 6e-3 : 1e-4));
      objective(x);
      EXPECT_NEAR(sums.at(0, 0), balance, 1e-4 * balance);
    });
  }
}

}  // namespace
}  // namespace tutti::engine::testing
