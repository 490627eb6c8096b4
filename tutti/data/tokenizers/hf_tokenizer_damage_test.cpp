// Damaged files: each is refused with an error that names it, or is a tokenizer that encodes and
// decodes. What a crash would be, the sanitizers' build of this test sees.
#include <string>

#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/testing/test_support.h"
#include "tutti/data/tokenizers/tokenizer_source.h"

namespace tutti::data {
namespace {

const char* const kFiles[] = {
    R"({"added_tokens": [{"id": 7, "content": "<x>", "special": true, "lstrip": true, "rstrip": true},
      {"id": 8, "content": "ab", "single_word": true, "normalized": true}],
      "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip",
      "strip_left": true, "strip_right": true}, {"type": "Replace", "pattern": {"Regex": " {2,}"},
      "content": " "}, {"type": "Prepend", "prepend": "_"}]},
      "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "Split",
      "pattern": {"String": "-"}, "behavior": "MergedWithNext", "invert": false}, {"type": "Metaspace",
      "replacement": "▁", "prepend_scheme": "first", "split": true}]},
      "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"},
      "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ",
      "start": 1, "stop": 0}]},
      "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>"}},
      {"Sequence": {"id": "A"}}]},
      "model": {"type": "BPE", "unk_token": "?", "fuse_unk": true, "byte_fallback": true, "vocab":
      {"?": 0, "a": 1, "b": 2, "ab": 3, "▁": 4, "▁ab": 5, "<0x41>": 6},
      "merges": ["a b", ["▁", "ab"]]}})",
    R"({"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": [["?", 0], ["a", -1.5],
      ["▁a", -2], ["<0x41>", -3]]}, "normalizer": {"type": "Precompiled", "precompiled_charsmap":
      "EAAAAAAEAAAAAAAAAAAAAAAAAAAA"}, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder":
      {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}})",
    R"({"model": {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
      "max_input_chars_per_word": 9, "vocab": {"?": 0, "a": 1, "##b": 2}}, "normalizer": {"type":
      "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
      "lowercase": true}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece",
      "prefix": "##", "cleanup": true}, "post_processor": {"type": "BertProcessing", "sep": ["a", 1],
      "cls": ["a", 1]}})",
    R"({"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1}}, "pre_tokenizer":
      {"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Contiguous"}, {"type":
      "CharDelimiterSplit", "delimiter": "o"}]}})"};

void try_file(const std::string& text, int& refused) {
  MemoryFileSystem files;
  write_text(files, "t/tokenizer.json", text);
  TokenizerOptions options;
  options.special = true;
  options.begin = "model";
  try {
    const auto t = open_tokenizer(files, "t", options);
    const std::string sample =
        "ab  <x> 12-ab \xff\xc3\xa9 a\xe2\x96\x81"
        "Ab.";
    const std::vector<int32_t> ids = encode_start(*t, sample);
    t->decode(ids);
    EXPECT_LE(t->cut(sample, 9), size_t{9});
  } catch (const Error& error) {
    ++refused;
    const bool encoding = error.kind() == ErrorKind::usage;  // no token for a character
    EXPECT_TRUE(encoding || contains(error.what(), "t/tokenizer.json")) << error.what();
  }
}

TEST(HfTokenizerDamage, FilesThatEndEarly) {
  for (const char* file : kFiles) {
    const std::string text = file;
    int refused = 0;
    for (size_t bytes = 0; bytes < text.size(); ++bytes) try_file(text.substr(0, bytes), refused);
    EXPECT_EQ(refused, static_cast<int>(text.size()));
    refused = 0;
    try_file(text, refused);
    EXPECT_EQ(refused, 0) << text;
  }
}

TEST(HfTokenizerDamage, BytesThatAreOthers) {
  for (const char* file : kFiles) {
    int refused = 0;
    for (uint64_t seed = 0; seed < 4000; ++seed) {
      std::string text = file;
      for (uint64_t i = 0; i <= seed % 3; ++i) {
        const uint64_t draw = random_u64(seed, i);
        text[draw % text.size()] = "\"{}[]:,0129-aeT \\\xff"[draw / 65536 % 18];
      }
      try_file(text, refused);
    }
    EXPECT_GT(refused, 1000);
  }
}

// Puts `value` in the place of the `at`-th value within `node`, in order of the text.
bool replace_value(Json& node, int& at, const Json& value) {
  if (at-- == 0) {
    node = value;
    return true;
  }
  if (!node.is_structured()) return false;
  for (auto& child : node) {
    if (replace_value(child, at, value)) return true;
  }
  return false;
}

TEST(HfTokenizerDamage, ValuesOfOtherTypes) {
  const Json others[] = {nullptr,
                         true,
                         -1,
                         1e300,
                         int64_t{1} << 40,
                         "",
                         "Sequence",
                         "x",
                         Json::array(),
                         Json::object(),
                         {{"type", "Sequence"}},
                         Json::array({1, "a", nullptr})};
  for (const char* file : kFiles) {
    int refused = 0;
    for (const Json& other : others) {
      for (int position = 0; position < 200; ++position) {
        Json changed = parse_json(file, "test");
        int at = position;
        if (!replace_value(changed, at, other)) break;
        try_file(changed.dump(), refused);
      }
    }
    EXPECT_GT(refused, 100);
  }
}

TEST(HfTokenizerDamage, NestingWithoutEnd) {
  int refused = 0;
  try_file(std::string(1'000'000, '['), refused);
  std::string nested = R"({"model": {"type": "WordLevel", "vocab": {"?": 0}}, "normalizer": )";
  for (int i = 0; i < 100'000; ++i) nested += R"({"type": "Sequence", "normalizers": [)";
  try_file(nested, refused);
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace tutti::data
