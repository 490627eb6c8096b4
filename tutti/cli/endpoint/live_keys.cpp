#include "tutti/cli/endpoint/live_keys.h"

#include <fmt/format.h>

#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/cli/program/common.h"

namespace tutti::cli {

LiveKeys::LiveKeys(FileSystem& files, KeySettings settings)
    : files_(files), settings_(std::move(settings)) {
  endpoint::KeyMeter::Keeper keeper;
  std::map<std::string, endpoint::KeyUse> used;
  if (!settings_.use_file.empty()) {
    const int64_t damaged = endpoint::read_use_log(
        files_, settings_.use_file,
        [&](const endpoint::UseRecord& record) { used[record.key] += record.use; });
    if (damaged > 0) {
      print_message(fmt::format("tutti: {}: {} lines are damaged and count as nothing\n",
                                settings_.use_file, damaged));
    }
    log_ = std::make_unique<endpoint::UseLog>(files_, settings_.use_file);
    keeper.record = [this](const std::string& key, const std::string& name,
                           const endpoint::KeyMeter::Demand& demand, const endpoint::KeyUse& use) {
      log_->add({wall_milliseconds(), key, name, demand.model, demand.request, use});
    };
    keeper.problem = [this] {
      std::string why;
      return log_->is_kept(why) ? std::string() : why;
    };
  }
  meter_ =
      std::make_unique<endpoint::KeyMeter>(settings_.prices, &monotonic_seconds, std::move(keeper));
  for (const auto& [key, use] : used) meter_->restore(key, use);
  take(read_file(files_, settings_.key_file));
}

void LiveKeys::check_limits(const ApiKeys& keys) const {
  for (const auto& [id, limits] : keys.limits()) {
    const bool has_budget = limits.tokens || limits.micro_usd;
    if (has_budget && settings_.use_file.empty()) {
      fail(ErrorKind::usage,
           "{}: key {} ('{}') has a budget, which a restart would forget; give --usage-file FILE",
           settings_.key_file, id, limits.name);
    }
    if (limits.micro_usd && settings_.prices.prompt == 0 && settings_.prices.answer == 0) {
      fail(ErrorKind::usage,
           "{}: key {} ('{}') has a budget in USD, and tokens have no price; give "
           "--usd-per-million-prompt-tokens and --usd-per-million-answer-tokens",
           settings_.key_file, id, limits.name);
    }
  }
}

void LiveKeys::take(const std::string& text) {
  text_ = text;
  ApiKeys keys = ApiKeys::parse(text, settings_.key_file);
  check_limits(keys);
  meter_->set_limits(keys.limits());
  const std::scoped_lock lock(mutex_);
  keys_ = std::move(keys);
}

std::optional<std::string> LiveKeys::identify(const std::string& key) const {
  const std::scoped_lock lock(mutex_);
  return keys_.identify(key);
}

size_t LiveKeys::size() const {
  const std::scoped_lock lock(mutex_);
  return keys_.size();
}

// Of a file that cannot be taken over: keys that are no longer in it are withdrawn all the same,
// unless it has none that could be read.
void LiveKeys::withdraw_missing() {
  const std::set<std::string> there = ApiKeys::ids_in_file(text_);
  if (there.empty()) return;
  const std::scoped_lock lock(mutex_);
  keys_.keep_only(there);
}

void LiveKeys::tend() {
  if (log_ != nullptr) log_->sync();
  try {
    const std::string text = read_file(files_, settings_.key_file);
    if (text == text_) return;
    take(text);
    reported_.clear();
    print_message(fmt::format("tutti: {}: {} API keys\n", settings_.key_file, size()));
  } catch (const Error& error) {
    withdraw_missing();
    if (reported_ != error.what()) {
      print_message(fmt::format("tutti: no new API keys: {}\n", error.what()));
    }
    reported_ = error.what();
  }
}

}  // namespace tutti::cli
