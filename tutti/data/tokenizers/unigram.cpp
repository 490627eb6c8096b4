#include "tutti/data/tokenizers/unigram.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {

UnigramModel::UnigramModel(const std::vector<UnigramPiece>& pieces, const UnigramOptions& options)
    : options_(options) {
  std::vector<PrefixTrie::Key> keys;
  keys.reserve(pieces.size());
  for (const UnigramPiece& piece : pieces) {
    keys.emplace_back(piece.text, static_cast<int32_t>(scores_.size()));
    scores_.push_back(piece.score);
    ids_.push_back(piece.id);
  }
  trie_ = PrefixTrie(std::move(keys));
}

int32_t UnigramModel::find(std::string_view piece) const {
  int32_t id = -1;
  trie_.prefixes(piece, [&](size_t bytes, int32_t found) {
    if (bytes == piece.size()) id = ids_[static_cast<size_t>(found)];
  });
  return id;
}

void UnigramModel::encode(std::string_view text, UnigramScratch& scratch,
                          std::vector<int32_t>& out) const {
  auto& nodes = scratch.nodes_;
  nodes.assign(text.size() + 1, {});
  for (size_t at = 0; at < text.size();) {
    const double so_far = nodes[at].score;
    const uint32_t char_bytes = decode_utf8(text, at).bytes;
    bool alone = false;
    const auto offer = [&](size_t bytes, double score, int32_t piece) {
      UnigramScratch::Node& node = nodes[at + bytes];
      if (node.bytes == 0 || score > node.score) {
        node = {score, static_cast<int32_t>(bytes), piece};
      }
    };
    trie_.prefixes(text.substr(at), [&](size_t bytes, int32_t piece) {
      offer(bytes, scores_[static_cast<size_t>(piece)] + so_far, piece);
      alone = alone || bytes == char_bytes;
    });
    if (!alone) offer(char_bytes, options_.unknown_score + so_far, -1);
    at += char_bytes;
  }
  auto& path = scratch.path_;
  path.clear();
  for (size_t end = text.size(); end > 0;) {
    const UnigramScratch::Node& node = nodes[end];
    path.emplace_back(end - static_cast<size_t>(node.bytes), end);
    end = path.back().first;
  }
  std::reverse(path.begin(), path.end());
  for (size_t i = 0; i < path.size();) {
    const auto is_unknown = [&](size_t step) {
      const int32_t piece = nodes[path[step].second].piece;
      return piece < 0 || ids_[static_cast<size_t>(piece)] == options_.unknown;
    };
    if (!is_unknown(i)) {
      out.push_back(ids_[static_cast<size_t>(nodes[path[i].second].piece)]);
      ++i;
      continue;
    }
    const size_t begin = path[i].first;
    while (i < path.size() && is_unknown(i)) ++i;
    add_unknown(text.substr(begin, path[i - 1].second - begin), out);
  }
}

void UnigramModel::add_unknown(std::string_view text, std::vector<int32_t>& out) const {
  if (const int32_t id = find(text); id >= 0) {
    out.push_back(id);
    return;
  }
  const auto byte_id = [&](char byte) {
    return options_.byte_ids[static_cast<unsigned char>(byte)];
  };
  if (options_.byte_fallback &&
      std::all_of(text.begin(), text.end(), [&](char byte) { return byte_id(byte) >= 0; })) {
    for (const char byte : text) out.push_back(byte_id(byte));
    return;
  }
  if (options_.unknown < 0) {
    fail(ErrorKind::usage, "the tokenizer has no token for \"{}\" and none for what is unknown",
         printable(text));
  }
  out.push_back(options_.unknown);
}

}  // namespace tutti::data
