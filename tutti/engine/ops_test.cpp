#include "tutti/engine/ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tutti/engine/test_support.h"

namespace tutti::engine {
namespace {

TEST(OpTable, OfTheCpuIsComplete) {
  check_complete(cpu_ops());
  EXPECT_STREQ(cpu_ops().backend, "cpu");
  EXPECT_EQ(&testing::test_stream().ops(), &cpu_ops());
}

TEST(OpTableDeathTest, MissingEntryIsNamed) {
  OpTable table = cpu_ops();
  table.rope = nullptr;
  EXPECT_DEATH(check_complete(table), "backend cpu lacks operation rope");
  table = cpu_ops();
  table.convert = nullptr;
  EXPECT_DEATH(check_complete(table), "backend cpu lacks operation convert");
}

}  // namespace
}  // namespace tutti::engine
