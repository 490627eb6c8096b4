#include "tutti/data/tokenizers/unigram.h"

#include <algorithm>
#include <string>

#include "tutti/base/rng.h"
#include "tutti/data/testing/test_support.h"
#include "tutti/data/tokenizers/prefix_trie.h"

namespace tutti::data {
namespace {

std::vector<UnigramPiece> pieces_of(uint64_t seed) {
  std::vector<UnigramPiece> pieces = {{"<unk>", 0, 0}};
  for (uint64_t i = 0; i < 60; ++i) {
    std::string text;
    for (uint64_t n = 0; n <= random_u64(seed, 2 * i) % 4; ++n) {
      text += static_cast<char>('a' + random_u64(seed + 1, 8 * i + n) % 3);
    }
    const double score = -static_cast<double>(random_u64(seed, 2 * i + 1) % 997) / 16;
    pieces.push_back({text, static_cast<int32_t>(i) + 1, score});
  }
  return pieces;
}

// The best sum of scores over all divisions of `text`, by trying every one.
double best_sum(const std::vector<UnigramPiece>& pieces, std::string_view text, double unknown) {
  if (text.empty()) return 0;
  double best = unknown + best_sum(pieces, text.substr(1), unknown);
  for (const UnigramPiece& piece : pieces) {
    if (!text.starts_with(piece.text)) continue;
    // Of equal pieces the last counts.
    const bool last = std::none_of(pieces.begin() + piece.id + 1, pieces.end(),
                                   [&](const auto& other) { return other.text == piece.text; });
    if (!last) continue;
    best = std::max(best, piece.score + best_sum(pieces, text.substr(piece.text.size()), unknown));
  }
  return best;
}

TEST(Unigram, NoDivisionHasAGreaterSum) {
  UnigramOptions options;
  options.unknown = 0;
  options.unknown_score = -100;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const std::vector<UnigramPiece> pieces = pieces_of(seed);
    const UnigramModel model(pieces, options);
    UnigramScratch scratch;
    std::string text;
    for (uint64_t i = 0; i < 12; ++i) text += static_cast<char>('a' + random_u64(seed + 7, i) % 3);
    std::vector<int32_t> ids;
    model.encode(text, scratch, ids);
    std::string spelled;
    double sum = 0;
    bool known = true;
    for (const int32_t id : ids) {
      known = known && id != 0;
      spelled += pieces[static_cast<size_t>(id)].text;
      sum += pieces[static_cast<size_t>(id)].score;
    }
    if (!known) continue;
    EXPECT_EQ(spelled, text);
    EXPECT_EQ(sum, best_sum(pieces, text, options.unknown_score)) << text;
  }
}

TEST(Unigram, UnknownCharactersAreOneTokenOrTheirBytes) {
  UnigramOptions options;
  options.unknown = 0;
  options.unknown_score = -20;
  const std::vector<UnigramPiece> pieces = {{"<unk>", 0, 0}, {"a", 1, -1}, {"aa", 2, -1.5}};
  UnigramScratch scratch;
  std::vector<int32_t> ids;
  UnigramModel(pieces, options)
      .encode(
          "aa\xc3\xa9\xe4\xb8\x96\xff"
          "a",
          scratch, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{2, 0, 1}));
  options.byte_fallback = true;
  for (int byte = 0; byte < 256; ++byte) options.byte_ids[byte] = 1000 + byte;
  ids.clear();
  UnigramModel(pieces, options)
      .encode(
          "\xc3\xa9"
          "a\xff",
          scratch, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{1000 + 0xc3, 1000 + 0xa9, 1, 1000 + 0xff}));
  options.byte_fallback = false;
  options.unknown = -1;
  EXPECT_TRUE(contains(
      error_of(ErrorKind::usage, [&] { UnigramModel(pieces, options).encode("b", scratch, ids); }),
      "\"b\""));
}

TEST(PrefixTrie, FindsWhatComparingFinds) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<std::string> keys;
    for (uint64_t i = 0; i < 1 + seed * 9; ++i) {
      std::string key;
      const uint64_t letters = seed % 3 == 0 ? 256 : 3;
      for (uint64_t n = 0; n < random_u64(seed, i) % 6; ++n) {
        key += static_cast<char>(random_u64(seed + 9, i * 8 + n) % letters);
      }
      keys.push_back(key);
    }
    std::vector<PrefixTrie::Key> numbered;
    for (const std::string& key : keys) {
      numbered.emplace_back(key, static_cast<int32_t>(numbered.size()));
    }
    const PrefixTrie trie(numbered);
    for (const std::string& key : keys) {
      const std::string text = key + std::string("\x01\x02\xff", 3);
      std::vector<std::pair<size_t, int32_t>> expected;
      for (size_t bytes = 1; bytes <= text.size(); ++bytes) {
        for (size_t i = keys.size(); i-- > 0;) {
          if (keys[i] != text.substr(0, bytes)) continue;
          expected.emplace_back(bytes, static_cast<int32_t>(i));
          break;
        }
      }
      std::vector<std::pair<size_t, int32_t>> found;
      trie.prefixes(text, [&](size_t bytes, int32_t value) { found.emplace_back(bytes, value); });
      EXPECT_EQ(found, expected);
    }
  }
}

}  // namespace
}  // namespace tutti::data
