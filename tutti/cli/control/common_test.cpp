#include "tutti/cli/control/common.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"

namespace tutti::cli {
namespace {

TEST(Milliseconds, AcceptsOnlyFutureTimes) {
  EXPECT_EQ(parse_milliseconds("90min", "--time-limit"), 5'400'000);
  EXPECT_EQ(parse_milliseconds("1ms", "--time-limit"), 1);
  // 0 would be no limit at all, and a limit below it none either.
  for (const char* text : {"0", "0s", "-1h", "0.1ms", "200y", "soon", ""}) {
    EXPECT_THROW(parse_milliseconds(text, "--time-limit"), Error) << text;
  }
}

}  // namespace
}  // namespace tutti::cli
