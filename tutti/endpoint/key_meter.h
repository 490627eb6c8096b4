// What the holders of API keys may use: a budget in all, in tokens or money, and rates per minute.
//
// A request is admitted where its key's budget has what it may use at most: its prompts, and the
// longest answers that it allows. That much is held until the request ends, so that requests side
// by side never exceed a budget. Rates are token buckets of one minute: they allow a minute's worth
// at once. Tokens of answers are charged when they are known, and the bucket may be below zero
// until it has filled up again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "tutti/endpoint/openai_response.h"

namespace tutti::endpoint {

inline constexpr int64_t kPicoPerMicro = 1'000'000;  // 10^-12 and 10^-6 USD

// Of a token, in 10^-12 USD: what a million tokens cost in USD, times a million.
struct TokenPrices {
  int64_t prompt = 0;
  int64_t answer = 0;
};

struct KeyLimits {
  bool operator==(const KeyLimits&) const = default;
  std::string name;               // whose key it is
  std::optional<int64_t> tokens;  // in all, of prompts and answers; absent: no limit, as below
  std::optional<int64_t> micro_usd;
  std::optional<int64_t> requests_per_minute;
  std::optional<int64_t> tokens_per_minute;
};

// What a key has used.
struct KeyUse {
  bool operator==(const KeyUse&) const = default;
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of them
  int64_t answer_tokens = 0;
  int64_t pico_usd = 0;

  int64_t tokens() const { return prompt_tokens + answer_tokens; }
};
KeyUse& operator+=(KeyUse& use, const KeyUse& more);

class KeyMeter {
 public:
  struct Demand {
    std::string request;  // its id
    std::string model;
    int64_t prompt_tokens = 0;  // of all its prompts
    int64_t most_answer_tokens = 0;
  };
  // Where use is recorded. Called within the lock of the meter, so not to call it.
  struct Keeper {
    // A request of `key`, whose holder is `name`, has ended.
    std::function<void(const std::string& key, const std::string& name, const Demand& demand,
                       const KeyUse& use)>
        record;
    // Why nothing can be recorded now, and nothing is admitted; empty: it can.
    std::function<std::string()> problem;
  };

  // `seconds` is a clock that never jumps.
  KeyMeter(TokenPrices prices, std::function<double()> seconds, Keeper keeper = {});
  KeyMeter(const KeyMeter&) = delete;
  KeyMeter& operator=(const KeyMeter&) = delete;

  // By id of the key. What was used before stays used; full buckets where a rate is new.
  void set_limits(const std::map<std::string, KeyLimits>& limits);
  void restore(const std::string& key, const KeyUse& use);  // of an earlier process
  KeyUse use_of(const std::string& key) const;

  // What an admitted request holds. `settle` ends it with what was used; its destructor ends one
  // that used nothing. The meter outlives it.
  class Hold {
   public:
    Hold(KeyMeter& meter, std::string key, Demand demand);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    void settle(const Usage& usage);

   private:
    KeyMeter& meter_;
    const std::string key_;
    const Demand demand_;
    bool is_settled_ = false;
  };
  // Throws ApiError: 503 where use cannot be recorded, 429 rate_limit_exceeded, which says when to
  // ask again; 429 insufficient_quota where the budget is used up, or has less than the request may
  // use; 429 budget_held where it has enough once requests that run have ended.
  std::shared_ptr<Hold> admit(const std::string& key, const Demand& demand);

 private:
  struct Bucket {
    double level = 0;
    double at = 0;  // when it had that level
  };
  struct Key {
    KeyLimits limits;
    KeyUse used;
    int64_t held_tokens = 0;
    int64_t held_pico_usd = 0;
    Bucket requests, tokens;
  };

  int64_t price_of(int64_t prompt_tokens, int64_t answer_tokens) const;
  void check_budget(const std::string& id, const Key& key, const Demand& demand) const;
  void check_rates(const std::string& id, Key& key) const;
  void fill(Bucket& bucket, const std::optional<int64_t>& per_minute) const;
  void end(const std::string& key, const Demand& demand, const Usage& usage);

  const TokenPrices prices_;
  const std::function<double()> seconds_;
  const Keeper keeper_;
  mutable std::mutex mutex_;
  std::map<std::string, Key> keys_;  // those without limits as well
};

}  // namespace tutti::endpoint
