#include "tutti/data/tokenizers/added_tokens.h"

#include <algorithm>

#include "tutti/chat/text.h"

namespace tutti::data {
namespace {

unsigned char byte_at(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// The white space that ends at `end`, but not before `least`, starts here.
size_t space_before(const UnicodeClasses& classes, std::string_view text, size_t end,
                    size_t least) {
  while (end > least) {
    const Utf8Char c = decode_utf8_before(text, end);
    if (!c.valid || classes.of(c.value) != CharClass::space || end - c.bytes < least) break;
    end -= c.bytes;
  }
  return end;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, bool normalized, bool special)
    : special_(special) {
  for (const AddedToken& token : tokens) {
    if (token.normalized == normalized && !token.content.empty()) tokens_.push_back(token);
    longest_ = std::max(longest_, token.content.size());
    if (token.single_word && word_.empty()) {
      word_.emplace_back("[\\w\\x{200c}\\x{200d}]", "added tokens");  // as UTS 18 has it
    }
  }
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    const unsigned char first_a = byte_at(a.content, 0);
    const unsigned char first_b = byte_at(b.content, 0);
    return first_a != first_b ? first_a < first_b : a.content.size() > b.content.size();
  });
  for (const AddedToken& token : tokens_) ++first_[byte_at(token.content, 0) + 1];
  for (size_t b = 0; b < 256; ++b) first_[b + 1] += first_[b];
}

const AddedToken* AddedTokens::longest_at(std::string_view text, size_t at,
                                          const Accept& accept) const {
  const unsigned char byte = byte_at(text, at);
  for (uint32_t i = first_[byte]; i < first_[byte + 1]; ++i) {
    if (text.compare(at, tokens_[i].content.size(), tokens_[i].content) != 0) continue;
    if (!accept || accept(tokens_[i], at)) return &tokens_[i];
  }
  return nullptr;
}

bool AddedTokens::is_word(std::string_view text, size_t at) const {
  Match match;
  const std::string_view c = text.substr(at, decode_utf8(text, at).bytes);
  return word_.front().find(c, 0, match);
}

void AddedTokens::find(const UnicodeClasses& classes, std::string_view text,
                       std::vector<TextPart>& parts) const {
  find_parts(classes, text, nullptr, parts);
}

void AddedTokens::find_in_chat(const UnicodeClasses& classes, std::string_view text,
                               std::string_view origins, const std::vector<int32_t>& guarded,
                               std::vector<TextPart>& parts) const {
  const auto accept = [&](const AddedToken& token, size_t at) {
    const bool is_guarded = std::find(guarded.begin(), guarded.end(), token.id) != guarded.end();
    if (!token.special && !is_guarded) return true;
    const std::string_view of_token = origins.substr(at, token.content.size());
    const auto least =
        static_cast<chat::Origin>(*std::max_element(of_token.begin(), of_token.end()));
    return least == chat::Origin::from_template ||
           (!token.special && least == chat::Origin::from_assistant);
  };
  find_parts(classes, text, accept, parts);
}

void AddedTokens::find_parts(const UnicodeClasses& classes, std::string_view text,
                             const Accept& accept, std::vector<TextPart>& parts) const {
  parts.clear();
  size_t done = 0;
  for (size_t at = 0; !tokens_.empty() && at < text.size();) {
    const AddedToken* token = longest_at(text, at, accept);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;
    if (token->special && !special_) continue;
    if (token->single_word) {
      const bool left = begin > 0 && is_word(text, begin - decode_utf8_before(text, begin).bytes);
      const bool right = end < text.size() && is_word(text, end);
      if (left || right) continue;
    }
    if (token->strip_left) begin = std::max(done, space_before(classes, text, begin, 0));
    if (token->strip_right) end = classes.run_end(text, end, CharClass::space);
    if (done < begin) parts.push_back({done, begin, -1});
    parts.push_back({begin, end, token->id});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), -1});
}

bool AddedTokens::touches(const UnicodeClasses& classes, std::string_view text,
                          size_t position) const {
  if (tokens_.empty()) return false;
  // White space that a token may take along reaches further than the token.
  const bool strips = std::any_of(tokens_.begin(), tokens_.end(), [](const AddedToken& token) {
    return token.strip_left || token.strip_right;
  });
  const size_t left = strips ? space_before(classes, text, position, 0) : position;
  const size_t right = strips ? classes.run_end(text, position, CharClass::space) : position;
  const size_t from = left > longest_ ? left - longest_ : 0;
  for (size_t at = from; at <= right && at < text.size(); ++at) {
    const unsigned char byte = byte_at(text, at);
    for (uint32_t i = first_[byte]; i < first_[byte + 1]; ++i) {
      const std::string& content = tokens_[i].content;
      if (at + content.size() >= left && text.compare(at, content.size(), content) == 0)
        return true;
    }
  }
  return false;
}

}  // namespace tutti::data
