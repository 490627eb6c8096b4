#include "tutti/data/tokenizers/text_decoder.h"

#include <gtest/gtest.h>

namespace tutti::data {
namespace {

using Kind = DecodeStep::Kind;
using Ids = std::vector<int32_t>;

DecodeStep marks(bool first) {
  DecodeStep step{Kind::marks, "_"};
  step.first = first;
  return step;
}

TEST(TextDecoder, TheFirstTokenLosesItsMarksOnlyAtTheStart) {
  const TextDecoder decoder({marks(true)}, {"_a", "__b", "c"});
  EXPECT_EQ(decoder.decode(Ids{1, 0, 2}, false), "b ac");
  EXPECT_EQ(decoder.decode(Ids{1, 0, 2}, true), "  b ac");
  EXPECT_EQ(TextDecoder({marks(false)}, {"_a"}).decode(Ids{0}, false), " a");
  EXPECT_EQ(decoder.decode(Ids{}, false), "");
}

TEST(TextDecoder, RunsOfByteTokensAreText) {
  // A mark spelled in bytes is a mark.
  const std::vector<std::string> tokens = {"<0x5F>", "<0xC3>", "<0xA9>", "x", "<0xZZ>"};
  const TextDecoder decoder({{Kind::byte_fallback}, marks(false)}, tokens);
  EXPECT_EQ(decoder.decode(Ids{3, 0, 1, 2, 4}, false), "x \xc3\xa9<0xZZ>");
  EXPECT_EQ(decoder.decode(Ids{1, 3, 2}, false), "\xc3x\xa9");  // no UTF-8, but nothing is lost
  EXPECT_EQ(TextDecoder({marks(false)}, tokens).decode(Ids{0}, false), "<0x5F>");
}

TEST(TextDecoder, StripsTokensBeforeAndTheTextAfterTheyAreJoined) {
  DecodeStep strip{Kind::strip, " "};
  strip.start = 1;
  strip.stop = 2;
  const std::vector<std::string> tokens = {"  a  ", "b   "};
  EXPECT_EQ(TextDecoder({strip, {Kind::fuse}}, tokens).decode(Ids{0, 1}, false), " ab ");
  const TextDecoder joined({{Kind::fuse}, strip}, tokens);
  EXPECT_EQ(joined.decode(Ids{0, 1}, false), " a  b ");
  EXPECT_EQ(joined.decode(Ids{0, 1}, true), "  a  b   ");
}

TEST(TextDecoder, WordPiecesAreWordsAgain) {
  const TextDecoder decoder({{Kind::word_piece, "##"}, {Kind::clean_up}},
                            {"play", "##ing", ".", "n't"});
  EXPECT_EQ(decoder.decode(Ids{0, 1, 0, 3, 2}, false), "playing playn't.");
  EXPECT_EQ(decoder.decode(Ids{1, 0}, false), "##ing play");
  EXPECT_EQ(TextDecoder({{Kind::space_between}}, {"a", "b"}).decode(Ids{0, 1}, false), "a b");
  EXPECT_EQ(TextDecoder({{Kind::space_between}}, {"a", "b"}).decode(Ids{0, 1}, true), " a b");
}

}  // namespace
}  // namespace tutti::data
