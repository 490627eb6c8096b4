#include "tutti/telemetry/sinks/console.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "tutti/telemetry/testing/test_support.h"

namespace tutti::telemetry {
namespace {

using testing::Screen;

TEST(Console, BarIsAsWideAsAsked) {
  EXPECT_EQ(progress_bar(0, 12), "[..........]");
  EXPECT_EQ(progress_bar(0.5, 12), "[#####.....]");
  EXPECT_EQ(progress_bar(1, 12), "[##########]");
  EXPECT_EQ(progress_bar(7, 12), "[##########]");
  EXPECT_EQ(progress_bar(std::numeric_limits<double>::quiet_NaN(), 4), "[..]");
}

TEST(Console, StatusLineIsRedrawnInPlace) {
  const Screen screen;
  StatusLine status(screen.console(true, 10));
  status.show("0123456789abc");
  EXPECT_EQ(screen.take(), "\r\x1b[K012345678");  // the last column stays free
  status.print("stays");
  EXPECT_EQ(screen.take(), "\r\x1b[Kstays\n012345678");
  status.clear();
  EXPECT_EQ(screen.take(), "\r\x1b[K");
  status.clear();
  EXPECT_EQ(screen.take(), "");
}

TEST(Console, WithoutTerminalThereIsNoControlSequence) {
  const Screen screen;
  StatusLine status(screen.console(false));
  status.show("never seen");
  status.print("line", Tint::warning);
  status.clear();
  EXPECT_EQ(screen.take(), "line\n");
}

TEST(Console, ColorOnlyWhereAllowed) {
  const Screen screen;
  StatusLine colored(screen.console(true, 80, true));
  colored.print("careful", Tint::warning);
  EXPECT_EQ(screen.take(), "\x1b[33mcareful\x1b[0m\n");
  StatusLine plain(screen.console(true, 80, false));
  plain.print("careful", Tint::warning);
  EXPECT_EQ(screen.take(), "careful\n");
}

// A file name cannot move the cursor of a terminal.
TEST(Console, ControlBytesAreShownNotSent) {
  const Screen screen;
  StatusLine status(screen.console(false));
  status.print("bad \x1b[2J name");
  EXPECT_EQ(screen.take().find('\x1b'), std::string::npos);
}

TEST(Console, StandardErrorWithoutTerminalIsPlain) {
  ::testing::internal::CaptureStderr();
  const Console console = stderr_console();
  console.write("to standard error");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "to standard error");
  EXPECT_FALSE(console.terminal);
  EXPECT_FALSE(console.color);
  EXPECT_GT(console.columns(), 0);
}

}  // namespace
}  // namespace tutti::telemetry
