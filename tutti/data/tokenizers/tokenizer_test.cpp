#include "tutti/data/tokenizers/tokenizer.h"

#include "tutti/base/testing/memory_file.h"
#include "tutti/data/testing/test_support.h"
#include "tutti/data/tokenizers/byte_tokenizer.h"
#include "tutti/data/tokenizers/char_tokenizer.h"

namespace tutti::data {
namespace {

constexpr const char* kText = "Grüße, \xe4\xb8\x96\xe7\x95\x8c \xf0\x9f\x8e\xb5\n";

CharTokenizer char_tokenizer_of(std::string_view text, bool with_end) {
  CharacterSet set;
  set.add(text);
  return {set.sorted(), with_end};
}

// encode(a) + encode(b) == encode(a b) wherever the tokenizer allows a cut.
void expect_cuts(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> whole = tokenizer.encode(text);
  size_t previous = 0;
  for (size_t position = 0; position <= text.size(); ++position) {
    const size_t cut = tokenizer.cut(text, position);
    EXPECT_LE(cut, position);
    EXPECT_GE(cut, previous);
    previous = cut;
    std::vector<int32_t> ids = tokenizer.encode(text.substr(0, cut));
    tokenizer.encode(text.substr(cut), ids);
    EXPECT_EQ(ids, whole) << position;
  }
  EXPECT_EQ(previous, text.size());
}

TEST(ByteTokenizer, IsTheIdentityOnBytes) {
  const ByteTokenizer tokenizer;
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  const std::vector<int32_t> ids = tokenizer.encode(text);
  ASSERT_EQ(ids.size(), 256U);
  for (int32_t i = 0; i < 256; ++i) EXPECT_EQ(ids[static_cast<size_t>(i)], i);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(tokenizer.vocabulary_size(), 257);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{65, 256, 66}), "AB");
  EXPECT_TRUE(tokenizer.encode("").empty());
  expect_cuts(tokenizer, kText);
  for (const int32_t bad : {-1, 257}) {
    error_of(ErrorKind::corrupt, [&] { tokenizer.decode(std::vector<int32_t>{bad}); });
  }
}

TEST(CharTokenizer, NumbersTheSortedCharacters) {
  const CharTokenizer tokenizer = char_tokenizer_of("banana\n", false);
  EXPECT_EQ(tokenizer.vocabulary_size(), 4);
  EXPECT_EQ(tokenizer.end_of_document(), kNoToken);
  EXPECT_EQ(tokenizer.encode("ab\nn"), (std::vector<int32_t>{1, 2, 0, 3}));
  const std::string message = error_of(ErrorKind::usage, [&] { tokenizer.encode("q"); });
  EXPECT_TRUE(contains(message, "\"q\" (U+0071)")) << message;
}

TEST(CharTokenizer, ReadsUtf8) {
  const CharTokenizer tokenizer = char_tokenizer_of(kText, true);
  const std::vector<int32_t> ids = tokenizer.encode(kText);
  EXPECT_EQ(ids.size(), 12U);  // characters, not bytes
  EXPECT_EQ(tokenizer.decode(ids), kText);
  EXPECT_EQ(tokenizer.end_of_document(), tokenizer.vocabulary_size() - 1);
  expect_cuts(tokenizer, kText);
}

TEST(CharTokenizer, RefusesWhatIsNotUtf8) {
  CharacterSet set;
  for (const std::string bad : {"a\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                "\xe4\xb8", "\x80", "\xe4q\x96", "\xe0\x80\x80"}) {
    const std::string message = error_of(ErrorKind::usage, [&] { set.add(bad); });
    EXPECT_TRUE(contains(message, "not UTF-8")) << message;
  }
  set.add("\xf4\x8f\xbf\xbf");  // the last code point
  EXPECT_EQ(set.sorted().back(), 0x10FFFFU);
}

TEST(Tokenizer, IsStoredAndLoaded) {
  MemoryFileSystem files;
  const auto round_trip = [&](const Tokenizer& tokenizer) {
    write_text(files, "c.tokenizer.json", tokenizer_json(tokenizer).dump());
    auto loaded = load_tokenizer(files, "c");
    EXPECT_EQ(loaded->name(), tokenizer.name());
    EXPECT_EQ(loaded->vocabulary_size(), tokenizer.vocabulary_size());
    EXPECT_EQ(loaded->end_of_document(), tokenizer.end_of_document());
    EXPECT_EQ(loaded->encode(kText), tokenizer.encode(kText));
    EXPECT_EQ(tokenizer_json(*loaded), tokenizer_json(tokenizer));
  };
  round_trip(ByteTokenizer());
  round_trip(char_tokenizer_of(kText, true));
  round_trip(char_tokenizer_of(kText, false));
}

TEST(Tokenizer, StoredDamageIsAnError) {
  const Json good = tokenizer_json(char_tokenizer_of("abc", true));
  MemoryFileSystem files;
  const auto loading = [&](ErrorKind kind, const char* key, const Json& value) {
    Json changed = good;
    changed[key] = value;
    return error_of(kind, [&] { tokenizer_from_json(files, changed, "x.json"); });
  };
  EXPECT_TRUE(contains(loading(ErrorKind::unsupported, "name", "word"), "'word'"));
  EXPECT_TRUE(contains(loading(ErrorKind::unsupported, "version", 2), "version 2"));
  EXPECT_TRUE(contains(loading(ErrorKind::corrupt, "format", "x"), "'x'"));
  EXPECT_TRUE(contains(loading(ErrorKind::corrupt, "vocabulary_size", 9), "is 9"));
  EXPECT_TRUE(contains(loading(ErrorKind::corrupt, "end_of_document", 1), "end_of_document"));
  EXPECT_TRUE(contains(loading(ErrorKind::corrupt, "characters", {"b", "a"}), "ascending"));
  EXPECT_TRUE(contains(loading(ErrorKind::corrupt, "characters", {"ab"}), "single"));
  EXPECT_TRUE(contains(loading(ErrorKind::corrupt, "characters", Json::array()), "empty"));
  EXPECT_TRUE(contains(loading(ErrorKind::corrupt, "characters", 3), "characters"));
  EXPECT_TRUE(contains(error_of(ErrorKind::not_found, [&] { load_tokenizer(files, "c"); }),
                       "c.tokenizer.json"));
}

}  // namespace
}  // namespace tutti::data
