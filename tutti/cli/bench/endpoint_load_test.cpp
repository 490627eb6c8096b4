#include "tutti/cli/bench/endpoint_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"

namespace tutti::cli {
namespace {

TEST(EndpointLoad, LengthsAreRead) {
  const TokenLengths range = parse_token_lengths("64-256", "--prompt-tokens");
  EXPECT_EQ(range.kind, TokenLengths::Kind::uniform);
  EXPECT_EQ(range.least, 64);
  EXPECT_EQ(range.most, 256);
  EXPECT_EQ(parse_token_lengths("7", "o").most, 7);
  EXPECT_EQ(parse_token_lengths("~90", "o").mean, 90);
  for (const char* text : {"", "0", "-1", "x", "5-", "9-3", "~", "1-2-3", "99999999999"}) {
    EXPECT_THROW(parse_token_lengths(text, "o"), Error) << text;
  }
}

TEST(EndpointLoad, ArrivalsArePoissonAndLengthsWhatWasAskedFor) {
  LoadOptions options;
  options.rate = 4;
  options.requests = 20'000;
  options.prompt = parse_token_lengths("~100", "o");
  options.answer = parse_token_lengths("10-30", "o");
  const auto plan = plan_load(options);
  ASSERT_EQ(plan.size(), 20'000U);
  double prompts = 0;
  double answers = 0;
  double squares = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    prompts += static_cast<double>(plan[i].prompt_tokens);
    answers += static_cast<double>(plan[i].answer_tokens);
    EXPECT_GE(plan[i].answer_tokens, 10);
    EXPECT_LE(plan[i].answer_tokens, 30);
    EXPECT_LE(plan[i].prompt_tokens, 800);
    if (i > 0) squares += std::pow(plan[i].at_seconds - plan[i - 1].at_seconds, 2);
  }
  const auto count = static_cast<double>(plan.size());
  // Gaps are exponential: mean 1/rate, mean square 2/rate^2.
  EXPECT_NEAR(plan.back().at_seconds / count, 0.25, 0.01);
  EXPECT_NEAR(squares / count, 2 / 16.0, 0.01);
  EXPECT_NEAR(answers / count, 20, 0.3);
  EXPECT_NEAR(prompts / count, 100, 5);  // less the little that is cut off
  EXPECT_EQ(plan[77].at_seconds, plan_load(options)[77].at_seconds);
  options.seed = 1;
  EXPECT_NE(plan[77].at_seconds, plan_load(options)[77].at_seconds);
}

}  // namespace
}  // namespace tutti::cli
