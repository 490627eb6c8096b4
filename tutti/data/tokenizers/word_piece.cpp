#include "tutti/data/tokenizers/word_piece.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {
namespace {

void add_unknown_word(std::string_view word, int32_t unknown, std::vector<int32_t>& out) {
  if (unknown < 0) {
    fail(ErrorKind::usage, "the tokenizer has no token for \"{}\" and none for what is unknown",
         printable(word));
  }
  out.push_back(unknown);
}

}  // namespace

WordPieceModel::WordPieceModel(const std::vector<std::pair<std::string, int32_t>>& tokens,
                               const std::string& prefix, size_t most_chars, int32_t unknown)
    : most_chars_(most_chars), unknown_(unknown) {
  std::vector<PrefixTrie::Key> starts;
  std::vector<PrefixTrie::Key> continuations;
  for (const auto& [token, id] : tokens) {
    starts.emplace_back(token, id);
    if (token.starts_with(prefix)) {
      continuations.emplace_back(std::string_view(token).substr(prefix.size()), id);
    }
  }
  starts_ = PrefixTrie(std::move(starts));
  continuations_ = PrefixTrie(std::move(continuations));
}

void WordPieceModel::encode(std::string_view word, std::vector<int32_t>& out) const {
  const size_t before = out.size();
  size_t chars = 0;
  for (size_t at = 0; at < word.size() && chars <= most_chars_; ++chars) {
    at += decode_utf8(word, at).bytes;
  }
  size_t at = chars > most_chars_ ? word.size() : 0;
  bool known = at == 0;
  while (known && at < word.size()) {
    size_t longest = 0;
    int32_t id = -1;
    (at == 0 ? starts_ : continuations_)
        .prefixes(word.substr(at), [&](size_t bytes, int32_t found) {
          longest = bytes;
          id = found;
        });
    known = longest > 0;
    out.push_back(id);
    at += longest;
  }
  if (known) return;
  out.resize(before);
  add_unknown_word(word, unknown_, out);
}

WordLevelModel::WordLevelModel(const std::vector<std::pair<std::string, int32_t>>& tokens,
                               int32_t unknown)
    : ids_(tokens.begin(), tokens.end()), unknown_(unknown) {}

void WordLevelModel::encode(std::string_view word, std::vector<int32_t>& out) const {
  const auto found = ids_.find(std::string(word));
  if (found == ids_.end()) {
    add_unknown_word(word, unknown_, out);
  } else {
    out.push_back(found->second);
  }
}

}  // namespace tutti::data
