// The report of a kernel's failed check is in the message of the call that detects the fault.
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

TEST(DeviceFaultDeathTest, ReportOfAKernelIsInTheMessage) {
  if (on_cpu()) GTEST_SKIP() << "skipped: needs a device";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a driver does not survive a fork
  const TestMatrix table = random_matrix(5, 8);
  TestMatrix tokens = random_tokens(3, 5);
  tokens.set(0, 1, 50304);
  const TestMatrix out = poisoned_matrix(3, 8);
  const EmbeddingForwardArgs args{
      .tokens = tokens, .sequence = 3, .token_table = table, .out = out};
  EXPECT_DEATH(test_stream().ops().embedding_forward(test_stream(), args),
               "embedding_forward: device 0: .*; a kernel trapped: token outside the "
               "vocabulary .token, row.: 50304, 1 .block");
}

}  // namespace
}  // namespace tutti::engine::testing
