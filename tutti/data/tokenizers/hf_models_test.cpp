// Models beside BPE, and the steps before and after them, on files small enough to see through.
#include <string>

#include "tutti/base/testing/memory_file.h"
#include "tutti/data/testing/test_support.h"
#include "tutti/data/tokenizers/hf_tokenizer.h"
#include "tutti/data/tokenizers/tokenizer_source.h"

namespace tutti::data {
namespace {

using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> open(MemoryFileSystem& files, const std::string& file,
                                const TokenizerOptions& options = {}) {
  write_text(files, "t/tokenizer.json", file);
  return open_tokenizer(files, "t/tokenizer.json", options);
}

// A vocabulary of words whose ids are their indices.
std::string word_level(const std::string& words, const std::string& rest) {
  std::string vocabulary;
  int id = 0;
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    vocabulary += fmt::format("{}\"{}\": {}", id == 0 ? "" : ", ", words.substr(at, end - at), id);
    ++id;
    at = end + 1;
  }
  return fmt::format(R"({{"model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "?"}}{}}})",
                     vocabulary, rest);
}

TEST(HfModels, WordLevelLooksWordsUp) {
  MemoryFileSystem files;
  const auto t =
      open(files, word_level("? ab c, ! _", R"(, "pre_tokenizer": {"type": "Whitespace"})"));
  EXPECT_EQ(t->name(), "wordlevel");
  EXPECT_EQ(t->vocabulary_size(), 5);
  EXPECT_EQ(t->encode(" ab\n ab!x "), (Ids{1, 1, 3, 0}));
  EXPECT_EQ(t->decode(Ids{1, 3}), "ab !");
}

TEST(HfModels, WordPieceTakesTheLongestPiecesOrNone) {
  MemoryFileSystem files;
  const auto t = open(files, R"({"model": {"type": "WordPiece", "unk_token": "?",
    "max_input_chars_per_word": 5, "vocab": {"?": 0, "p": 1, "pl": 2, "##ay": 3, "##a": 4, "##y": 5}},
    "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
    "decoder": {"type": "WordPiece"},
    "post_processor": {"type": "BertProcessing", "sep": ["?", 0], "cls": ["pl", 2]}})");
  EXPECT_EQ(t->name(), "wordpiece");
  EXPECT_EQ(t->encode("PL\xc3\x81Y pla\ty play?plz"), (Ids{2, 3, 2, 4, 0, 2, 3, 0, 0}));
  EXPECT_EQ(t->encode("playay"), Ids{0});  // longer than a word may be
  EXPECT_EQ(t->decode(Ids{2, 3, 1}), "play p");
  TokenizerOptions options;
  options.begin = "model";
  EXPECT_EQ(open_tokenizer(files, "t", options)->begin_of_document(), Ids{2});
}

TEST(HfModels, UnigramWithCompiledRules) {
  MemoryFileSystem files;
  // One rule: U+00A0 becomes a space. Units: the root at 0, 'C2' and 'A0' in blocks of 256, a
  // value.
  std::vector<uint32_t> units(1024, 0);
  units[0] = 256U << 10;
  units[256 ^ 0xC2] = 0xC2 | ((256U ^ 0xC2) ^ 512) << 10;
  units[512 ^ 0xA0] = 0xA0 | 1U << 8 | ((512U ^ 0xA0) ^ 768) << 10;
  units[768] = 1U << 31 | 0;
  std::string blob = {0, 16, 0, 0};
  for (const uint32_t unit : units) {
    for (int shift = 0; shift < 32; shift += 8) blob += static_cast<char>(unit >> shift & 0xFF);
  }
  blob += std::string(" \0", 2);
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string base64;
  uint32_t bits = 0;
  int count = 0;
  for (const char byte : blob) {
    bits = bits << 8 | static_cast<unsigned char>(byte);
    for (count += 8; count >= 6; count -= 6) base64 += kDigits[bits >> (count - 6) & 63];
  }
  if (count > 0) base64 += kDigits[bits << (6 - count) & 63];
  const auto file = [&](const std::string& map) {
    return fmt::format(
        R"({{"model": {{"type": "Unigram", "unk_id": 0, "vocab": [["?", 0], ["{0}", -2], ["a", -3],
        ["b", -3], ["{0}a", -4], ["ab", -7]]}}, "pre_tokenizer": {{"type": "Metaspace"}},
        "decoder": {{"type": "Metaspace"}}, "normalizer": {{"type": "Precompiled",
        "precompiled_charsmap": "{1}"}}}})",
        "\xe2\x96\x81", map);
  };
  const auto t = open(files, file(base64));
  EXPECT_EQ(t->name(), "unigram");
  EXPECT_EQ(t->encode("ab\xc2\xa0"
                      "a"),
            (Ids{4, 3, 4}));
  EXPECT_EQ(t->encode("\xc2\xa0"), (Ids{1}));
  EXPECT_EQ(t->encode("xya"), (Ids{1, 0, 2}));
  EXPECT_EQ(t->decode(Ids{4, 3, 4}), "ab a");
  EXPECT_EQ(t->decode_rest(Ids{4, 3}), " ab");
  EXPECT_TRUE(
      contains(error_of(ErrorKind::corrupt, [&] { open(files, file(base64.substr(0, 400))); }),
               "charsmap of 300 bytes"));
  EXPECT_TRUE(contains(error_of(ErrorKind::corrupt, [&] { open(files, file("A*")); }), "base 64"));
}

TEST(HfModels, SplitBehaviorsAreApplied) {
  MemoryFileSystem files;
  const auto split = [&](const char* behavior, bool invert, std::string_view text) {
    const auto t = open(files, word_level("? a - -- b a- -a -b b- a-- --b",
                                          fmt::format(R"(, "decoder": {{"type": "Fuse"}},
        "pre_tokenizer": {{"type": "Split", "pattern": {{"String": "-"}}, "behavior": "{}",
        "invert": {}}})",
                                                      behavior, invert)));
    std::string words;
    for (const int32_t id : t->encode(text)) words += t->decode(Ids{id}) + " ";
    return words;
  };
  EXPECT_EQ(split("Isolated", false, "a--b"), "a - - b ");
  EXPECT_EQ(split("Removed", false, "-a--b"), "a b ");
  EXPECT_EQ(split("Removed", true, "-a--b"), "- - - ");
  EXPECT_EQ(split("Contiguous", false, "a--b-"), "a -- b - ");
  EXPECT_EQ(split("MergedWithPrevious", false, "-a--b"), "- a- - b ");
  EXPECT_EQ(split("MergedWithNext", false, "a--b-"), "a - -b - ");
  EXPECT_EQ(split("MergedWithNext", true, "a-b"), "a- b ");
}

TEST(HfModels, SeveralTokensStartAText) {
  MemoryFileSystem files;
  TokenizerOptions options;
  options.begin = "model";
  const auto file = [](const std::string& second) {
    return word_level("? m s z", R"(, "pre_tokenizer": {"type": "WhitespaceSplit"},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "m"}},
    {"SpecialToken": {"id": ")" + second +
                                     R"("}}, {"Sequence": {"id": "A"}},
    {"SpecialToken": {"id": "z"}}]})");
  };
  const auto t = open(files, file("s"), options);
  EXPECT_EQ(t->begin_of_document(), (Ids{1, 2}));
  EXPECT_EQ(encode_start(*t, "z z"), (Ids{1, 2, 3, 3}));
  EXPECT_EQ(t->decode(Ids{1, 2, 3}), "z");
  store_tokenizer(files, *t, "s/stored.json");
  EXPECT_EQ(load_tokenizer_file(files, "s/stored.json")->begin_of_document(), (Ids{1, 2}));
  std::string stored = read_file(files, "s/stored.json");
  stored.replace(stored.find("wordlevel"), 9, "wordpiece");
  write_text(files, "s/stored.json", stored);
  EXPECT_TRUE(
      contains(error_of(ErrorKind::corrupt, [&] { load_tokenizer_file(files, "s/stored.json"); }),
               "name is 'wordpiece'"));
  EXPECT_TRUE(contains(error_of(ErrorKind::corrupt, [&] { open(files, file("q"), options); }),
                       "post_processor puts \"q\""));
}

}  // namespace
}  // namespace tutti::data
