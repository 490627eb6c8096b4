#include "tutti/control/people/guess_limit.h"

#include "tutti/base/client_address.h"

namespace tutti::control {
namespace {

constexpr size_t kMostCounted = 10'000;  // pairs of account and network

std::string key_of_guess(const std::string& account, const std::string& client) {
  return network_of(client) + " " + account;
}

}  // namespace

int64_t GuessLimit::blocked_until_ms(const std::string& account, const std::string& client,
                                     int64_t now_ms) {
  const std::scoped_lock lock(mutex_);
  const auto found = failures_ms_.find(key_of_guess(account, client));
  if (found == failures_ms_.end() || found->second.size() < kMostGuesses) return 0;
  const int64_t until_ms = found->second.front() + kGuessWindowMs;
  return until_ms > now_ms ? until_ms : 0;
}

void GuessLimit::add_failure(const std::string& account, const std::string& client,
                             int64_t now_ms) {
  const std::scoped_lock lock(mutex_);
  if (failures_ms_.size() >= kMostCounted) forget_old(now_ms);
  std::deque<int64_t>& failures = failures_ms_[key_of_guess(account, client)];
  failures.push_back(now_ms);
  if (failures.size() > kMostGuesses) failures.pop_front();
}

// Beyond the bound all are forgiven: a limit of so many networks would be one on everybody.
void GuessLimit::forget_old(int64_t now_ms) {
  std::erase_if(failures_ms_,
                [&](const auto& each) { return each.second.back() + kGuessWindowMs <= now_ms; });
  if (failures_ms_.size() >= kMostCounted) failures_ms_.clear();
}

}  // namespace tutti::control
