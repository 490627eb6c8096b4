#include "tutti/endpoint/answer_text.h"

#include <gtest/gtest.h>

#include "tutti/base/rng.h"
#include "tutti/base/text.h"

namespace tutti::endpoint {
namespace {

TEST(AnswerText, CharactersWaitUntilTheyAreWhole) {
  AnswerText text;
  text.add("a\xe2\x82");
  EXPECT_EQ(text.ready(), 1U);
  text.add("\xac");
  EXPECT_EQ(text.text(), "a\u20ac");
  EXPECT_EQ(text.ready(), 4U);
  text.add("\xf0\x9f\x98");
  EXPECT_EQ(text.ready(), 4U);
  text.finish();
  EXPECT_EQ(text.text(), "a\u20ac\ufffd");
  EXPECT_EQ(text.ready(), text.text().size());
}

// The rows of the Unicode standard's table 3-8 and of Python's bytes.decode(errors="replace").
TEST(AnswerText, WhatIsNoCharacterIsReplaced) {
  EXPECT_EQ(whole_characters("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"),
            "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\u0041");
  EXPECT_EQ(whole_characters("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"),
            "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\u0041");
  EXPECT_EQ(whole_characters("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"),
            "\ufffd\ufffd\ufffd\ufffd\ufffd\u0041\ufffd\ufffd\u0042");
  EXPECT_EQ(whole_characters("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"),
            "\ufffd\ufffd\ufffd\ufffd\u0041");
}

TEST(AnswerText, StopsNeverShow) {
  AnswerText text({"END", "\n\n"});
  text.add("one E");
  EXPECT_EQ(text.text().substr(0, text.ready()), "one ");
  text.add("N");
  EXPECT_EQ(text.ready(), 4U);
  text.add("x\n");  // none it was
  EXPECT_EQ(text.text().substr(0, text.ready()), "one ENx");
  text.add("E");
  EXPECT_EQ(text.text().substr(0, text.ready()), "one ENx\n");
  EXPECT_FALSE(text.is_stopped());
  text.add("NDless");
  EXPECT_TRUE(text.is_stopped());
  EXPECT_EQ(text.text(), "one ENx\n");
  text.add("more");
  text.finish();
  EXPECT_EQ(text.text(), "one ENx\n");
}

TEST(AnswerText, TheFirstStopCounts) {
  // "abcd" begins before "bc" but is whole after it.
  for (const char* bytes : {"xabc", "xabcd"}) {
    AnswerText text({"abcd", "bc"});
    text.add(bytes);
    EXPECT_TRUE(text.is_stopped());
    EXPECT_EQ(text.text(), "xa");
  }
  AnswerText longer({"b", "ab"});
  longer.add("xab");
  EXPECT_EQ(longer.text(), "x");
  AnswerText held({"aab"});
  held.add("aaa");
  EXPECT_EQ(held.ready(), 1U);
  held.add("b");
  EXPECT_EQ(held.text(), "a");
  AnswerText unfinished({"END"});
  unfinished.add("EN");
  unfinished.finish();
  EXPECT_EQ(unfinished.text().substr(0, unfinished.ready()), "EN");
}

// However bytes are cut into tokens, the text is the same, grows only at its end, and is UTF-8.
TEST(AnswerText, CutsDoNotMatter) {
  const uint64_t key = stream_key(11, "answer");
  uint64_t index = 0;
  const auto below = [&](size_t bound) { return random_u64(key, index++) % bound; };
  for (int round = 0; round < 500; ++round) {
    std::string bytes;
    for (size_t i = 0; i < 40; ++i) {
      constexpr std::string_view kKinds[] = {"a",    "b",    "\u00e9", "\u20ac", "\U0001f600",
                                             "\xe2", "\x80", "\xff",   "ab"};
      bytes += kKinds[below(std::size(kKinds))];
    }
    const std::vector<std::string> stops = round % 2 == 0
                                               ? std::vector<std::string>{"aab", "ab\u20ac", "b"}
                                               : std::vector<std::string>{};
    AnswerText whole(stops);
    whole.add(bytes);
    whole.finish();
    AnswerText pieces(stops);
    std::string shown;
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = std::min(1 + below(4), bytes.size() - at);
      pieces.add(std::string_view(bytes).substr(at, count));
      at += count;
      ASSERT_EQ(pieces.text().substr(0, shown.size()), shown);
      shown = pieces.text().substr(0, pieces.ready());
      ASSERT_TRUE(is_utf8(shown));
    }
    pieces.finish();
    ASSERT_EQ(pieces.text().substr(0, shown.size()), shown);
    ASSERT_EQ(pieces.text(), whole.text());
    for (const std::string& stop : stops) {
      ASSERT_EQ(pieces.text().find(stop), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tutti::endpoint
