#include "tutti/endpoint/played_load.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"

namespace tutti::endpoint {
namespace {

SchedulerOptions load_options(int64_t sequences) {
  SchedulerOptions options;
  options.pages = 64;
  options.page_tokens = 16;
  options.max_sequences = sequences;
  options.prefill_tokens = 256;
  return options;
}

double row_count(std::span<const spec::TextRows> texts) {
  double rows = 0;
  for (const spec::TextRows& text : texts) rows += static_cast<double>(text.tokens);
  return rows;
}

// A pass takes a second, and a hundredth for each row.
double row_price(std::span<const spec::TextRows> texts) { return 1 + 0.01 * row_count(texts); }

TEST(PlayedLoad, OfOneRequestIsItsPasses) {
  std::vector<PlayedRequest> requests = {
      {.at_seconds = 3, .prompt_tokens = 100, .answer_tokens = 5}};
  const PlayedLoad load = play_load(requests, load_options(4), 10, row_price);
  EXPECT_EQ(load.passes, 5);  // the prompt's gives the first token
  EXPECT_DOUBLE_EQ(requests[0].first_token_seconds, 3 + 2);
  EXPECT_NEAR(requests[0].last_token_seconds, 3 + 2 + 4 * 1.01, 1e-9);
  EXPECT_NEAR(load.busy_seconds, 2 + 4 * 1.01, 1e-9);
  EXPECT_NEAR(load.seconds, 3 + load.busy_seconds, 1e-9);
  EXPECT_EQ(load.most_running, 1);
}

TEST(PlayedLoad, AnswersSideBySideShareAPass) {
  std::vector<PlayedRequest> requests(8, {.prompt_tokens = 1, .answer_tokens = 10});
  const PlayedLoad together = play_load(requests, load_options(8), 10, row_price);
  EXPECT_EQ(together.most_running, 8);
  EXPECT_EQ(together.passes, 10);
  const PlayedLoad alone = play_load(requests, load_options(1), 10, row_price);
  EXPECT_EQ(alone.most_running, 1);
  EXPECT_EQ(alone.passes, 80);
  EXPECT_GT(alone.seconds, 7 * together.seconds);
}

TEST(PlayedLoad, WhoFindsTooManyWaitingIsRefused) {
  std::vector<PlayedRequest> requests(10, {.prompt_tokens = 4, .answer_tokens = 4});
  play_load(requests, load_options(1), 3, row_price);
  int refused = 0;
  for (const PlayedRequest& request : requests) refused += request.refused ? 1 : 0;
  EXPECT_EQ(refused, 7);
}

TEST(PlayedLoad, ASmallCachePreempts) {
  SchedulerOptions options = load_options(8);
  options.pages = 12;
  std::vector<PlayedRequest> requests(8, {.prompt_tokens = 30, .answer_tokens = 100});
  const PlayedLoad load = play_load(requests, options, 10, row_price);
  EXPECT_GT(load.preemptions, 0);
  for (const PlayedRequest& request : requests) {
    EXPECT_FALSE(request.refused);
    EXPECT_GT(request.last_token_seconds, request.first_token_seconds);
  }
  requests.push_back({.prompt_tokens = 200, .answer_tokens = 100});
  EXPECT_THROW(play_load(requests, options, 10, row_price), Error);
}

}  // namespace
}  // namespace tutti::endpoint
