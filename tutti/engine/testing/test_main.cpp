// Runs the engine's tests on the device that TUTTI_TEST_DEVICE selects.
#include <gtest/gtest.h>

#include <cstdio>

#include "tutti/engine/testing/test_support.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const tutti::engine::Backend& backend = tutti::engine::testing::test_backend();
  const std::string missing = backend.missing();
  if (!missing.empty()) {
    constexpr int kSkipped = 77;
    std::printf("skipped: %s\n%d tests of the operations on '%s' did NOT run.\n", missing.c_str(),
                ::testing::UnitTest::GetInstance()->total_test_count(), backend.name);
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
