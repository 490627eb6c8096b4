#include "tutti/endpoint/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tutti/base/error.h"
#include "tutti/base/rng.h"

namespace tutti::endpoint {
namespace {

using Logits = std::vector<float>;

// How often each token comes in `count` draws that know nothing of each other.
std::map<int32_t, double> shares(const SamplingParams& base, const Logits& logits,
                                 int count = 4000) {
  std::map<int32_t, double> out;
  for (int i = 0; i < count; ++i) {
    SamplingParams params = base;
    params.seed = static_cast<uint64_t>(i);
    out[Sampler(params, {}).next(logits).token] += 1.0 / count;
  }
  return out;
}

Logits of_probabilities(const std::vector<double>& probabilities) {
  Logits out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

TEST(Sampling, FollowsTheProbabilities) {
  const Logits logits = of_probabilities({0.5, 0.1, 0.3, 0.1});
  auto found = shares({}, logits);
  EXPECT_NEAR(found[0], 0.5, 0.03);
  EXPECT_NEAR(found[1], 0.1, 0.02);
  EXPECT_NEAR(found[2], 0.3, 0.03);
  SamplingParams params;
  params.temperature = 0.5;  // squares: 25, 1, 9, 1 of 36
  found = shares(params, logits);
  EXPECT_NEAR(found[0], 25.0 / 36, 0.03);
  EXPECT_NEAR(found[2], 9.0 / 36, 0.03);
}

TEST(Sampling, GreedyTakesTheFirstOfTheLargest) {
  SamplingParams params;
  params.temperature = 0;
  EXPECT_EQ(Sampler(params, {}).next(Logits{0.1F, 3, 2.9F, 3}).token, 1);
}

TEST(Sampling, CutsTheTail) {
  const Logits logits = of_probabilities({0.05, 0.4, 0.15, 0.3, 0.1});
  SamplingParams top_k;
  top_k.top_k = 2;
  auto found = shares(top_k, logits);
  EXPECT_EQ(found.size(), 2U);
  EXPECT_NEAR(found[1], 4.0 / 7, 0.03);
  SamplingParams top_p;
  top_p.top_p = 0.71;  // 0.4 + 0.3 do not reach it
  found = shares(top_p, logits);
  EXPECT_EQ(found.size(), 3U);
  EXPECT_NEAR(found[2], 0.15 / 0.85, 0.03);
  top_p.top_p = 0;
  EXPECT_EQ(shares(top_p, logits, 50).size(), 1U);
  SamplingParams min_p;
  min_p.min_p = 0.3;  // of 0.4: 0.12
  found = shares(min_p, logits);
  EXPECT_EQ(found.size(), 3U);
  EXPECT_EQ(found.count(4), 0U);
}

// Of many tokens, where only a part is put in order: as if all were.
TEST(Sampling, TheNucleusOfManyTokensIsThatOfAllInOrder) {
  Logits logits(5000);
  fill_normal(logits.data(), 5000, 7, 0, 0, 1.5F);
  logits[17] = logits[4000];  // a tie
  for (const double top_p : {0.05, 0.9, 0.999999}) {
    std::vector<int32_t> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    const float largest = logits[static_cast<size_t>(order[0])];
    const auto weight = [&](int32_t token) {
      return std::exp(static_cast<double>(logits[static_cast<size_t>(token)] - largest));
    };
    double total = 0;
    for (const int32_t token : order) total += weight(token);
    for (uint64_t seed = 0; seed < 12; ++seed) {
      SamplingParams params;
      params.top_p = top_p;
      params.seed = seed;
      double kept = 0;
      size_t count = 0;
      while (count < order.size() && (count == 0 || kept < top_p * total)) {
        kept += weight(order[count++]);
      }
      double rest = random_uniform(stream_key(seed, "generate"), 0) * kept;
      int32_t expected = order[count - 1];
      for (size_t i = 0; i < count; ++i) {
        rest -= weight(order[i]);
        if (rest < 0) {
          expected = order[i];
          break;
        }
      }
      EXPECT_EQ(Sampler(params, {}).next(logits).token, expected) << top_p << " " << seed;
    }
  }
}

TEST(Sampling, EveryTokenHasItsOwnNumber) {
  const Logits flat(50, 0.0F);
  SamplingParams params;
  params.seed = 3;
  Sampler first(params, {});
  Sampler second(params, {});
  std::vector<int32_t> a;
  for (int i = 0; i < 40; ++i) a.push_back(first.next(flat).token);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(second.next(flat).token, a[static_cast<size_t>(i)]);
  EXPECT_GT(std::set<int32_t>(a.begin(), a.end()).size(), 15U);
}

TEST(Sampling, BiasAndPenaltiesMoveLogits) {
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{2, 5.0F}, {0, -100.0F}};
  EXPECT_EQ(Sampler(params, {}).next(Logits{4, 3, -1, 0}).token, 2);
  // Each time that a token came costs it 1.5, and the first time 0.4 more.
  params = {};
  params.temperature = 0;
  params.frequency_penalty = 1.5;
  params.presence_penalty = 0.4;
  Sampler sampler(params, {});
  const Logits logits = {4.2F, 2.4F, 0};
  std::vector<int32_t> tokens;
  for (int i = 0; i < 4; ++i) tokens.push_back(sampler.next(logits).token);
  // 4.2; 2.3 against 2.4; 2.3 against 0.5; 0.8 against 0.5.
  EXPECT_EQ(tokens, (std::vector<int32_t>{0, 1, 0, 0}));
  // The prompt counts for the repetition penalty alone.
  params = {};
  params.temperature = 0;
  params.repetition_penalty = 2;
  const std::vector<int32_t> prompt = {0};
  EXPECT_EQ(Sampler(params, prompt).next(Logits{3, 2, -5}).token, 1);
  EXPECT_EQ(Sampler(params, prompt).next(Logits{-1, -3, -1.5F}).token, 2);
}

TEST(Sampling, LogProbabilitiesAreTheModelsOwn) {
  SamplingParams params;
  params.temperature = 0;
  params.top_logprobs = 2;
  params.logit_bias = {{3, 50.0F}};
  const SampledToken out = Sampler(params, {}).next(of_probabilities({0.5, 0.15, 0.3, 0.05}));
  EXPECT_EQ(out.token, 3);
  EXPECT_NEAR(out.logprob, std::log(0.05), 1e-5);
  ASSERT_EQ(out.top.size(), 2U);
  EXPECT_EQ(out.top[0].token, 0);
  EXPECT_NEAR(out.top[0].logprob, std::log(0.5), 1e-5);
  EXPECT_EQ(out.top[1].token, 2);
  params.top_logprobs = 0;
  EXPECT_TRUE(Sampler(params, {}).next(of_probabilities({0.5, 0.5, 0.5, 0.5})).top.empty());
}

TEST(Sampling, RefusesWhatIsOutOfRange) {
  const auto refused = [](const auto& change) {
    SamplingParams params;
    change(params);
    EXPECT_THROW(check(params, 10), Error);
  };
  check({}, 10);
  refused([](SamplingParams& p) { p.max_tokens = 0; });
  refused([](SamplingParams& p) { p.temperature = -0.1; });
  refused([](SamplingParams& p) { p.temperature = std::nan(""); });
  refused([](SamplingParams& p) { p.top_p = 1.01; });
  refused([](SamplingParams& p) { p.top_k = -1; });
  refused([](SamplingParams& p) { p.min_p = 2; });
  refused([](SamplingParams& p) { p.presence_penalty = 2.1; });
  refused([](SamplingParams& p) { p.frequency_penalty = -2.1; });
  refused([](SamplingParams& p) { p.repetition_penalty = 0; });
  refused([](SamplingParams& p) { p.top_logprobs = 21; });
  refused([](SamplingParams& p) { p.logit_bias = {{10, 1.0F}}; });
  refused([](SamplingParams& p) { p.logit_bias = {{9, 101.0F}}; });
  refused([](SamplingParams& p) { p.stop_tokens = {-1}; });
}

}  // namespace
}  // namespace tutti::endpoint
