#include "tutti/control/ledger/account_policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

TEST(Accounts, MayDemandTokens) {
  SmallControlPlane plane;
  EXPECT_FALSE(demands_token(plane.database, "ada"));
  EXPECT_TRUE(throws(ErrorKind::permission, [&] { demand_token(plane.as("ada"), "ada", true); }));
  EXPECT_TRUE(throws(ErrorKind::usage, [&] { demand_token(plane.as("root"), "eve", true); }));
  demand_token(plane.as("root"), "bob", true);
  demand_token(plane.as("root"), "ada", true);
  EXPECT_TRUE(demands_token(plane.database, "ada"));
  demand_token(plane.as("root"), "ada", false);
  EXPECT_FALSE(demands_token(plane.database, "ada"));
  EXPECT_EQ(accounts_with_demand(plane.database), std::vector<std::string>{"bob"});
}

}  // namespace
}  // namespace tutti::control
