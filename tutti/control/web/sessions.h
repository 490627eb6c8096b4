// Who is logged in to the page: cookies that stand for a user, in memory only.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "tutti/base/error.h"
#include "tutti/control/people/guess_limit.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

inline constexpr int64_t kSessionIdleMs = 3'600'000;
inline constexpr int64_t kSessionMs = 12 * 3'600'000;

// Too many wrong tokens of the account came from there lately.
class TooManyGuesses : public Error {
 public:
  TooManyGuesses(int64_t until_ms, int64_t now_ms);
  int64_t wait_seconds() const { return wait_seconds_; }

 private:
  int64_t wait_seconds_;
};

// For any thread.
class WebSessions {
 public:
  struct Session {
    std::string user;
    std::string token;  // with which the user logged in: never to be shown or written
    std::string token_id;
    std::string form_key;  // what a form must bring, so that no other page can send it
  };

  // The cookie of a new session; absent: no valid token. Every attempt leaves a line in the audit
  // log, without the token, with the client's address. Throws TooManyGuesses, which leaves none.
  std::optional<std::string> login(Database& database, const std::string& token,
                                   const std::string& client, int64_t now_ms);
  // Whose token it is; absent: no valid one, which leaves a line in the audit log, too, as `what`.
  // Throws TooManyGuesses.
  std::optional<std::string> user_of(Database& database, const std::string& token,
                                     const std::string& client, int64_t now_ms, const char* what);
  // Absent: unknown or idle for too long, or its token is withdrawn or has expired.
  std::optional<Session> find(Database& database, const std::string& cookie, int64_t now_ms);
  void end(const std::string& cookie);

 private:
  struct Kept {
    Session session;
    int64_t begun_ms = 0;
    int64_t seen_ms = 0;
  };
  std::mutex mutex_;  // of sessions_, never held while the database is asked
  std::map<std::string, Kept> sessions_;
  GuessLimit guesses_;
};

}  // namespace tutti::control
