#include "tutti/base/repeated_key.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(RepeatedKey, IsFoundAtAnyDepth) {
  std::optional<std::string> repeated;
  EXPECT_EQ(parse_json(R"({"a": [{"b": 1}, {"b": 2}], "b": {"a": 1}})", repeated)["b"]["a"], 1);
  EXPECT_FALSE(repeated);
  EXPECT_EQ(parse_json(R"({"a": 1, "b": {"c": 1}, "a": 2})", repeated)["a"], 2);
  EXPECT_EQ(repeated, "a");
  parse_json(R"([{"x": {"c": 1, "": 2, "": 3}}])", repeated);
  EXPECT_EQ(repeated, "");
  EXPECT_TRUE(parse_json("{", repeated).is_discarded());
  EXPECT_FALSE(repeated);
}

}  // namespace
}  // namespace tutti
