#include "tutti/engine/ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

TEST(OpTable, OfTheBackendIsComplete) {
  const OpTable& table = testing::test_backend().ops();
  check_complete(table);
  EXPECT_STREQ(table.backend, testing::test_backend().name);
  EXPECT_EQ(&testing::test_stream().ops(), &table);
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
