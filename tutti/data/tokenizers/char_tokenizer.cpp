#include "tutti/data/tokenizers/char_tokenizer.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {
namespace {

[[noreturn]] void fail_not_utf8(std::string_view text, size_t at) {
  fail(ErrorKind::usage,
       "the text is not UTF-8 near \"{}\"; the char tokenizer reads UTF-8 text, the byte tokenizer "
       "any bytes",
       printable(text.substr(at, 8)));
}

// The code point that starts at `at`, which moves behind it.
char32_t next_character(std::string_view text, size_t& at) {
  const Utf8Char c = decode_utf8(text, at);
  if (!c.valid) fail_not_utf8(text, at);
  at += c.bytes;
  return c.value;
}

}  // namespace

size_t utf8_cut(std::string_view text, size_t position) {
  if (position >= text.size()) return text.size();
  // A character has at most 3 continuation bytes; more of them are not UTF-8, and encoding says so.
  for (size_t back = 0; back <= std::min<size_t>(3, position); ++back) {
    if (!is_utf8_continuation(text[position - back])) return position - back;
  }
  return position;
}

CharacterSet::CharacterSet() : seen_(std::make_unique<std::bitset<0x110000>>()) {}

void CharacterSet::add(std::string_view text) {
  for (size_t at = 0; at < text.size();) seen_->set(next_character(text, at));
}

void CharacterSet::merge(const CharacterSet& other) { *seen_ |= *other.seen_; }

std::vector<char32_t> CharacterSet::sorted() const {
  std::vector<char32_t> characters;
  for (size_t c = 0; c < seen_->size(); ++c) {
    if (seen_->test(c)) characters.push_back(static_cast<char32_t>(c));
  }
  return characters;
}

CharTokenizer::CharTokenizer(std::vector<char32_t> characters, bool with_end_of_document)
    : characters_(std::move(characters)), with_end_of_document_(with_end_of_document) {
  TUTTI_CHECK(!characters_.empty(), "a character vocabulary is empty");
  ascii_.fill(kNoToken);
  for (size_t i = 0; i < characters_.size(); ++i) {
    TUTTI_CHECK(i == 0 || characters_[i - 1] < characters_[i], "characters are not sorted");
    if (characters_[i] < 128) {
      ascii_[characters_[i]] = static_cast<int32_t>(i);
    } else {
      others_.emplace(characters_[i], static_cast<int32_t>(i));
    }
  }
}

int32_t CharTokenizer::vocabulary_size() const {
  return static_cast<int32_t>(characters_.size()) + (with_end_of_document_ ? 1 : 0);
}

int32_t CharTokenizer::end_of_document() const {
  return with_end_of_document_ ? static_cast<int32_t>(characters_.size()) : kNoToken;
}

int32_t CharTokenizer::id_of(char32_t character) const {
  if (character < 128) {
    if (ascii_[character] != kNoToken) return ascii_[character];
  } else if (const auto found = others_.find(character); found != others_.end()) {
    return found->second;
  }
  std::string text;
  append_utf8(text, character);
  fail(ErrorKind::usage,
       "the character \"{}\" (U+{:04X}) is not among the {} characters of the vocabulary",
       printable(text), static_cast<uint32_t>(character), characters_.size());
}

void CharTokenizer::encode(std::string_view text, std::vector<int32_t>& out) const {
  out.reserve(out.size() + text.size());
  for (size_t at = 0; at < text.size();) out.push_back(id_of(next_character(text, at)));
}

std::string CharTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary_size()) {
      fail(ErrorKind::corrupt, "id {} is outside the char tokenizer's vocabulary of {}", id,
           vocabulary_size());
    }
    if (id != end_of_document()) append_utf8(text, characters_[static_cast<size_t>(id)]);
  }
  return text;
}

size_t CharTokenizer::cut(std::string_view text, size_t position) const {
  return utf8_cut(text, position);
}

void CharTokenizer::describe(Json& object) const {
  Json characters = Json::array();
  for (const char32_t c : characters_) {
    std::string text;
    append_utf8(text, c);
    characters.push_back(std::move(text));
  }
  object["characters"] = std::move(characters);
}

std::unique_ptr<CharTokenizer> char_tokenizer_from_json(const Json& value,
                                                        const std::string& origin) {
  std::vector<char32_t> characters;
  for (const auto& text : json_get<std::vector<std::string>>(value, "characters", origin)) {
    size_t at = 0;
    const char32_t c = text.empty() ? 0 : next_character(text, at);
    if (at == 0 || at != text.size() || (!characters.empty() && c <= characters.back())) {
      fail(ErrorKind::corrupt,
           "'{}': characters holds \"{}\" at position {}; write single characters in ascending "
           "order",
           origin, printable(text), characters.size());
    }
    characters.push_back(c);
  }
  if (characters.empty()) fail(ErrorKind::corrupt, "'{}': characters is empty", origin);
  if (!value.contains("end_of_document")) {
    fail_json_member(value, "end_of_document", origin, "is missing");
  }
  const bool with_end = !value["end_of_document"].is_null();
  const auto count = static_cast<int64_t>(characters.size());
  if (with_end && json_get<int64_t>(value, "end_of_document", origin) != count) {
    fail(ErrorKind::corrupt, "'{}': end_of_document is not {}, the id after the characters", origin,
         count);
  }
  return std::make_unique<CharTokenizer>(std::move(characters), with_end);
}

}  // namespace tutti::data
