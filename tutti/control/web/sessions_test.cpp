#include "tutti/control/web/sessions.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/control/audit/audit.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/store/schema.h"

namespace tutti::control {
namespace {

constexpr int64_t kNow = 1'800'000'000'000;
constexpr const char* kHere = "192.0.2.1";

class WebSessionsTest : public testing::Test {
 protected:
  void SetUp() override {
    prepare_schema(database_);
    Transaction transaction(database_);
    add_user(database_, "ada", kNow);
    token_ = add_token(database_, "ada", kNow, kNow + 100 * kSessionMs);
    transaction.commit();
  }

  Database database_{":memory:"};
  WebSessions sessions_;
  std::string token_;
};

TEST_F(WebSessionsTest, TokensBecomeSessionsWithTheirOwnFormKey) {
  const auto first = sessions_.login(database_, token_, kHere, kNow);
  const auto second = sessions_.login(database_, token_, kHere, kNow);
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
  EXPECT_EQ(first->size(), 64U);
  const auto session = sessions_.find(database_, *first, kNow);
  ASSERT_TRUE(session);
  EXPECT_EQ(session->user, "ada");
  EXPECT_NE(session->form_key, sessions_.find(database_, *second, kNow)->form_key);
  EXPECT_EQ(first->find(token_), std::string::npos);
  sessions_.end(*first);
  EXPECT_FALSE(sessions_.find(database_, *first, kNow));
  EXPECT_TRUE(sessions_.find(database_, *second, kNow));
  EXPECT_FALSE(sessions_.find(database_, "", kNow));
}

TEST_F(WebSessionsTest, SessionsExpire) {
  const std::string cookie = *sessions_.login(database_, token_, kHere, kNow);
  EXPECT_TRUE(sessions_.find(database_, cookie, kNow + kSessionIdleMs - 1));
  EXPECT_FALSE(sessions_.find(database_, cookie, kNow + 2 * kSessionIdleMs));
  const std::string old = *sessions_.login(database_, token_, kHere, kNow);
  for (int64_t at = kNow; at < kNow + kSessionMs; at += kSessionIdleMs / 2) {
    EXPECT_TRUE(sessions_.find(database_, old, at));
  }
  EXPECT_FALSE(sessions_.find(database_, old, kNow + kSessionMs));
  const std::string other = *sessions_.login(database_, token_, kHere, kNow);
  {
    Transaction transaction(database_);
    revoke_token(database_, all_tokens(database_).front().id);
    transaction.commit();
  }
  EXPECT_FALSE(sessions_.find(database_, other, kNow));
}

TEST_F(WebSessionsTest, LoginsAreLoggedWithoutTokens) {
  sessions_.login(database_, token_, kHere, kNow);
  EXPECT_FALSE(sessions_.login(database_, "tutti-wrong-token", "2001:db8::1", kNow));
  EXPECT_FALSE(sessions_.user_of(database_, "tutti-wrong-token", "192.0.2.9", kNow, "metrics"));
  EXPECT_TRUE(sessions_.user_of(database_, token_, kHere, kNow, "metrics"));
  const auto lines = audit_lines(database_, 10, "");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2]["what"], "metrics");
  EXPECT_EQ(lines[2]["client"], "192.0.2.9");
  EXPECT_EQ(lines[2]["allowed"], false);
  EXPECT_EQ(lines[0]["who"], "ada");
  EXPECT_EQ(lines[0]["allowed"], true);
  EXPECT_EQ(lines[0]["client"], kHere);
  EXPECT_EQ(lines[1]["client"], "2001:db8::1");
  EXPECT_EQ(lines[1]["who"], "-");
  EXPECT_EQ(lines[1]["allowed"], false);
  for (const Json& line : lines) {
    EXPECT_EQ(line.dump().find(token_), std::string::npos);
    EXPECT_EQ(line.dump().find("wrong"), std::string::npos);
  }
}

TEST_F(WebSessionsTest, GuessingIsSlowedDown) {
  for (int i = 0; i < kMostGuesses; ++i) {
    EXPECT_FALSE(sessions_.login(database_, "guess", kHere, kNow + i));
  }
  EXPECT_THROW(sessions_.login(database_, "guess", kHere, kNow + 100), TooManyGuesses);
  EXPECT_THROW(sessions_.user_of(database_, "another", kHere, kNow + 100, "metrics"),
               TooManyGuesses);
  EXPECT_FALSE(sessions_.login(database_, "guess", kHere, kNow + kGuessWindowMs));
  EXPECT_EQ(audit_lines(database_, 100, "").size(), static_cast<size_t>(kMostGuesses) + 1);
}

TEST_F(WebSessionsTest, GuessesOfOneClientDoNotLockOutOthers) {
  const std::string of_ada = token_.substr(0, token_.rfind('-') + 1) + "guess";
  for (int i = 0; i < kMostGuesses; ++i) {
    EXPECT_FALSE(sessions_.login(database_, "guess", kHere, kNow));
    EXPECT_FALSE(sessions_.user_of(database_, of_ada, "192.0.2.66", kNow, "metrics"));
  }
  EXPECT_THROW(sessions_.user_of(database_, of_ada, "192.0.2.66", kNow, "metrics"), TooManyGuesses);
  EXPECT_TRUE(sessions_.login(database_, token_, kHere, kNow));
}

}  // namespace
}  // namespace tutti::control
