#include "tutti/base/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace tutti {
namespace {

const std::vector<ErrorKind> kKinds = {
    ErrorKind::usage,    ErrorKind::not_found, ErrorKind::permission,
    ErrorKind::corrupt,  ErrorKind::no_space,  ErrorKind::io,
    ErrorKind::diverged, ErrorKind::peer,      ErrorKind::unsupported};

TEST(Error, CarriesKindAndFormattedMessage) {
  try {
    fail(ErrorKind::corrupt, "{}: expected {} bytes, found {}", "a.idx", 34, 7);
    FAIL() << "fail() returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    EXPECT_STREQ(error.what(), "a.idx: expected 34 bytes, found 7");
  }
}

TEST(Error, EveryKindHasItsOwnName) {
  std::set<std::string> names;
  for (const ErrorKind kind : kKinds) names.insert(error_kind_name(kind));
  EXPECT_EQ(names.size(), kKinds.size());
  EXPECT_EQ(names.count("unknown"), 0U);
}

// A scheduler restarts after 1 and 75 only: what the user must correct, and what would happen
// again, must not be 1.
TEST(Error, ExitCodesShowWhetherToRestart) {
  EXPECT_EQ(exit_code(ErrorKind::usage), 2);
  EXPECT_EQ(exit_code(ErrorKind::not_found), 2);
  EXPECT_EQ(exit_code(ErrorKind::unsupported), 2);
  EXPECT_EQ(exit_code(ErrorKind::diverged), 93);
  for (const ErrorKind kind : {ErrorKind::permission, ErrorKind::corrupt, ErrorKind::no_space,
                               ErrorKind::io, ErrorKind::peer}) {
    EXPECT_EQ(exit_code(kind), 1) << error_kind_name(kind);
  }
  EXPECT_EQ(exit_requeue, 75);
}

}  // namespace
}  // namespace tutti
