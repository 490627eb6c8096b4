#include "tutti/endpoint/key_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tutti/endpoint/openai_error.h"

namespace tutti::endpoint {
namespace {

constexpr double kMinuteSeconds = 60;
constexpr double kPicoPerUsd = 1e12;
constexpr double kRounding = 1e-6;  // of levels and seconds

std::string usd_text(int64_t pico_usd) {
  return fmt::format("{:.6f} USD", static_cast<double>(pico_usd) / kPicoPerUsd);
}

}  // namespace

KeyUse& operator+=(KeyUse& use, const KeyUse& more) {
  use.requests += more.requests;
  use.prompt_tokens += more.prompt_tokens;
  use.cached_tokens += more.cached_tokens;
  use.answer_tokens += more.answer_tokens;
  use.pico_usd += more.pico_usd;
  return use;
}

KeyMeter::KeyMeter(TokenPrices prices, std::function<double()> seconds, Keeper keeper)
    : prices_(prices), seconds_(std::move(seconds)), keeper_(std::move(keeper)) {}

void KeyMeter::set_limits(const std::map<std::string, KeyLimits>& limits) {
  const std::scoped_lock lock(mutex_);
  for (auto& [id, key] : keys_) {
    if (limits.count(id) == 0) key.limits = {};
  }
  for (const auto& [id, one] : limits) {
    Key& key = keys_[id];
    const auto refill = [&](Bucket& bucket, const std::optional<int64_t>& before,
                            const std::optional<int64_t>& now) {
      if (before != now) bucket = {static_cast<double>(now.value_or(0)), seconds_()};
    };
    refill(key.requests, key.limits.requests_per_minute, one.requests_per_minute);
    refill(key.tokens, key.limits.tokens_per_minute, one.tokens_per_minute);
    key.limits = one;
  }
}

void KeyMeter::restore(const std::string& key, const KeyUse& use) {
  const std::scoped_lock lock(mutex_);
  keys_[key].used += use;
}

KeyUse KeyMeter::use_of(const std::string& key) const {
  const std::scoped_lock lock(mutex_);
  const auto found = keys_.find(key);
  return found == keys_.end() ? KeyUse{} : found->second.used;
}

int64_t KeyMeter::price_of(int64_t prompt_tokens, int64_t answer_tokens) const {
  return prices_.prompt * prompt_tokens + prices_.answer * answer_tokens;
}

void KeyMeter::fill(Bucket& bucket, const std::optional<int64_t>& per_minute) const {
  const auto most = static_cast<double>(per_minute.value_or(0));
  const double now = seconds_();
  bucket.level = std::min(most, bucket.level + (now - bucket.at) * most / kMinuteSeconds);
  bucket.at = now;
}

void KeyMeter::check_budget(const std::string& id, const Key& key, const Demand& demand) const {
  const auto check = [&](const std::optional<int64_t>& limit, int64_t used, int64_t held,
                         int64_t wanted, const auto& text) {
    if (!limit || used + held + wanted <= *limit) return;
    const std::string whose = fmt::format("the budget of API key {} ('{}')", id, key.limits.name);
    if (used >= *limit) {
      throw ApiError(429, fmt::format("{} is used up: {} of {}", whose, text(used), text(*limit)),
                     "", kInsufficientQuota);
    }
    if (used + wanted > *limit) {
      throw ApiError(429,
                     fmt::format("{} has {} left, and this request may use {}: a prompt of {} "
                                 "tokens and answers of up to {}; ask for fewer max_tokens",
                                 whose, text(*limit - used), text(wanted), demand.prompt_tokens,
                                 demand.most_answer_tokens),
                     "max_tokens", kInsufficientQuota);
    }
    throw ApiError(429,
                   fmt::format("{} is held by requests that run: {} are left beside them, and this "
                               "request may use {}",
                               whose, text(*limit - used - held), text(wanted)),
                   "", "budget_held");
  };
  const int64_t tokens = demand.prompt_tokens + demand.most_answer_tokens;
  check(key.limits.tokens, key.used.tokens(), key.held_tokens, tokens,
        [](int64_t count) { return fmt::format("{} tokens", count); });
  std::optional<int64_t> pico_usd;
  if (key.limits.micro_usd) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2 / kPicoPerMicro;
    pico_usd = std::min(*key.limits.micro_usd, kMost) * kPicoPerMicro;
  }
  check(pico_usd, key.used.pico_usd, key.held_pico_usd,
        price_of(demand.prompt_tokens, demand.most_answer_tokens), &usd_text);
}

void KeyMeter::check_rates(const std::string& id, Key& key) const {
  const auto check = [&](Bucket& bucket, const std::optional<int64_t>& per_minute, double least,
                         const char* what) {
    if (!per_minute) return;
    fill(bucket, per_minute);
    const double missing = least - bucket.level;
    if (missing <= kRounding) return;
    const double wait = missing * kMinuteSeconds / static_cast<double>(*per_minute);
    const double seconds = std::max(1.0, std::ceil(wait - kRounding));
    throw ApiError(
        429,
        fmt::format("API key {} ('{}') may ask for {} {} a minute; ask again in {:.0f} s", id,
                    key.limits.name, *per_minute, what, seconds),
        "", "rate_limit_exceeded")
        .retry_after(static_cast<int64_t>(seconds));
  };
  check(key.requests, key.limits.requests_per_minute, 1, "requests");
  check(key.tokens, key.limits.tokens_per_minute, 1, "tokens");
}

std::shared_ptr<KeyMeter::Hold> KeyMeter::admit(const std::string& id, const Demand& demand) {
  const std::scoped_lock lock(mutex_);
  if (const std::string why = keeper_.problem ? keeper_.problem() : ""; !why.empty()) {
    throw ApiError(503, "what API keys use cannot be recorded: " + why);
  }
  Key& key = keys_[id];
  check_budget(id, key, demand);
  check_rates(id, key);
  auto hold = std::make_shared<Hold>(*this, id, demand);
  key.held_tokens += demand.prompt_tokens + demand.most_answer_tokens;
  key.held_pico_usd += price_of(demand.prompt_tokens, demand.most_answer_tokens);
  if (key.limits.requests_per_minute) key.requests.level -= 1;
  return hold;
}

void KeyMeter::end(const std::string& id, const Demand& demand, const Usage& usage) {
  const std::scoped_lock lock(mutex_);
  Key& key = keys_[id];
  key.held_tokens -= demand.prompt_tokens + demand.most_answer_tokens;
  key.held_pico_usd -= price_of(demand.prompt_tokens, demand.most_answer_tokens);
  KeyUse use{1, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, 0};
  use.pico_usd = price_of(use.prompt_tokens, use.answer_tokens);
  if (use.tokens() == 0) return;
  if (key.limits.tokens_per_minute) {
    fill(key.tokens, key.limits.tokens_per_minute);
    key.tokens.level -= static_cast<double>(use.tokens());
  }
  key.used += use;
  if (keeper_.record) keeper_.record(id, key.limits.name, demand, use);
}

KeyMeter::Hold::Hold(KeyMeter& meter, std::string key, Demand demand)
    : meter_(meter), key_(std::move(key)), demand_(std::move(demand)) {}

KeyMeter::Hold::~Hold() { settle({}); }

void KeyMeter::Hold::settle(const Usage& usage) {
  if (std::exchange(is_settled_, true)) return;
  meter_.end(key_, demand_, usage);
}

}  // namespace tutti::endpoint
