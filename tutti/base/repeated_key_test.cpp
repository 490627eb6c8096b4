#include "tutti/base/repeated_key.h"

#include <gtest/gtest.h>

#include <utility>

#include "tutti/base/error.h"

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
  // Colons and quotes in strings are not members.
  parse_json(R"({"a:\":": ":\\", "b\\": "\"c\": 1", "": [":", {"d": "::"}]})", repeated);
  EXPECT_FALSE(repeated);
  parse_json(R"({"a\"": "\\", "x": {"a\"": 1, "a\u0022": 2}})", repeated);
  EXPECT_EQ(repeated, "a\"");
  for (const char* none : {"3", "\"a: b\"", "[]", "{}", "null", "\"\""}) {
    EXPECT_FALSE(parse_json(none, repeated).is_discarded());
    EXPECT_FALSE(repeated) << none;
  }
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_TRUE(parse_json(deep, repeated).is_array());
  EXPECT_TRUE(parse_json("{", repeated).is_discarded());
  EXPECT_FALSE(repeated);
}

TEST(RepeatedKey, IsAnErrorThatNamesItsLine) {
  EXPECT_EQ(parse_unique_json(R"({"a": {"a": 1}})", "x.json")["a"]["a"], 1);
  for (const auto& [text, what] :
       {std::pair{R"({"a": {"b": 1, "b": 1}})", "x.json:3: the key 'b' is given twice"},
        std::pair{"{\"a\": ", "x.json:3: not valid JSON"}}) {
    try {
      parse_unique_json(text, "x.json:3");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
      EXPECT_EQ(std::string(error.what()).find(what), 0U) << error.what();
    }
  }
}

}  // namespace
}  // namespace tutti
