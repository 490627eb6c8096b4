#include "tutti/base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

TEST(Text, Trim) {
  EXPECT_EQ(trim("  a b \r\n"), "a b");
  EXPECT_EQ(trim("a"), "a");
  EXPECT_EQ(trim(" \t\v\f "), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Text, SplitKeepsEmptyParts) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split("a.b.c", '.'), (Parts{"a", "b", "c"}));
  EXPECT_EQ(split("", '.'), (Parts{""}));
  EXPECT_EQ(split(".a..", '.'), (Parts{"", "a", "", ""}));
}

TEST(Text, JoinIsTheInverseOfSplit) {
  for (const std::string text : {"a,b,c", "", ",", "a,,b,"}) {
    std::vector<std::string> parts;
    for (const std::string_view part : split(text, ',')) parts.emplace_back(part);
    EXPECT_EQ(join(parts, ","), text);
  }
  EXPECT_EQ(join({}, ","), "");
  EXPECT_EQ(join({"a", "b"}, " or "), "a or b");
}

TEST(Text, StartsAndEndsWith) {
  EXPECT_TRUE(starts_with("corpus.idx", "corpus"));
  EXPECT_TRUE(starts_with("a", ""));
  EXPECT_FALSE(starts_with("a", "ab"));
  EXPECT_TRUE(ends_with("corpus.idx", ".idx"));
  EXPECT_TRUE(ends_with("a", ""));
  EXPECT_FALSE(ends_with("idx", ".idx"));
}

TEST(Text, NearestWordSuggestsLikelyTypingErrorsOnly) {
  const std::vector<std::string> keys = {"learning_rate", "weight_decay", "beta1", "beta2", "lr"};
  EXPECT_EQ(nearest_word("learning_rte", keys), "learning_rate");
  EXPECT_EQ(nearest_word("learnin_rates", keys), "learning_rate");
  EXPECT_EQ(nearest_word("weigth_decay", keys), "weight_decay");
  EXPECT_EQ(nearest_word("beta2", keys), "beta2");
  EXPECT_EQ(nearest_word("beta", keys), "beta1");  // of equals, the first
  EXPECT_EQ(nearest_word("momentum", keys), "");
  EXPECT_EQ(nearest_word("xy", keys), "");  // every letter differs
  EXPECT_EQ(nearest_word("beta1", {}), "");
}

TEST(Text, TableAlignsColumnsAndNumbersRight) {
  EXPECT_EQ(format_table({{"name", "GFLOP/s", "note"}, {"gemm", "455.1", "ok"}, {"a", "7", ""}}),
            "name  GFLOP/s  note\n"
            "gemm    455.1  ok\n"
            "a           7\n");
  EXPECT_EQ(format_table({}), "");
}

TEST(Text, TableCountsCharactersNotBytes) {
  EXPECT_EQ(format_table({{"\xc3\xa4\xc3\xb6", "1"}, {"abc", "2"}}),
            "\xc3\xa4\xc3\xb6   1\n"
            "abc  2\n");
}

TEST(Text, PrintableEscapesControlBytes) {
  EXPECT_EQ(printable("tab\tline\n"), "tab\tline\n");
  EXPECT_EQ(printable("\x1b[31m"), "\\x1b[31m");  // no terminal escape survives
  EXPECT_EQ(printable(std::string_view("a\0b\x7f", 4)), "a\\x00b\\x7f");
  EXPECT_EQ(printable("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x8e\xb5"),
            "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x8e\xb5");
}

TEST(Text, IsUtf8) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x8e\xb5"));
  EXPECT_FALSE(is_utf8("a\xe4"));
  EXPECT_FALSE(is_utf8("\xc3"));
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));  // a surrogate
}

TEST(Text, PrintableShowsInvalidUtf8) {
  EXPECT_EQ(printable("\xff"
                      "a"),
            "\\xffa");
  EXPECT_EQ(printable("\xc3"), "\\xc3");                             // cut off
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
}

}  // namespace
}  // namespace tutti
