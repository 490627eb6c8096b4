#include "tutti/control/ledger/account_policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

TEST(Accounts, MayDemandTokens) {
  SmallPlace place;
  EXPECT_FALSE(demands_token(place.database, "ada"));
  EXPECT_TRUE(throws(ErrorKind::permission, [&] { demand_token(place.as("ada"), "ada", true); }));
  EXPECT_TRUE(throws(ErrorKind::usage, [&] { demand_token(place.as("root"), "eve", true); }));
  demand_token(place.as("root"), "bob", true);
  demand_token(place.as("root"), "ada", true);
  EXPECT_TRUE(demands_token(place.database, "ada"));
  demand_token(place.as("root"), "ada", false);
  EXPECT_FALSE(demands_token(place.database, "ada"));
  EXPECT_EQ(accounts_with_demand(place.database), std::vector<std::string>{"bob"});
}

}  // namespace
}  // namespace tutti::control
