#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

using Values = std::vector<double>;

struct RouteShape {
  int64_t sequences, tokens, experts, k;
  int64_t rows() const { return sequences * tokens; }
};
const RouteShape kRouteShapes[] = {
    {1, 1, 1, 1}, {1, 5, 4, 2}, {3, 23, 8, 2}, {2, 67, 17, 5}, {5, 2, 3, 3}};

struct Routing {
  TestMatrix probabilities, lse, experts, weights;
  explicit Routing(const RouteShape& s)
      : probabilities(s.rows(), s.experts),
        lse(1, s.rows()),
        experts(s.rows(), s.k, DType::i32),
        weights(s.rows(), s.k) {}
};

void route(const TestMatrix& logits, Routing& out, const TestMatrix* bias = nullptr,
           bool renormalize = true) {
  RouteForwardArgs args;
  args.logits = logits;
  if (bias != nullptr) args.bias = *bias;
  args.probabilities = out.probabilities;
  args.lse = out.lse;
  args.experts = out.experts;
  args.weights = out.weights;
  args.renormalize = renormalize;
  test_stream().ops().route_forward(test_stream(), args);
}

// Softmax and log-sum-exp of one row in f64.
Values softmax(const double* x, int64_t count, double& lse) {
  const double highest = *std::max_element(x, x + count);
  Values p(x, x + count);
  double sum = 0;
  for (double& value : p) sum += value = std::exp(value - highest);
  for (double& value : p) value /= sum;
  lse = highest + std::log(sum);
  return p;
}

TEST(Route, ForwardEqualsTheReference) {
  for (const RouteShape& s : kRouteShapes) {
    for (const bool biased : {false, true}) {
      for (const DType bias_type : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(
            fmt::format("{} x {} rows, {} experts, k {}", s.sequences, s.tokens, s.experts, s.k));
        const TestMatrix logits = random_matrix(s.rows(), s.experts, DType::f32, 1, 1, 3);
        const TestMatrix bias = random_vector(s.experts, bias_type, 2, 0.2);
        Routing out(s);
        route(logits, out, biased ? &bias : nullptr);
        const Values x = logits.values();
        Values p, lse, weights, experts;
        for (int64_t n = 0; n < s.rows(); ++n) {
          double row_lse = 0;
          const Values row = softmax(x.data() + n * s.experts, s.experts, row_lse);
          p.insert(p.end(), row.begin(), row.end());
          lse.push_back(row_lse);
          std::vector<int64_t> order(row.size());
          std::iota(order.begin(), order.end(), 0);
          const auto score = [&](int64_t e) {
            return row[static_cast<size_t>(e)] + (biased ? bias.at(0, e) : 0);
          };
          std::stable_sort(order.begin(), order.end(),
                           [&](int64_t a, int64_t b) { return score(a) > score(b); });
          double sum = 0;
          for (int64_t i = 0; i < s.k; ++i) sum += row[static_cast<size_t>(order[i])];
          for (int64_t i = 0; i < s.k; ++i) {
            experts.push_back(static_cast<double>(order[i]));
            weights.push_back(row[static_cast<size_t>(order[i])] / sum);
          }
        }
        EXPECT_TRUE(close(out.probabilities, p));
        EXPECT_TRUE(close(out.lse, lse));
        EXPECT_EQ(out.experts.values(), experts);
        EXPECT_TRUE(close(out.weights, weights));
      }
    }
  }
}

TEST(Route, ProbabilitiesMayOverwriteLogits) {
  const RouteShape s = {2, 9, 7, 2};
  const TestMatrix logits = random_matrix(s.rows(), s.experts);
  Routing apart(s), same(s);
  route(logits, apart);
  same.probabilities = logits;
  route(same.probabilities, same);
  EXPECT_TRUE(apart.probabilities.same_bytes(same.probabilities));
  EXPECT_TRUE(apart.weights.same_bytes(same.weights));
}

TEST(Route, TiesGoToTheLowestIndex) {
  const RouteShape s = {1, 1, 5, 3};
  Routing out(s);
  TestMatrix logits(1, 5);
  logits.assign({1, 2, 1, 2, 1});
  route(logits, out);
  EXPECT_EQ(out.experts.values(), (Values{1, 3, 0}));
}

TEST(Route, NanChoosesEveryExpertAtMostOnce) {
  const RouteShape s = {1, 2, 4, 3};
  Routing out(s);
  TestMatrix logits(2, 4);
  logits.assign({NAN, NAN, NAN, NAN, 0, NAN, 2, 1});
  route(logits, out);
  for (int64_t n = 0; n < 2; ++n) {
    std::set<double> chosen;
    for (int64_t i = 0; i < 3; ++i) chosen.insert(out.experts.at(n, i));
    EXPECT_EQ(chosen.size(), 3U);
    EXPECT_GE(*chosen.begin(), 0);
    EXPECT_LT(*chosen.rbegin(), 4);
    EXPECT_TRUE(std::isnan(out.weights.at(n, 0)));  // propagates to the loss
  }
}

// Weights are the probabilities themselves; choices and all other results are unchanged.
TEST(Route, WithoutRenormalizationWeightsAreProbabilities) {
  for (const RouteShape& s : kRouteShapes) {
    const TestMatrix logits = random_matrix(s.rows(), s.experts);
    Routing divided(s), plain(s);
    route(logits, divided);
    route(logits, plain, nullptr, false);
    EXPECT_TRUE(plain.probabilities.same_bytes(divided.probabilities));
    EXPECT_TRUE(plain.experts.same_bytes(divided.experts));
    for (int64_t n = 0; n < s.rows(); ++n) {
      for (int64_t i = 0; i < s.k; ++i) {
        const auto chosen = static_cast<int64_t>(plain.experts.at(n, i));
        EXPECT_EQ(plain.weights.at(n, i), plain.probabilities.at(n, chosen));
      }
    }
  }
}

// Given choices get the weights of this softmax.
TEST(Route, ComputesWeightsOfGivenChoices) {
  const RouteShape s = {2, 9, 7, 2};
  const TestMatrix logits = random_matrix(s.rows(), s.experts);
  Routing made(s), given(s);
  route(logits, made);
  RouteForwardArgs args = {.logits = logits,
                           .probabilities = given.probabilities,
                           .lse = given.lse,
                           .experts = made.experts,
                           .weights = given.weights,
                           .given = true};
  test_stream().ops().route_forward(test_stream(), args);
  EXPECT_TRUE(given.weights.same_bytes(made.weights));
  TestMatrix others(s.rows(), s.k, DType::i32);
  for (int64_t n = 0; n < s.rows(); ++n) {
    others.set(n, 0, 3);
    others.set(n, 1, 6);
  }
  args.experts = others;
  test_stream().ops().route_forward(test_stream(), args);
  for (int64_t n = 0; n < s.rows(); ++n) {
    const double p = made.probabilities.at(n, 3), q = made.probabilities.at(n, 6);
    EXPECT_NEAR(given.weights.at(n, 0), p / (p + q), 1e-6);
    EXPECT_NEAR(given.weights.at(n, 1), q / (p + q), 1e-6);
  }
}

struct Backward {
  TestMatrix d_logits, load, sums;
};

// Counts the choices as assign_rows does.
TestMatrix counted(const RouteShape& s, const TestMatrix& experts) {
  TestMatrix counts = zero_matrix(s.sequences, s.experts, DType::i32);
  for (int64_t n = 0; n < s.rows(); ++n) {
    for (int64_t i = 0; i < s.k; ++i) {
      const auto e = static_cast<int64_t>(experts.at(n, i));
      counts.set(n / s.tokens, e, counts.at(n / s.tokens, e) + 1);
    }
  }
  return counts;
}

void backward(Stream& stream, const RouteShape& s, const Routing& forward,
              const TestMatrix& d_weights, float balance_scale, float z_scale, float beta,
              Backward& out, bool renormalize = true) {
  TestMatrix counts = counted(s, forward.experts);
  TestMatrix positions = zero_matrix(s.rows(), s.k, DType::i32);
  positions.set(s.rows() - 1, 0, -1);  // one dropped choice
  RouteBackwardArgs args;
  args.probabilities = forward.probabilities;
  args.lse = forward.lse;
  args.experts = forward.experts;
  args.weights = forward.weights;
  args.d_weights = d_weights;
  args.counts = counts;
  args.positions = positions;
  args.balance_scale = balance_scale;
  args.z_scale = z_scale;
  args.renormalize = renormalize;
  args.d_logits = out.d_logits;
  args.beta = beta;
  args.load = out.load;
  args.sums = out.sums;
  stream.ops().route_backward(stream, args);
}

// The two auxiliary losses in f64, choices fixed.
struct Losses {
  double balance = 0, z = 0;
};
Losses losses(const RouteShape& s, const Values& x, const TestMatrix& counts, Values& p) {
  Losses out;
  p.clear();
  for (int64_t n = 0; n < s.rows(); ++n) {
    double lse = 0;
    const Values row = softmax(x.data() + n * s.experts, s.experts, lse);
    p.insert(p.end(), row.begin(), row.end());
    out.z += lse * lse;
    for (int64_t e = 0; e < s.experts; ++e) {
      const double share = counts.at(n / s.tokens, e) / static_cast<double>(s.tokens);
      out.balance += static_cast<double>(s.experts) * share * row[static_cast<size_t>(e)] /
                     static_cast<double>(s.tokens);
    }
  }
  return out;
}

void expect_finite_difference(const RouteShape& s, bool renormalize) {
  for_each_dtype([&](DType dtype) {
    SCOPED_TRACE(fmt::format("{} x {} rows, {} experts, k {}, renormalize {}", s.sequences,
                             s.tokens, s.experts, s.k, renormalize));
    const TestMatrix logits = random_matrix(s.rows(), s.experts);
    const TestMatrix d_weights = random_matrix(s.rows(), s.k, DType::f32, 4, 1, 2);
    Routing forward(s);
    route(logits, forward, nullptr, renormalize);
    const TestMatrix counts = counted(s, forward.experts);
    constexpr float kBalance = 0.7F, kZ = 0.3F;
    Backward out = {poisoned_matrix(s.rows(), s.experts, dtype, 3), poisoned_vector(s.experts),
                    poisoned_vector(3)};
    backward(test_stream(), s, forward, d_weights, kBalance, kZ, 0, out, renormalize);

    Values p;
    const auto objective = [&](const Values& x) {
      const Losses aux = losses(s, x, counts, p);
      double sum = static_cast<double>(kBalance) * aux.balance + static_cast<double>(kZ) * aux.z;
      for (int64_t n = 0; n < s.rows(); ++n) {
        const auto chosen = [&](int64_t i) {
          return p[static_cast<size_t>(n * s.experts) +
                   static_cast<size_t>(forward.experts.at(n, i))];
        };
        double total = 0;
        for (int64_t i = 0; i < s.k; ++i) total += chosen(i);
        if (!renormalize) total = 1;
        for (int64_t i = 0; i < s.k; ++i) sum += d_weights.at(n, i) * chosen(i) / total;
      }
      return sum;
    };
    Values x = logits.values(), expected;
    for (double& value : x) {
      const double before = value;
      value = before + 1e-5;
      const double above = objective(x);
      value = before - 1e-5;
      expected.push_back((above - objective(x)) / 2e-5);
      value = before;
    }
    EXPECT_TRUE(close(out.d_logits, expected, dtype == DType::bf16 ? 6e-3 : 1e-4));

    const Losses aux = losses(s, x, counts, p);
    EXPECT_TRUE(close(out.sums, {aux.balance, aux.z, 1}));
    Values load(static_cast<size_t>(s.experts));
    for (int64_t b = 0; b < s.sequences; ++b) {
      for (int64_t e = 0; e < s.experts; ++e) load[static_cast<size_t>(e)] += counts.at(b, e);
    }
    EXPECT_EQ(out.load.values(), load);
    // Accumulates the same again.
    backward(test_stream(), s, forward, d_weights, kBalance, kZ, 1, out, renormalize);
    for (double& value : load) value *= 2;
    EXPECT_EQ(out.load.values(), load);
    EXPECT_TRUE(close(out.sums, {2 * aux.balance, 2 * aux.z, 2}));
  });
}

TEST(Route, BackwardMatchesFiniteDifferences) {
  for (const RouteShape& s : kRouteShapes) {
    for (const bool renormalize : {true, false}) expect_finite_difference(s, renormalize);
  }
}

// Rows of one or three sequences split across two ranks: each rank computes its rows' gradients,
// and the sums of the ranks add up to those of all rows.
TEST(Route, PartsOfSequencesSumToTheWhole) {
  for (const RouteShape& whole : {RouteShape{1, 10, 5, 2}, RouteShape{3, 6, 5, 2}}) {
    const int64_t half = whole.rows() / 2;
    const TestMatrix logits = random_matrix(whole.rows(), whole.experts);
    const TestMatrix d_weights = random_matrix(whole.rows(), whole.k, DType::f32, 4);
    Routing forward(whole);
    route(logits, forward);
    Backward all = {poisoned_matrix(whole.rows(), 5), poisoned_vector(5), poisoned_vector(3)};
    backward(test_stream(), whole, forward, d_weights, 0.7F, 0.3F, 0, all);
    const TestMatrix counts = counted(whole, forward.experts);
    Backward parts = {poisoned_matrix(whole.rows(), 5), poisoned_vector(5), poisoned_vector(3)};
    TestMatrix positions = zero_matrix(whole.rows(), whole.k, DType::i32);
    positions.set(whole.rows() - 1, 0, -1);
    for (const int64_t first : {int64_t{0}, half}) {
      const auto rows = [&](const TestMatrix& matrix) {
        return matrix.view().slice_rows(first, half);
      };
      test_stream().ops().route_backward(
          test_stream(), {.probabilities = rows(forward.probabilities),
                          .lse = vector(forward.lse.vec().as<float>() + first, DType::f32, half),
                          .experts = rows(forward.experts),
                          .weights = rows(forward.weights),
                          .d_weights = rows(d_weights),
                          .counts = counts,
                          .positions = rows(positions),
                          .sequence = whole.tokens,
                          .rows_each = whole.tokens,
                          .first_row = first,
                          .balance_scale = 0.7F,
                          .z_scale = 0.3F,
                          .d_logits = rows(parts.d_logits),
                          .beta = first == 0 ? 0.0F : 1.0F,
                          .load = parts.load,
                          .sums = parts.sums});
    }
    EXPECT_TRUE(close(parts.d_logits, all.d_logits.values()));
    EXPECT_EQ(parts.load.values(), all.load.values());
    EXPECT_TRUE(close(parts.sums, all.sums.values()));
  }
}

TEST(Route, BackwardDoesNotDependOnThreads) {
  const RouteShape s = {3, 131, 8, 2};
  const TestMatrix logits = random_matrix(s.rows(), s.experts);
  const TestMatrix d_weights = random_matrix(s.rows(), s.k, DType::f32, 4);
  Routing forward(s);
  route(logits, forward);
  std::vector<Backward> runs;
  for (const int threads : {1, 2}) {
    const auto stream = make_test_stream(threads);
    runs.push_back(
        {poisoned_matrix(s.rows(), s.experts), poisoned_vector(s.experts), poisoned_vector(3)});
    backward(*stream, s, forward, d_weights, 0.1F, 0.2F, 0, runs.back());
  }
  EXPECT_TRUE(runs[0].d_logits.same_bytes(runs[1].d_logits));
  EXPECT_TRUE(runs[0].sums.same_bytes(runs[1].sums));
}

TEST(Route, SelectionBiasMovesTowardsTheMeanLoad) {
  TestMatrix load(1, 4), bias(1, 4), weights(1, 4, DType::bf16);
  load.assign({10, 0, 5, 5});
  bias.assign({0.5, 0.5, 0.5, -1});
  test_stream().ops().update_selection_bias(
      test_stream(), {.load = load, .bias = bias, .weights = weights, .rate = 0.125F});
  EXPECT_EQ(bias.values(), (Values{0.375, 0.625, 0.5, -1}));
  EXPECT_EQ(weights.values(), bias.values());
  // A subset of the experts.
  TestMatrix some(1, 2);
  some.assign({0.5, 0.5});
  test_stream().ops().update_selection_bias(
      test_stream(), {.load = load, .first = 1, .bias = some, .rate = 0.125F});
  EXPECT_EQ(some.values(), (Values{0.625, 0.5}));
}

TEST(Route, SelectionBiasMovesOnlyIfTheUpdateApplies) {
  for (const int64_t experts : {1, 5, 33, 1031}) {
    const TestMatrix load = random_vector(experts);
    const int64_t first = experts / 3;
    const int64_t count = experts - first;
    const TestMatrix before = random_vector(count, DType::f32, 2);
    const auto moved = [&](const UpdateScalars* scalars) {
      std::pair out(before, zero_vector(count, DType::bf16));
      test_stream().ops().update_selection_bias(test_stream(), {.load = load,
                                                                .first = first,
                                                                .bias = out.first,
                                                                .weights = out.second,
                                                                .rate = 0.125F,
                                                                .scalars = scalars});
      test_stream().synchronize();
      return out;
    };
    UpdateScalars update = {};
    TestValue<UpdateScalars> skipped(update);
    update.apply = 1;
    TestValue<UpdateScalars> applied(update);
    const auto expected = moved(nullptr), found = moved(applied.data());
    EXPECT_TRUE(found.first.same_bytes(expected.first));
    EXPECT_TRUE(found.second.same_bytes(expected.second));
    EXPECT_EQ(expected.first.same_bytes(before), experts == 1);  // a single one has the mean load
    const auto left = moved(skipped.data());
    EXPECT_TRUE(left.first.same_bytes(before));
    EXPECT_TRUE(left.second.same_bytes(zero_vector(count, DType::bf16)));
  }
}

}  // namespace
}  // namespace tutti::engine::testing
