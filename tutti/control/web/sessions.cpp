#include "tutti/control/web/sessions.h"

#include "tutti/control/audit/audit.h"
#include "tutti/control/audit/digest.h"
#include "tutti/control/ledger/account_table.h"

namespace tutti::control {
namespace {

constexpr int kCookieBytes = 32;

void note_token(Database& database, const std::string& who, const char* what,
                const std::string& client, bool allowed, int64_t now_ms) {
  Transaction transaction(database);
  append_audit(database, {now_ms, who, what, "page", allowed, Json::object(), client});
  transaction.commit();
}

// Of the account that a token names, whether its secret is right or not.
std::string account_named_by(Database& database, const std::string& token) {
  const auto named = find_token(database, id_of_token(token));
  return named ? named->user : std::string();
}

}  // namespace

TooManyGuesses::TooManyGuesses(int64_t until_ms, int64_t now_ms)
    : Error(ErrorKind::permission,
            "too many tokens that are not valid came from this address; wait "
            "for a minute"),
      wait_seconds_((until_ms - now_ms + 999) / 1000) {}

std::optional<std::string> WebSessions::user_of(Database& database, const std::string& token,
                                                const std::string& client, int64_t now_ms,
                                                const char* what) {
  const std::string account = account_named_by(database, token);
  const int64_t until_ms = guesses_.blocked_until_ms(account, client, now_ms);
  if (until_ms != 0) throw TooManyGuesses(until_ms, now_ms);
  auto user = user_of_token(database, token, now_ms);
  if (user) return user;
  guesses_.add_failure(account, client, now_ms);
  note_token(database, "-", what, client, false, now_ms);
  return std::nullopt;
}

std::optional<std::string> WebSessions::login(Database& database, const std::string& token,
                                              const std::string& client, int64_t now_ms) {
  const auto user = user_of(database, token, client, now_ms, "login");
  if (!user) return std::nullopt;
  note_token(database, *user, "login", client, true, now_ms);
  std::string cookie = random_hex(kCookieBytes);
  const Session session{*user, token, id_of_token(token), random_hex(kCookieBytes)};
  const std::scoped_lock lock(mutex_);
  sessions_[cookie] = {session, now_ms, now_ms};
  return cookie;
}

std::optional<WebSessions::Session> WebSessions::find(Database& database, const std::string& cookie,
                                                      int64_t now_ms) {
  Session session;
  {
    const std::scoped_lock lock(mutex_);
    std::erase_if(sessions_, [&](const auto& entry) {
      return entry.second.seen_ms + kSessionIdleMs <= now_ms ||
             entry.second.begun_ms + kSessionMs <= now_ms;
    });
    const auto found = sessions_.find(cookie);
    if (found == sessions_.end()) return std::nullopt;
    found->second.seen_ms = now_ms;
    session = found->second.session;
  }
  if (!is_valid_token(database, session.token_id, now_ms)) {
    end(cookie);
    return std::nullopt;
  }
  return session;
}

void WebSessions::end(const std::string& cookie) {
  const std::scoped_lock lock(mutex_);
  sessions_.erase(cookie);
}

}  // namespace tutti::control
