// Who is logged in to the page: cookies that stand for a user, in memory only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "tutti/control/database.h"

namespace tutti::control {

inline constexpr int64_t kSessionIdleMs = 3'600'000;
inline constexpr int64_t kSessionMs = 12 * 3'600'000;
inline constexpr int kLoginFailures = 10;  // within kLoginWindowMs, of everybody together
inline constexpr int64_t kLoginWindowMs = 60'000;

// For any thread.
class WebSessions {
 public:
  struct Session {
    std::string user;
    std::string token;     // with which the user logged in: never to be shown or written
    std::string form_key;  // what a form must bring, so that no other page can send it
  };

  // The cookie of a new session; absent: no valid token. Every attempt leaves a line in the trail,
  // without the token. Throws permission when too many have failed lately.
  std::optional<std::string> login(Database& database, const std::string& token, int64_t now_ms);
  // Absent: unknown or idle for too long, or its token is withdrawn or has expired.
  std::optional<Session> find(Database& database, const std::string& cookie, int64_t now_ms);
  void end(const std::string& cookie);

 private:
  struct Kept {
    Session session;
    std::string token_id;
    int64_t begun_ms = 0;
    int64_t seen_ms = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Kept> sessions_;
  std::deque<int64_t> failures_ms_;
};

}  // namespace tutti::control
