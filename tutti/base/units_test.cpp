#include "tutti/base/units.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {
namespace {

template <typename Function>
void expect_usage(Function function, const std::string& key, const std::string& value) {
  try {
    function();
    ADD_FAILURE() << key << " accepted '" << value << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    const std::string message = error.what();
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find("'" + value + "'"), std::string::npos) << message;
  }
}

TEST(Units, Bytes) {
  EXPECT_EQ(parse_bytes("512", "k"), 512);
  EXPECT_EQ(parse_bytes("512B", "k"), 512);
  EXPECT_EQ(parse_bytes("64KiB", "k"), 65536);
  EXPECT_EQ(parse_bytes(" 10 MiB ", "k"), 10485760);
  EXPECT_EQ(parse_bytes("1.5GiB", "k"), 1610612736);
  EXPECT_EQ(parse_bytes("2GB", "k"), 2000000000);
  EXPECT_EQ(parse_bytes("1TiB", "k"), int64_t{1} << 40);
  EXPECT_EQ(parse_bytes("9223372036854775807", "k"), INT64_MAX);  // exact, not through double
}

TEST(Units, Seconds) {
  EXPECT_EQ(parse_seconds("90", "k"), 90);
  EXPECT_EQ(parse_seconds("90s", "k"), 90);
  EXPECT_EQ(parse_seconds("500ms", "k"), 0.5);
  EXPECT_EQ(parse_seconds("10min", "k"), 600);
  EXPECT_EQ(parse_seconds("1.5h", "k"), 5400);
  EXPECT_EQ(parse_seconds("2 d", "k"), 172800);
}

TEST(Units, Counts) {
  EXPECT_EQ(parse_count("2000", "k"), 2000);
  EXPECT_EQ(parse_count("10k", "k"), 10000);
  EXPECT_EQ(parse_count("1.5M", "k"), 1500000);
  EXPECT_EQ(parse_count("0.57k", "k"), 570);  // 0.57 has no exact double
  EXPECT_EQ(parse_count("3B", "k"), 3000000000);
  EXPECT_EQ(parse_count("15.6T", "k"), 15600000000000);
  EXPECT_EQ(parse_count("1e3", "k"), 1000);
  EXPECT_EQ(parse_count("-1", "k"), -1);
  EXPECT_EQ(parse_count("9007199254740993", "k"), 9007199254740993);  // 2^53 + 1
}

TEST(Units, ErrorsNameKeyAndValue) {
  for (const std::string value :
       {"", "abc", "12 apples", "1,000", "0x10", "nan", "inf", "--1", "5 5", "1e999", "10m"}) {
    expect_usage([&] { parse_count(value, "train.steps"); }, "train.steps", value);
    expect_usage([&] { parse_seconds(value, "checkpoint.every"); }, "checkpoint.every", value);
    expect_usage([&] { parse_bytes(value, "data.buffer"); }, "data.buffer", value);
  }
  for (const std::string value : {"1.5", "0.1234k", "1000000.5", "1e19", "99999999999999999999"}) {
    expect_usage([&] { parse_count(value, "train.steps"); }, "train.steps", value);
  }
  expect_usage([&] { parse_bytes("10kib", "data.buffer"); }, "data.buffer", "10kib");
  expect_usage([&] { parse_seconds("10MiB", "checkpoint.every"); }, "checkpoint.every", "10MiB");
}

TEST(Units, FormatBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1.5 * 1073741824), "1.50 GiB");
  EXPECT_EQ(format_bytes(-2048), "-2.00 KiB");
}

TEST(Units, FormatSeconds) {
  EXPECT_EQ(format_seconds(25e-6), "25 us");
  EXPECT_EQ(format_seconds(0.85), "850 ms");
  EXPECT_EQ(format_seconds(12.3), "12.3 s");
  EXPECT_EQ(format_seconds(125), "2 min 05 s");
  EXPECT_EQ(format_seconds(3 * 3600 + 7 * 60), "3 h 07 min");
  EXPECT_EQ(format_seconds(3 * 86400 + 5 * 3600), "3 d 5 h");
  EXPECT_EQ(format_seconds(8.64e24), "1e+20 d");
  EXPECT_EQ(format_seconds(0.0 / 0.0), "?");
}

TEST(Units, FormatCount) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(12345), "12,345");
  EXPECT_EQ(format_count(-1005), "-1,005");
  EXPECT_EQ(format_count(100000), "100 k");
  EXPECT_EQ(format_count(124439808), "124.4 M");
  EXPECT_EQ(format_count(8.03e9), "8.03 B");
  EXPECT_EQ(format_rate(12345.6, "tokens"), "12.35 k tokens/s");
}

TEST(Units, FormattedBytesReadBack) {
  for (const int64_t bytes : {0L, 17L, 1024L, 3L << 20, 5L << 30, 7L << 40}) {
    EXPECT_EQ(parse_bytes(format_bytes(static_cast<double>(bytes)), "k"), bytes);
  }
}

}  // namespace
}  // namespace tutti
