#include "tutti/control/ledger/account_table.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

TEST(Tokens, OfATokenLiveNoLongerThanIt) {
  SmallControlPlane plane;
  const auto as = [&](const std::string& user, const std::string& token) {
    Caller caller = plane.as(user);
    caller.token_id = id_of_token(token);
    return caller;
  };
  const std::string first = issue_token(plane.as("root"), "root", kNoon + 1000);
  EXPECT_EQ(caller_expires_ms(as("root", first)), kNoon + 1000);
  EXPECT_FALSE(caller_expires_ms(plane.as("root")));
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { issue_token(as("root", first), "root", kNoon + 1001); },
      "would outlive"));
  const std::string child = issue_token(as("root", first), "root", kNoon + 1000);
  const std::string grandchild = issue_token(as("root", child), "ada", kNoon + 1000);
  const std::string other = issue_token(plane.as("root"), "root", kNoon + 1000);
  EXPECT_EQ(find_token(plane.database, id_of_token(grandchild))->parent, id_of_token(child));
  EXPECT_EQ(user_of_token(plane.database, grandchild, kNoon), "ada");
  EXPECT_EQ(withdraw_token(plane.as("root"), id_of_token(first)), 3);
  for (const std::string& token : {first, child, grandchild}) {
    EXPECT_FALSE(user_of_token(plane.database, token, kNoon));
    EXPECT_TRUE(find_token(plane.database, id_of_token(token))->revoked);
  }
  EXPECT_EQ(user_of_token(plane.database, other, kNoon), "root");
}

TEST(Tokens, OfADisabledUsersTokenDoNotWork) {
  SmallControlPlane plane;
  grant(plane.as("root"), {"olaf", kAllProjects, Role::admin});
  Caller olaf = plane.as("olaf");
  olaf.token_id = id_of_token(issue_token(olaf, "olaf", kNoon + 1000));
  const std::string of_ada = issue_token(olaf, "ada", kNoon + 1000);
  EXPECT_TRUE(user_of_token(plane.database, of_ada, kNoon));
  disable_user(plane.as("root"), "olaf", true);
  EXPECT_FALSE(user_of_token(plane.database, of_ada, kNoon));
  EXPECT_FALSE(is_valid_token(plane.database, "unknown", kNoon));
}

}  // namespace
}  // namespace tutti::control
