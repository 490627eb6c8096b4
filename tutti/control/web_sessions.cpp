#include "tutti/control/web_sessions.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/control/account_table.h"
#include "tutti/control/audit.h"
#include "tutti/control/digest.h"

namespace tutti::control {
namespace {

constexpr int kCookieBytes = 32;

// "tutti-ID-SECRET" -> ID.
std::string token_id(const std::string& token) {
  const auto parts = split(token, '-');
  return parts.size() == 3 ? std::string(parts[1]) : std::string();
}

void note_login(Database& database, const std::string& who, bool allowed, int64_t now_ms) {
  AuditLine line;
  line.time_ms = now_ms;
  line.who = who;
  line.what = "login";
  line.on = "page";
  line.allowed = allowed;
  Transaction transaction(database);
  append_audit(database, line);
  transaction.commit();
}

bool is_valid(Database& database, const std::string& id, int64_t now_ms) {
  for (const TokenInfo& token : all_tokens(database)) {
    if (token.id != id) continue;
    const bool expired = token.expires_ms != 0 && token.expires_ms <= now_ms;
    return !token.revoked && !expired && has_user(database, token.user);
  }
  return false;
}

}  // namespace

std::optional<std::string> WebSessions::login(Database& database, const std::string& token,
                                              int64_t now_ms) {
  const std::scoped_lock lock(mutex_);
  while (!failures_ms_.empty() && failures_ms_.front() + kLoginWindowMs <= now_ms) {
    failures_ms_.pop_front();
  }
  if (static_cast<int>(failures_ms_.size()) >= kLoginFailures) {
    fail(ErrorKind::permission, "too many tokens that are not valid; wait for a minute");
  }
  const auto user = user_of_token(database, token, now_ms);
  note_login(database, user.value_or("-"), user.has_value(), now_ms);
  if (!user) {
    failures_ms_.push_back(now_ms);
    return std::nullopt;
  }
  const std::string cookie = random_hex(kCookieBytes);
  sessions_[cookie] = {{*user, token, random_hex(kCookieBytes)}, token_id(token), now_ms, now_ms};
  return cookie;
}

std::optional<WebSessions::Session> WebSessions::find(Database& database, const std::string& cookie,
                                                      int64_t now_ms) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(sessions_, [&](const auto& entry) {
    return entry.second.seen_ms + kSessionIdleMs <= now_ms ||
           entry.second.begun_ms + kSessionMs <= now_ms;
  });
  const auto found = sessions_.find(cookie);
  if (found == sessions_.end()) return std::nullopt;
  if (!is_valid(database, found->second.token_id, now_ms)) {
    sessions_.erase(found);
    return std::nullopt;
  }
  found->second.seen_ms = now_ms;
  return found->second.session;
}

void WebSessions::end(const std::string& cookie) {
  const std::scoped_lock lock(mutex_);
  sessions_.erase(cookie);
}

}  // namespace tutti::control
