#include "tutti/catalog/entry.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"

namespace tutti::catalog {
namespace {

constexpr const char* kChip =
    "kind: chip\n"
    "name: X1\n"
    "aliases: [X1-SXM]\n"
    "source: {text: data sheet, date: 2026-01-02}\n"
    "texts: {vendor: Y, generation: z}\n"
    "quantities:\n"
    "  dense_bf16_tflops: 100\n"
    "  board_power_watts: {value: 50, source: label, date: 2025-12-31}\n";

std::string message_of(const std::string& text) {
  try {
    parse_entry(text, "f.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = kChip;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST(Entry, ReadsNamesNumbersAndTheirSources) {
  const Entry entry = parse_entry(kChip, "f.yaml");
  EXPECT_EQ(entry.kind, "chip");
  EXPECT_TRUE(entry.answers_to("x1-sxm"));
  EXPECT_FALSE(entry.answers_to("x2"));
  EXPECT_EQ(entry.number("dense_bf16_tflops"), 100);
  EXPECT_EQ(entry.quantities.at("dense_bf16_tflops").source, "data sheet");
  EXPECT_EQ(entry.quantities.at("board_power_watts").date, "2025-12-31");
  EXPECT_EQ(entry.number_or("absent_watts", 3), 3);
  EXPECT_THROW(entry.number("absent_watts"), Error);
}

TEST(Entry, LongestUnitSuffixWins) {
  EXPECT_EQ(unit_of("memory_terabytes_per_second"), "terabytes_per_second");
  EXPECT_EQ(unit_of("latency_microseconds"), "microseconds");
  EXPECT_EQ(unit_of("board_power"), std::nullopt);
}

TEST(Entry, ErrorsNameFileKeyAndRemedy) {
  const std::string no_unit = message_of(with("board_power_watts", "board_power"));
  EXPECT_NE(no_unit.find("f.yaml:8: quantities.board_power: has no unit"), std::string::npos)
      << no_unit;
  EXPECT_NE(message_of(with("date: 2026-01-02", "date: January")).find("YYYY-MM-DD"),
            std::string::npos);
  EXPECT_NE(message_of(with("text: data sheet, ", "")).find("has no source"), std::string::npos);
  EXPECT_NE(message_of(with("2025-12-31", "2025-13-31")).find("2025-13-31"), std::string::npos);
  EXPECT_NE(message_of(with("100", "-1")).find("zero or more"), std::string::npos);
  EXPECT_NE(message_of(with("100", "many")), "");
  EXPECT_NE(message_of(with("kind: chip\n", "")).find("kind: is missing"), std::string::npos);
  EXPECT_NE(message_of(with("aliases", "alliases")).find("alliases"), std::string::npos);
}

}  // namespace
}  // namespace tutti::catalog
