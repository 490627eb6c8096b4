#include "tutti/chat/text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace tutti::chat {
namespace {

std::vector<std::string> bytes_of(const std::vector<Text>& texts) {
  std::vector<std::string> out;
  for (const Text& text : texts) out.push_back(text.bytes);
  return out;
}
using Strings = std::vector<std::string>;

TEST(ChatText, PositionsCountCodePoints) {
  const Text text("aé\U0001F600z");
  EXPECT_EQ(code_points(text.bytes), 4);
  EXPECT_EQ(slice_text(text, 1, 3, 1).bytes, "é\U0001F600");
  EXPECT_EQ(slice_text(text, std::nullopt, std::nullopt, -1).bytes, "z\U0001F600éa");
  EXPECT_EQ(slice_text(text, -1, std::nullopt, 1).bytes, "z");
  EXPECT_EQ(slice_text(text, INT64_MIN, INT64_MAX, INT64_MAX).bytes, "a");
  EXPECT_EQ(slice_text(text, INT64_MAX, INT64_MIN, INT64_MIN).bytes, "z");
  EXPECT_EQ(find_text(text.bytes, "z", false), 3);
}

// Every slice is compared with its definition.
TEST(ChatText, SlicesOfEveryKind) {
  const std::string all = "01234";
  for (int64_t start = -7; start <= 7; ++start) {
    for (int64_t stop = -7; stop <= 7; ++stop) {
      for (int64_t step = -3; step <= 3; ++step) {
        if (step == 0) continue;
        const int64_t size = 5;
        const auto clamp = [&](int64_t at) {
          if (at < 0) at += size;
          return step > 0 ? std::clamp<int64_t>(at, 0, size)
                          : std::clamp<int64_t>(at, -1, size - 1);
        };
        std::string expected;
        for (int64_t i = clamp(start); step > 0 ? i < clamp(stop) : i > clamp(stop); i += step) {
          expected += all[static_cast<size_t>(i)];
        }
        EXPECT_EQ(slice_text(Text(all), start, stop, step).bytes, expected);
      }
    }
  }
}

TEST(ChatText, SplitsAsPython) {
  const auto none = std::nullopt;
  EXPECT_EQ(bytes_of(split_text(Text(" a  b\u00a0c "), none, -1, false)), (Strings{"a", "b", "c"}));
  EXPECT_EQ(bytes_of(split_text(Text(" a b c "), none, 1, false)), (Strings{"a", "b c "}));
  EXPECT_EQ(bytes_of(split_text(Text(" a b c "), none, 1, true)), (Strings{" a b", "c"}));
  EXPECT_EQ(bytes_of(split_text(Text("a,,b"), ",", -1, false)), (Strings{"a", "", "b"}));
  EXPECT_EQ(bytes_of(split_text(Text("a,,b"), ",", 1, true)), (Strings{"a,", "b"}));
  EXPECT_EQ(bytes_of(split_text(Text(""), none, -1, false)), Strings{});
  EXPECT_EQ(bytes_of(split_text(Text(""), ",", -1, true)), Strings{""});
  EXPECT_EQ(bytes_of(split_lines(Text("a\r\nb\u2028c\n"), false)), (Strings{"a", "b", "c"}));
  EXPECT_EQ(bytes_of(split_lines(Text("a\n\nb"), true)), (Strings{"a\n", "\n", "b"}));
}

TEST(ChatText, StripsAndReplaces) {
  EXPECT_EQ(strip_text(Text("\t\u3000a \n"), std::nullopt, true, true).bytes, "a");
  EXPECT_EQ(strip_text(Text("éaé"), "é", true, false).bytes, "aé");
  // Bytes of a character are not characters: é is C3 A9, © is C2 A9.
  EXPECT_EQ(strip_text(Text("é"), "©", true, true).bytes, "é");
  EXPECT_EQ(replace_text(Text("aé"), "", Text("-"), -1).bytes, "-a-é-");
  EXPECT_EQ(replace_text(Text("aaa"), "a", Text("b"), 2).bytes, "bba");
  EXPECT_EQ(replace_text(Text("ab"), "", Text("-"), 1).bytes, "-ab");
}

}  // namespace
}  // namespace tutti::chat
