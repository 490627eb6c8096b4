#include "tutti/data/tokenizers/hf_tokenizer.h"

#include <algorithm>
#include <array>
#include <string>
#include <thread>

#include "tutti/base/hash.h"
#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/prepare/prepare.h"
#include "tutti/data/testing/test_support.h"
#include "tutti/data/tokenizers/tokenizer_source.h"

namespace tutti::data {
namespace {

constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// GPT-2's alphabet of bytes.
std::string letter(int byte) {
  std::string out;
  int next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printed = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const int code = printed ? b : next++;
    if (b == byte) append_utf8(out, static_cast<char32_t>(code));
  }
  return out;
}

std::string spelled(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += letter(static_cast<unsigned char>(byte));
  return out;
}

// Ids: 0..255 the bytes, then one token per merge, then "<|endoftext|>".
Json byte_level_file(const std::vector<std::pair<std::string, std::string>>& merges,
                     const char* pattern = nullptr) {
  Json vocabulary = Json::object();
  Json list = Json::array();
  for (int b = 0; b < 256; ++b) vocabulary[letter(b)] = b;
  for (const auto& [left, right] : merges) {
    vocabulary[spelled(left + right)] = vocabulary.size();
    list.push_back(spelled(left) + " " + spelled(right));
  }
  const Json end = {{"id", vocabulary.size()}, {"content", "<|endoftext|>"}, {"special", true}};
  Json split = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  if (pattern != nullptr) {
    split["use_regex"] = false;
    split = {{"type", "Sequence"},
             {"pretokenizers",
              {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}},
               split}}};
  }
  return {{"added_tokens", {end}},
          {"pre_tokenizer", split},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", list}}}};
}

// The characters of Llama 2's kind: 0 unknown, 1..256 bytes, then marks and letters.
Json marked_file() {
  Json vocabulary = {{"<unk>", 0}};
  for (int b = 0; b < 256; ++b) vocabulary[fmt::format("<0x{:02X}>", b)] = b + 1;
  const std::string mark_ab = std::string("\xe2\x96\x81") + "ab";
  for (const std::string& token :
       std::vector<std::string>{"\xe2\x96\x81", "a", "b", "c", "ab", mark_ab}) {
    vocabulary[token] = vocabulary.size();
  }
  const Json mark = {{"String", "\xe2\x96\x81"}};
  return {
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"byte_fallback", true},
        {"fuse_unk", true},
        {"vocab", vocabulary},
        {"merges", Json::array({"a b", "\xe2\x96\x81 ab"})}}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "\xe2\x96\x81"}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\xe2\x96\x81"}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", mark}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}}};
}

std::unique_ptr<Tokenizer> open(MemoryFileSystem& files, const Json& file,
                                const TokenizerOptions& options = {}) {
  write_text(files, "t/tokenizer.json", file.dump());
  return open_tokenizer(files, "t/tokenizer.json", options);
}

void expect_cuts_and_rests(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> whole = tokenizer.encode(text);
  size_t previous = 0;
  for (size_t position = 0; position <= text.size(); ++position) {
    const size_t cut = tokenizer.cut(text, position);
    EXPECT_LE(cut, position);
    EXPECT_GE(cut, previous);
    previous = cut;
    std::vector<int32_t> ids;
    tokenizer.encode(text.substr(0, cut), ids);
    if (cut > 0) {
      tokenizer.encode_rest(text.substr(cut), ids);
    } else {
      tokenizer.encode(text, ids);
    }
    EXPECT_EQ(ids, whole) << position;
  }
  EXPECT_EQ(previous, text.size());
}

constexpr const char* kHard =
    "ab abc  ab<|endoftext|>ab\r\n\r\n 12345 can't \xc3\xa9\xcc\x81 \xe4\xb8\x96\xe7\x95\x8c!\n\n  "
    "x"
    "\xff\xc3 y\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9 \xe2\x96\x81 ab\xe3\x80\x80"
    "ab";

TEST(HfTokenizer, MergesByRankFromTheLeft) {
  MemoryFileSystem files;
  const auto t = open(files, byte_level_file({{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"a", "a"}}));
  EXPECT_EQ(t->vocabulary_size(), 261);
  EXPECT_EQ(t->encode("abc"), (std::vector<int32_t>{258}));
  EXPECT_EQ(t->encode("ab"), (std::vector<int32_t>{257}));
  EXPECT_EQ(t->encode("aaa"), (std::vector<int32_t>{259, 'a'}));
  EXPECT_EQ(t->encode("a b"), (std::vector<int32_t>{'a', ' ', 'b'}));
  EXPECT_TRUE(t->encode("").empty());
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(t->decode(t->encode(all)), all);
}

TEST(HfTokenizer, LongWordsAreMergedLikeShortOnes) {
  MemoryFileSystem files;
  const auto t = open(
      files, byte_level_file({{"a", "b"}, {"b", "a"}, {"ab", "ab"}, {"a", "a"}, {"abab", "a"}}));
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::string word;
    for (uint64_t i = 0; i < 40; ++i) word += random_u64(seed, i) % 3 == 0 ? 'b' : 'a';
    const std::vector<int32_t> whole = t->encode(word);  // linear
    // A byte that merges with nothing makes the word long without changing the rest.
    std::vector<int32_t> padded = t->encode(std::string(100, 'z') + word);  // through the heap
    padded.erase(padded.begin(), padded.begin() + 100);
    EXPECT_EQ(padded, whole) << word;
  }
  EXPECT_EQ(t->decode(t->encode(std::string(1 << 20, 'a'))).size(), size_t{1} << 20);
}

TEST(HfTokenizer, ControlTokensInTextAreTextByDefault) {
  MemoryFileSystem files;
  const Json file = byte_level_file({{"a", "b"}});
  const auto safe = open(files, file);
  EXPECT_EQ(safe->end_of_document(), 257);
  const std::string text = "ab<|endoftext|>ab";
  const std::vector<int32_t> ids = safe->encode(text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 257), 0);
  EXPECT_EQ(safe->decode(ids), text);
  TokenizerOptions options;
  options.special = true;
  options.end = "none";
  options.begin = "<|endoftext|>";
  const auto parsing = open(files, file, options);
  EXPECT_EQ(parsing->encode(text), (std::vector<int32_t>{256, 257, 256}));
  EXPECT_EQ(parsing->end_of_document(), kNoToken);
  EXPECT_EQ(parsing->begin_of_document(), std::vector<int32_t>{257});
}

TEST(HfTokenizer, MayBeCutWhereItSays) {
  MemoryFileSystem files;
  for (const bool special : {false, true}) {
    TokenizerOptions options;
    options.special = special;
    for (const char* pattern : {static_cast<const char*>(nullptr), kLlama3Pattern, "\\p{L}+"}) {
      Json file = byte_level_file({{"a", "b"}, {" ", "ab"}, {"ab", "c"}}, pattern);
      expect_cuts_and_rests(*open(files, file, options), kHard);
      file["normalizer"] = {{"type", "NFC"}};
      expect_cuts_and_rests(*open(files, file, options), kHard);
    }
    expect_cuts_and_rests(*open(files, marked_file(), options), kHard);
  }
}

TEST(HfTokenizer, MarkedKindPutsASpaceInFrontAndFallsBackToBytes) {
  MemoryFileSystem files;
  const auto t = open(files, marked_file());
  EXPECT_EQ(t->encode("ab ab"), (std::vector<int32_t>{262, 262}));
  EXPECT_EQ(t->encode("\xc3\xa9"), (std::vector<int32_t>{257, 0xc3 + 1, 0xa9 + 1}));
  EXPECT_EQ(t->decode(t->encode("ab \xff")), "ab \xff");
  EXPECT_EQ(t->decode_rest(t->encode("ab")), " ab");
}

TEST(HfTokenizer, ManyThreadsGiveTheSameIds) {
  MemoryFileSystem files;
  const auto t = open(files, byte_level_file({{"a", "b"}, {" ", "ab"}}));
  const std::vector<int32_t> expected = t->encode(kHard);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) EXPECT_EQ(t->encode(kHard), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HfTokenizer, ControlTokensAreFoundBesideIt) {
  MemoryFileSystem files;
  const Json file = byte_level_file({{"a", "b"}});
  write_text(files, "t/config.json", R"({"eos_token_id": [7, 8], "bos_token_id": 9})");
  EXPECT_EQ(open(files, file)->end_of_document(), 7);
  write_text(files, "t/tokenizer_config.json", R"({"eos_token": {"content": "ab"}})");
  EXPECT_EQ(open(files, file)->end_of_document(), 256);
  TokenizerOptions options;
  options.begin = "auto";
  EXPECT_EQ(open(files, file, options)->begin_of_document(), std::vector<int32_t>{9});
  options.begin = "model";  // transformers puts it there only where the post-processor does
  EXPECT_TRUE(open(files, file, options)->begin_of_document().empty());
  Json template_file = file;
  template_file["post_processor"] = parse_json(
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|endoftext|>"}}]})",
      "test");
  const auto with_template = open(files, template_file, options);
  EXPECT_EQ(with_template->begin_of_document(), std::vector<int32_t>{257});
  EXPECT_EQ(encode_start(*with_template, "ab"), (std::vector<int32_t>{257, 256}));
  EXPECT_EQ(encode_start(*open(files, file), ""), std::vector<int32_t>{256});
  options.begin = "<s>";
  const std::string message = error_of(ErrorKind::usage, [&] { open(files, file, options); });
  EXPECT_TRUE(contains(message, "--bos") && contains(message, "<s>")) << message;
}

TEST(HfTokenizer, IsStoredWithItsFilesUnchanged) {
  MemoryFileSystem files;
  write_text(files, "t/tokenizer_config.json", R"({"eos_token": "ab"})");
  const auto t = open(files, byte_level_file({{"a", "b"}}));
  write_text(files, "in/1", "ab ab");
  write_text(files, "in/2", "b");
  PrepareOptions options;
  options.sources = {"in"};
  options.prefix = "out/c";
  options.tokenizer = "t";
  options.tokenizer_options.begin = "<|endoftext|>";
  EXPECT_EQ(prepare(files, options).training.corpus.tokens, 3 + 1 + 4);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(read_file(files, join_path("out/c.tokenizer", name)),
              read_file(files, join_path("t", name)));
  }
  const auto loaded = load_tokenizer(files, "out/c");
  EXPECT_EQ(loaded->encode(kHard), t->encode(kHard));
  EXPECT_EQ(loaded->end_of_document(), 256);
  EXPECT_EQ(loaded->begin_of_document(), std::vector<int32_t>{257});
  EXPECT_EQ(tokenizer_hash(*loaded), hash_hex(hash_text(read_file(files, "t/tokenizer.json"))));
  write_text(files, "out/c.tokenizer/tokenizer.json", "{}");
  EXPECT_TRUE(contains(error_of(ErrorKind::corrupt, [&] { load_tokenizer(files, "out/c"); }),
                       "out/c.tokenizer/tokenizer.json"));
}

TEST(HfTokenizer, BrokenFilesAreClearErrors) {
  MemoryFileSystem files;
  const Json good = byte_level_file({{"a", "b"}});
  const auto opening = [&](ErrorKind kind, const auto& change) {
    Json file = good;
    change(file);
    return error_of(kind, [&] { open(files, file); });
  };
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_TRUE(contains(message, "t/tokenizer.json") && contains(message, part)) << message;
  };
  write_text(files, "t/tokenizer.json", good.dump().substr(0, 900));
  expect(error_of(ErrorKind::corrupt, [&] { open_tokenizer(files, "t"); }), "not valid JSON");
  expect(opening(ErrorKind::corrupt, [](Json& f) { f["model"]["merges"].push_back("a zz"); }),
         "\"zz\" is not a token");
  expect(opening(ErrorKind::corrupt, [](Json& f) { f["model"]["merges"].push_back("a c"); }),
         "\"ac\" is not a token");
  expect(opening(ErrorKind::corrupt, [](Json& f) { f["model"]["merges"].push_back("abc"); }),
         "two tokens");
  expect(opening(ErrorKind::corrupt, [](Json& f) { f["model"]["vocab"]["new"] = 7; }), "same id 7");
  expect(opening(ErrorKind::corrupt, [](Json& f) { f["added_tokens"][0]["id"] = 3; }), "same id 3");
  expect(opening(ErrorKind::corrupt, [](Json& f) { f["model"]["vocab"]["x"] = -1; }), "id -1");
  expect(opening(ErrorKind::corrupt, [](Json& f) { f.erase("model"); }), "no 'model'");
  expect(opening(ErrorKind::unsupported, [](Json& f) { f["model"]["type"] = "WordLevel"; }),
         "model.type 'WordLevel' with the pre-tokenizer or decoder ByteLevel");
  expect(opening(ErrorKind::unsupported, [](Json& f) { f["model"]["type"] = "Other"; }),
         "model.type 'Other' is not supported (BPE, Unigram, WordPiece, WordLevel are)");
  expect(opening(ErrorKind::unsupported, [](Json& f) { f["model"]["dropout"] = 0.1; }),
         "model.dropout '0.1'");
  expect(opening(ErrorKind::unsupported, [](Json& f) { f["normalizer"]["type"] = "ByteLevel"; }),
         "normalizer.type 'ByteLevel'");
  expect(opening(ErrorKind::unsupported,
                 [](Json& f) { f["pre_tokenizer"]["type"] = "UnicodeScripts"; }),
         "pre_tokenizer.type 'UnicodeScripts'");
  expect(opening(ErrorKind::unsupported, [](Json& f) { f["decoder"]["type"] = "CTC"; }),
         "decoder.type 'CTC'");
  expect(opening(ErrorKind::unsupported, [](Json& f) { f["post_processor"]["type"] = "X"; }),
         "post_processor.type 'X'");
  const auto with_pattern = [&](ErrorKind kind, const char* pattern) {
    return opening(kind, [&](Json& f) { f = byte_level_file({}, pattern); });
  };
  expect(with_pattern(ErrorKind::corrupt, "(unclosed"), "\"(unclosed\" is invalid at position 9");
  for (const char* other : {"\\h+", "\\bx", "[a-z[0-9]]", "[a-z&&b]", "a{1,3}+", "(?m:.)"}) {
    expect(with_pattern(ErrorKind::unsupported, other), "tokenizer.model");
  }
  error_of(ErrorKind::corrupt, [&] { open(files, good)->decode(std::vector<int32_t>{300}); });
}

TEST(UnicodeClasses, AreThoseOfTheLibrarysVersion) {
  struct Counts {
    std::string version;
    int64_t letters;
    int64_t numbers;
  };
  // Of UnicodeData.txt. Debian 12 has PCRE2 with Unicode 14, Debian 13 with 16.
  const std::array<Counts, 2> known = {{{"14", 131756, 1791}, {"16", 141028, 1911}}};
  const std::string version = pattern_unicode_version().substr(0, 2);
  const auto* expected = std::find_if(known.begin(), known.end(),
                                      [&](const Counts& each) { return each.version == version; });
  const UnicodeClasses& classes = unicode_classes();
  int64_t counts[4] = {};
  for (char32_t c = 0; c < 0x110000; ++c) ++counts[static_cast<size_t>(classes.of(c))];
  if (expected != known.end()) {
    EXPECT_EQ(counts[static_cast<size_t>(CharClass::letter)], expected->letters);
    EXPECT_EQ(counts[static_cast<size_t>(CharClass::number)], expected->numbers);
  }
  EXPECT_EQ(counts[static_cast<size_t>(CharClass::space)], 25);
  EXPECT_EQ(classes.of(0x180E), CharClass::other);
}

}  // namespace
}  // namespace tutti::data
