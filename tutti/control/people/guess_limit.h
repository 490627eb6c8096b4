// Slows down the guessing of tokens. Failures count per account and network of the client, so that
// no client's guesses lock out another.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>

namespace tutti::control {

inline constexpr int kMostGuesses = 10;  // wrong tokens of one account from one network, within
inline constexpr int64_t kGuessWindowMs = 60'000;

// For any thread.
class GuessLimit {
 public:
  // Until when tokens of that account are rejected unread from there; 0: accepted now. `account`:
  // empty for tokens that are none of ours.
  int64_t blocked_until_ms(const std::string& account, const std::string& client, int64_t now_ms);
  void add_failure(const std::string& account, const std::string& client, int64_t now_ms);

 private:
  void forget_old(int64_t now_ms);

  std::mutex mutex_;
  std::map<std::string, std::deque<int64_t>> failures_ms_;
};

}  // namespace tutti::control
