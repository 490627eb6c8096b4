// The tests of comm; or, as a rank that a test has started, one role (process_roles.h).
#include <gtest/gtest.h>

#include <cstdlib>

#include "tutti/comm/testing/process_roles.h"

int main(int argc, char** argv) {
  if (const char* role = std::getenv("TUTTI_TEST_ROLE"))
    return tutti::comm::testing::run_role(role);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
