#include "tutti/base/hash.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace tutti {
namespace {

// Published value of XXH3_64bits of nothing with seed 0: checkpoints of today must verify for ever.
TEST(Hash, KnownAnswers) {
  EXPECT_EQ(hash_hex(hash_text("")), "2d06800538d394c2");
  EXPECT_EQ(hash_text("tutti"), hash_bytes("tutti", 5));
}

TEST(Hash, HexHasSixteenDigits) {
  EXPECT_EQ(hash_hex(0), "0000000000000000");
  EXPECT_EQ(hash_hex(0xabcULL), "0000000000000abc");
  EXPECT_EQ(hash_hex(~uint64_t{0}), "ffffffffffffffff");
}

std::string sample_text(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 131 + i / 251);
  return text;
}

TEST(Hasher, PiecesEqualTheWhole) {
  const std::string text = sample_text(5000);
  for (const size_t piece :
       {size_t{1}, size_t{3}, size_t{63}, size_t{256}, size_t{1024}, size_t{4999}, size_t{5000}}) {
    Hasher hasher;
    for (size_t at = 0; at < text.size(); at += piece) {
      hasher.update(text.data() + at, std::min(piece, text.size() - at));
    }
    EXPECT_EQ(hasher.digest(), hash_text(text)) << piece;
  }
}

TEST(Hasher, DigestDoesNotEndTheStream) {
  Hasher hasher;
  EXPECT_EQ(hasher.digest(), hash_text(""));
  hasher.update("tut", 3);
  EXPECT_EQ(hasher.digest(), hash_text("tut"));
  hasher.update("ti", 2);
  EXPECT_EQ(hasher.digest(), hash_text("tutti"));
}

TEST(Hasher, Moves) {
  Hasher first;
  first.update("tut", 3);
  Hasher second(std::move(first));
  second.update("ti", 2);
  EXPECT_EQ(second.digest(), hash_text("tutti"));
  Hasher third;
  third = std::move(second);
  EXPECT_EQ(third.digest(), hash_text("tutti"));
}

TEST(Hash, EveryFlippedBitChangesIt) {
  std::string text = sample_text(300);
  const uint64_t whole = hash_text(text);
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_NE(hash_text(text), whole) << bit;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
  }
}

}  // namespace
}  // namespace tutti
