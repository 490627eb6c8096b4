#include "tutti/base/json.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/base/error.h"
#include "tutti/base/pretty_json.h"

namespace tutti {
namespace {

template <typename Function>
std::string corrupt_message(Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Json, KeysKeepTheirOrder) {
  const Json value =
      parse_json(R"({"zebra": 1, "ape": [true, null], "mole": {"b": 2, "a": 1}})", "test");
  EXPECT_EQ(dump_json(value), R"({"zebra":1,"ape":[true,null],"mole":{"b":2,"a":1}})");
}

TEST(Json, RoundTripsNumbersExactly) {
  const Json value = {{"int", INT64_MIN}, {"uint", UINT64_MAX}, {"double", 0.1}};
  const Json back = parse_json(dump_json(value), "test");
  EXPECT_EQ(json_get<int64_t>(back, "int", "test"), INT64_MIN);
  EXPECT_EQ(json_get<uint64_t>(back, "uint", "test"), UINT64_MAX);
  EXPECT_EQ(json_get<double>(back, "double", "test"), 0.1);
}

TEST(Json, SyntaxErrorsNameOriginAndPosition) {
  for (const char* text : {"", "{", "{\"a\": }", "[1, 2", "{\"a\": 1} x", "nul"}) {
    const std::string message = corrupt_message([&] { parse_json(text, "run/manifest.json"); });
    EXPECT_TRUE(contains(message, "run/manifest.json")) << message;
    EXPECT_TRUE(contains(message, "column")) << message;
  }
}

TEST(Json, MissingAndMistypedMembersAreNamed) {
  const Json object = {{"steps", "ten"}};
  const std::string missing =
      corrupt_message([&] { json_get<int64_t>(object, "tokens", "meta.json"); });
  EXPECT_TRUE(contains(missing, "meta.json")) << missing;
  EXPECT_TRUE(contains(missing, "'tokens' is missing")) << missing;
  const std::string mistyped =
      corrupt_message([&] { json_get<int64_t>(object, "steps", "meta.json"); });
  EXPECT_TRUE(contains(mistyped, "'steps' has the wrong type")) << mistyped;
  EXPECT_TRUE(contains(mistyped, "\"ten\"")) << mistyped;
  corrupt_message([&] { json_get<int64_t>(Json::array(), "steps", "meta.json"); });
}

TEST(Json, InvalidUtf8IsReplaced) {
  const std::string text = dump_json(Json{{"path",
                                           "a\xff"
                                           "b"}});
  EXPECT_EQ(json_get<std::string>(parse_json(text, "test"), "path", "test"),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(pretty_json(Json{{"path", "a\xff"}}), "{\n  \"path\": \"a\xef\xbf\xbd\"\n}\n");
}

}  // namespace
}  // namespace tutti
