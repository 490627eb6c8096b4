#include "tutti/endpoint/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>

namespace tutti::endpoint {
namespace {

std::unique_ptr<Sequence> sequence(uint64_t id, int64_t tokens) {
  auto out = std::make_unique<Sequence>();
  out->id = id;
  out->tokens.resize(static_cast<size_t>(tokens));
  std::iota(out->tokens.begin(), out->tokens.end(), static_cast<int32_t>(1000 * id));
  out->prompt_tokens = tokens;
  return out;
}

using Planned = std::vector<std::pair<uint64_t, int64_t>>;

Planned numbers(const std::vector<ScheduledTokens>& planned) {
  Planned out;
  for (const ScheduledTokens& one : planned) out.emplace_back(one.sequence->id, one.count);
  return out;
}

// Computes a step; every sequence that comes to its end gets a token.
ScheduledStep run_step(Scheduler& scheduler) {
  ScheduledStep step = scheduler.plan();
  for (const auto* planned : {&step.decode, &step.prefill}) {
    for (const ScheduledTokens& one : *planned) {
      scheduler.computed(one);
      if (one.to_end) one.sequence->tokens.push_back(7);
    }
  }
  return step;
}

TEST(Scheduler, CutsPromptsAtMultiplesAndDecodesBesideThem) {
  Scheduler scheduler({.pages = 100, .page_tokens = 4, .max_sequences = 3, .prefill_tokens = 8});
  for (const auto& [id, tokens] : {std::pair<uint64_t, int64_t>{1, 5}, {2, 20}, {3, 3}, {4, 1}}) {
    scheduler.add(sequence(id, tokens));
  }
  ScheduledStep step = run_step(scheduler);
  EXPECT_EQ(numbers(step.prefill), (Planned{{1, 5}, {2, 8}}));
  EXPECT_TRUE(step.decode.empty());
  step = run_step(scheduler);
  EXPECT_EQ(numbers(step.decode), (Planned{{1, 1}}));
  EXPECT_EQ(numbers(step.prefill), (Planned{{2, 8}}));
  step = run_step(scheduler);
  EXPECT_EQ(numbers(step.decode), (Planned{{1, 1}}));
  EXPECT_EQ(numbers(step.prefill), (Planned{{2, 4}, {3, 3}}));
  EXPECT_TRUE(step.prefill[0].to_end);
  EXPECT_EQ(scheduler.waiting().size(), 1U);  // three run already
  EXPECT_EQ(scheduler.remove(2)->id, 2U);
  step = run_step(scheduler);
  EXPECT_EQ(numbers(step.decode), (Planned{{1, 1}, {3, 1}}));
  EXPECT_EQ(numbers(step.prefill), (Planned{{4, 1}}));
}

TEST(Scheduler, TheYoungestGivesItsPagesUpAndIsNextAgain) {
  Scheduler scheduler({.pages = 6,
                       .page_tokens = 2,
                       .max_sequences = 4,
                       .prefill_tokens = 8,
                       .prefix_caching = false});
  for (const uint64_t id : {1, 2, 3}) scheduler.add(sequence(id, 3));
  scheduler.add(sequence(4, 2));
  ScheduledStep step = run_step(scheduler);
  EXPECT_EQ(numbers(step.prefill), (Planned{{1, 3}, {2, 3}, {3, 3}}));
  EXPECT_EQ(scheduler.pool().available(), 0);
  step = run_step(scheduler);  // the fourth tokens are in pages that are there
  EXPECT_EQ(step.decode.size(), 3U);
  step = run_step(scheduler);
  EXPECT_EQ(numbers(step.decode), (Planned{{1, 1}, {2, 1}}));
  EXPECT_EQ(scheduler.preemptions(), 1);
  ASSERT_EQ(scheduler.waiting().size(), 2U);
  EXPECT_EQ(scheduler.waiting().front()->id, 3U);
  EXPECT_EQ(scheduler.waiting().front()->size(), 5);  // with what it has generated
  EXPECT_TRUE(scheduler.waiting().front()->pages.empty());
  EXPECT_NE(scheduler.remove(1), nullptr);
  EXPECT_EQ(scheduler.remove(1), nullptr);
  step = run_step(scheduler);
  EXPECT_EQ(numbers(step.prefill), (Planned{{3, 5}}));
  EXPECT_TRUE(step.prefill[0].to_end);
  for (const uint64_t id : {2, 3, 4}) EXPECT_NE(scheduler.remove(id), nullptr);
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(scheduler.pool().used(), 0);
}

TEST(Scheduler, ALongPromptTakesThePagesOfYoungerOnes) {
  Scheduler scheduler({.pages = 8, .page_tokens = 1, .max_sequences = 4, .prefill_tokens = 2});
  scheduler.add(sequence(1, 6));
  scheduler.add(sequence(2, 1));
  run_step(scheduler);  // 1: two tokens
  EXPECT_EQ(scheduler.running().size(), 1U);
  // It was admitted with pages for all that it has, which others may take meanwhile.
  ScheduledStep step = run_step(scheduler);
  EXPECT_EQ(numbers(step.prefill), (Planned{{1, 2}}));
  step = run_step(scheduler);
  EXPECT_EQ(numbers(step.prefill), (Planned{{1, 2}}));
  EXPECT_TRUE(step.prefill[0].to_end);
  step = run_step(scheduler);
  EXPECT_EQ(numbers(step.decode), (Planned{{1, 1}}));
  EXPECT_TRUE(step.prefill.empty());  // 2 needs two pages, and one is free
  EXPECT_EQ(scheduler.preemptions(), 0);
}

TEST(Scheduler, FindsWhatWasComputedBefore) {
  Scheduler scheduler({.pages = 20, .page_tokens = 2, .max_sequences = 4, .prefill_tokens = 4});
  const auto add = [&](uint64_t id) {
    auto same = sequence(1, 7);
    same->id = id;
    scheduler.add(std::move(same));
  };
  add(1);
  run_step(scheduler);
  add(2);  // two pages are there by now
  EXPECT_EQ(numbers(run_step(scheduler).prefill), (Planned{{1, 3}, {2, 3}}));
  EXPECT_EQ(scheduler.prefix_hit_tokens(), 4);
  add(3);  // and now all but the last token, which is always computed
  EXPECT_EQ(numbers(run_step(scheduler).prefill), (Planned{{3, 1}}));
  EXPECT_EQ(scheduler.prefix_hit_tokens(), 10);
  EXPECT_EQ(scheduler.prefix_query_tokens(), 21);
}

}  // namespace
}  // namespace tutti::endpoint
