#include "tutti/mlperf/record.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::mlperf {
namespace {

std::string with_value(const std::string& value) {
  return R"({"time_ms": 5, "key": "k", "value": )" + value + R"(, "metadata": {}})";
}

Record read_record(const std::string& text) {
  Record record;
  EXPECT_EQ(parse_record(text, record), "") << text;
  return record;
}

std::string wrong(const std::string& text) {
  Record record;
  return parse_record(text, record);
}

TEST(Record, Members) {
  const Record record = read_record(
      R"( {"namespace": "", "time_ms": 1714897740668, "event_type": "X", "key": "run_start",)"
      R"( "value": null, "metadata": {"file": "t.py", "lineno": 145}} )");
  EXPECT_EQ(record.time_ms, 1714897740668.0);
  EXPECT_EQ(record.key, "run_start");
  EXPECT_TRUE(record.value.is_null());
  EXPECT_EQ(record.metadata["lineno"], 145);
  EXPECT_FALSE(record.latin1);
}

TEST(Record, NumbersThatJsonCannotWrite) {
  EXPECT_TRUE(std::isnan(read_record(with_value("NaN")).value.get<double>()));
  EXPECT_EQ(read_record(with_value("Infinity")).value.get<double>(), HUGE_VAL);
  EXPECT_EQ(read_record(with_value("-Infinity")).value.get<double>(), -HUGE_VAL);
  EXPECT_EQ(read_record(with_value("1e999")).value.get<double>(), HUGE_VAL);
  EXPECT_EQ(read_record(with_value("[1, {\"a\": -1e999}]")).value[1]["a"].get<double>(), -HUGE_VAL);
  EXPECT_EQ(read_record(with_value(std::string(400, '9'))).value.get<double>(), HUGE_VAL);
  EXPECT_EQ(read_record(with_value("123456789012345678901234567890")).value.get<double>(),
            123456789012345678901234567890.0);
  // In text they are text.
  EXPECT_EQ(read_record(with_value(R"("NaN \" Infinity, 1e999")")).value,
            R"(NaN " Infinity, 1e999)");
}

TEST(Record, BytesThatAreNotUtf8AreLatin1) {
  const Record record = read_record(with_value("\"caf\xe9\""));
  EXPECT_TRUE(record.latin1);
  EXPECT_EQ(record.value, "caf\xc3\xa9");
  EXPECT_FALSE(read_record(with_value("\"caf\xc3\xa9\"")).latin1);
}

TEST(Record, WhatIsWrong) {
  EXPECT_NE(wrong("").find("not JSON"), std::string::npos);
  EXPECT_NE(wrong("[1, 2]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(wrong(R"({"time_ms": 1, "key": "k", "value": 1})").find("no 'metadata'"),
            std::string::npos);
  EXPECT_NE(wrong(R"({"time_ms": "x", "key": "k", "value": 1, "metadata": {}})").find("time_ms"),
            std::string::npos);
  EXPECT_NE(wrong(R"({"time_ms": NaN, "key": "k", "value": 1, "metadata": {}})").find("time_ms"),
            std::string::npos);
  EXPECT_NE(wrong(R"({"time_ms": 1, "key": 7, "value": 1, "metadata": {}})").find("'key'"),
            std::string::npos);
  EXPECT_NE(wrong(R"({"time_ms": "0x1", "key": "k", "value": 1, "metadata": {}})").find("time_ms"),
            std::string::npos);
  EXPECT_NE(wrong(with_value("NaN") + "}").find("not JSON"), std::string::npos);
}

TEST(Record, BoundsOnSizeAndDepth) {
  EXPECT_NE(wrong(with_value(std::string(1000, '[') + std::string(1000, ']'))).find("nested"),
            std::string::npos);
  EXPECT_NE(wrong(std::string(500'000, '[')).find("nested"), std::string::npos);
  EXPECT_NE(wrong(with_value("\"" + std::string(kLongestRecordBytes, 'a') + "\"")).find("bytes"),
            std::string::npos);
  // Brackets in text are not nesting.
  EXPECT_EQ(wrong(with_value("\"" + std::string(1000, '[') + "\"")), "");
}

}  // namespace
}  // namespace tutti::mlperf
