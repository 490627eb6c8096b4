#include "tutti/endpoint/key_meter.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tutti/endpoint/openai_error.h"

namespace tutti::endpoint {
namespace {

constexpr TokenPrices kPrices{1'000'000, 4'000'000};  // 1 and 4 USD per million tokens

class KeyMeterTest : public ::testing::Test {
 protected:
  std::shared_ptr<KeyMeter::Hold> admit(int64_t prompt, int64_t answer,
                                        const std::string& key = "k") {
    return meter_.admit(key, {"cmpl-1", "chat", prompt, answer});
  }
  // The code of the refusal; empty: it was admitted.
  std::string refusal(int64_t prompt, int64_t answer, const std::string& key = "k") {
    try {
      admit(prompt, answer, key);
      return "";
    } catch (const ApiError& error) {
      last_ = error_response(error);
      EXPECT_EQ(error.status(), 429);
      return error.code();
    }
  }
  std::string header(const std::string& name) const {
    for (const auto& [key, value] : last_.headers) {
      if (key == name) return value;
    }
    return "";
  }
  void limit(const KeyLimits& limits) { meter_.set_limits({{"k", limits}}); }

  double now_ = 1000;
  std::vector<KeyUse> recorded_;
  KeyMeter::Keeper keeper_{[this](const std::string& key, const std::string& name,
                                  const KeyMeter::Demand& demand, const KeyUse& use) {
                             EXPECT_EQ(key + name + demand.request + demand.model,
                                       "kanncmpl-1chat");
                             recorded_.push_back(use);
                           },
                           [this] { return problem_; }};
  std::string problem_;
  KeyMeter meter_{kPrices, [this] { return now_; }, keeper_};
  HttpResponse last_;
};

TEST_F(KeyMeterTest, UseIsRecordedOnceWithItsPrice) {
  limit({"ann", {}, {}, {}, {}});
  const auto hold = admit(10, 100);
  hold->settle({10, 4, 20});
  hold->settle({10, 4, 20});
  ASSERT_EQ(recorded_.size(), 1u);
  EXPECT_EQ(recorded_[0], (KeyUse{1, 10, 4, 20, 90'000'000}));
  EXPECT_EQ(meter_.use_of("k"), recorded_[0]);
  admit(10, 100);  // it ends without a token
  EXPECT_EQ(recorded_.size(), 1u);
}

TEST_F(KeyMeterTest, AnExhaustedBudgetSaysSoAndNotToAskAgain) {
  limit({"ann", 100, {}, {}, {}});
  admit(40, 60)->settle({40, 0, 59});
  EXPECT_EQ(refusal(1, 1), kInsufficientQuota);  // one token is left
  EXPECT_NE(last_.body.find("has 1 tokens left"), std::string::npos) << last_.body;
  admit(1, 0)->settle({1, 0, 0});
  EXPECT_EQ(refusal(1, 1), kInsufficientQuota);
  EXPECT_NE(last_.body.find("is used up: 100 tokens of 100 tokens"), std::string::npos)
      << last_.body;
  EXPECT_NE(last_.body.find("\"type\":\"insufficient_quota\""), std::string::npos) << last_.body;
  EXPECT_EQ(header("Retry-After"), "");
  EXPECT_EQ(header("x-should-retry"), "false");
  // Another key, and a larger budget.
  EXPECT_EQ(refusal(1, 1, "other"), "");
  limit({"ann", 200, {}, {}, {}});
  EXPECT_EQ(refusal(1, 99), "");
  EXPECT_EQ(refusal(1, 100), kInsufficientQuota);
}

TEST_F(KeyMeterTest, MoneyIsABudgetToo) {
  limit({"ann", {}, 100, {}, {}});  // 10^-4 USD: 100 prompt tokens, or 25 of answers
  EXPECT_EQ(refusal(0, 26), kInsufficientQuota);
  EXPECT_EQ(refusal(101, 0), kInsufficientQuota);
  admit(20, 20)->settle({20, 0, 20});
  EXPECT_EQ(meter_.use_of("k").pico_usd, 100 * kPicoPerMicro);
  EXPECT_EQ(refusal(1, 0), kInsufficientQuota);
  EXPECT_NE(last_.body.find("0.000100 USD of 0.000100 USD"), std::string::npos) << last_.body;
}

TEST_F(KeyMeterTest, RequestsSideBySideNeverExceedABudget) {
  limit({"ann", 100, {}, {}, {}});
  auto first = admit(10, 50);
  EXPECT_EQ(refusal(10, 50), "budget_held");  // enough once the first has ended early
  EXPECT_EQ(header("Retry-After"), "2");
  first->settle({10, 0, 5});
  EXPECT_EQ(refusal(10, 50), "");
  first = admit(10, 75);
  first.reset();  // its client left before a token came
  EXPECT_EQ(refusal(10, 75), "");
}

TEST_F(KeyMeterTest, ABudgetHoldsUnderThreads) {
  limit({"ann", 1000, {}, {}, {}});
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      for (int j = 0; j < 200; ++j) {
        try {
          admit(3, 7)->settle({3, 0, 7});
        } catch (const ApiError&) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(meter_.use_of("k").tokens(), 1000);
  EXPECT_EQ(recorded_.size(), 100u);
}

TEST_F(KeyMeterTest, RatesSayWhenToAskAgain) {
  limit({"ann", {}, {}, 2, {}});
  EXPECT_EQ(refusal(1, 1), "");
  EXPECT_EQ(refusal(1, 1), "");
  EXPECT_EQ(refusal(1, 1), "rate_limit_exceeded");
  EXPECT_EQ(header("Retry-After"), "30");
  now_ += 29;
  EXPECT_EQ(refusal(1, 1), "rate_limit_exceeded");
  EXPECT_EQ(header("Retry-After"), "1");
  now_ += 1;
  EXPECT_EQ(refusal(1, 1), "");
  // What is not asked for a long time is not saved beyond a minute.
  now_ += 10'000;
  EXPECT_EQ(refusal(1, 1) + refusal(1, 1), "");
  EXPECT_EQ(refusal(1, 1), "rate_limit_exceeded");
}

TEST_F(KeyMeterTest, TokensPerMinuteAreChargedWhenTheyAreKnown) {
  limit({"ann", {}, {}, {}, 60});
  admit(10, 1000)->settle({10, 0, 110});  // 60 beyond what the bucket had
  EXPECT_EQ(refusal(1, 1), "rate_limit_exceeded");
  EXPECT_EQ(header("Retry-After"), "61");
  now_ += 61;
  EXPECT_EQ(refusal(1, 1), "");
}

TEST_F(KeyMeterTest, NewLimitsKeepWhatWasUsed) {
  meter_.restore("k", {7, 50, 0, 50, 0});
  limit({"ann", 100, {}, {}, {}});
  EXPECT_EQ(refusal(1, 0), kInsufficientQuota);
  limit({"ann", 100, {}, 1, {}});
  limit({"ann", {}, {}, 1, {}});
  EXPECT_EQ(refusal(1, 0), "");
  limit({"ann", {}, {}, 1, {}});  // the same rate: not a full bucket again
  EXPECT_EQ(refusal(1, 0), "rate_limit_exceeded");
  meter_.set_limits({});
  EXPECT_EQ(meter_.use_of("k").tokens(), 100);
}

TEST_F(KeyMeterTest, NothingIsAdmittedThatCannotBeRecorded) {
  problem_ = "no space left";
  try {
    admit(1, 1);
    ADD_FAILURE();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 503);
    EXPECT_NE(std::string(error.what()).find("no space left"), std::string::npos);
  }
  problem_.clear();
  EXPECT_EQ(refusal(1, 1), "");
}

}  // namespace
}  // namespace tutti::endpoint
