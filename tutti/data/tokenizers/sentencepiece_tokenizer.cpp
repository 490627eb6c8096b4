#include "tutti/data/tokenizers/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/prepare/idle_pool.h"
#include "tutti/data/tokenizers/sentencepiece_model.h"
#include "tutti/data/tokenizers/space_mark.h"
#include "tutti/data/tokenizers/text_decoder.h"
#include "tutti/data/tokenizers/text_normalizer.h"
#include "tutti/data/tokenizers/unigram.h"
#include "tutti/data/tokenizers/word_cache.h"

namespace tutti::data {
namespace {

constexpr size_t kCachedBytes = 64;  // longer words are not kept
constexpr size_t kCachedPieces = size_t{1} << 16;

using PieceType = SentencePieceModelFile::Type;

// A piece that a user defined wins: the library counts its bytes times the greatest score, and that
// starts from the least positive number of single precision, which log-probabilities never exceed.
UnigramModel unigram_model(const SentencePieceModelFile& model) {
  constexpr double kUnknownPenalty = 10;
  double least = std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<float>::min();
  UnigramOptions options;
  options.byte_fallback = model.byte_fallback;
  std::fill(std::begin(options.byte_ids), std::end(options.byte_ids), -1);
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    if (piece.type == PieceType::normal) {
      least = std::min(least, static_cast<double>(piece.score));
      most = std::max(most, static_cast<double>(piece.score));
    }
    if (piece.type == PieceType::unknown) options.unknown = static_cast<int32_t>(i);
    const int byte = piece.type == PieceType::byte ? fallback_byte(piece.text) : -1;
    if (byte >= 0) options.byte_ids[byte] = static_cast<int32_t>(i);
  }
  options.unknown_score = least - kUnknownPenalty;
  std::vector<UnigramPiece> pieces;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    const bool defined = piece.type == PieceType::user_defined;
    if (!defined && piece.type != PieceType::normal) continue;
    const double score =
        defined ? static_cast<double>(piece.text.size()) * most - 0.1 : double{piece.score};
    pieces.push_back({piece.text, static_cast<int32_t>(i), score});
  }
  return UnigramModel(pieces, options);
}

bool is_graphic(char c) { return c > 0x20 && c < 0x7f; }

}  // namespace

struct SentencePieceTokenizer::Scratch {
  std::unordered_map<std::string, std::vector<int>> words;  // the library's
  std::vector<int> ids;
  WordCache cache;  // our own unigram models'
  UnigramScratch unigram;
  std::string normal;
};

struct SentencePieceTokenizer::Library {
  sentencepiece::SentencePieceProcessor processor;
  std::optional<UnigramModel> unigram;
  SentencePieceNormalizer normalizer;
  mutable IdlePool<Scratch> pool;
};

SentencePieceTokenizer::SentencePieceTokenizer(std::vector<OriginalFile> originals,
                                               ControlTokens controls, const std::string& origin)
    : originals_(std::move(originals)), controls_(controls), library_(std::make_unique<Library>()) {
  if (controls.special) {
    fail(ErrorKind::unsupported,
         "'{}': SentencePiece models do not parse control tokens in text; leave out --special",
         origin);
  }
  auto& processor = library_->processor;
  const std::string& bytes = originals_.at(0).bytes;
  const auto status = processor.LoadFromSerializedProto(bytes);
  if (!status.ok()) {
    fail(ErrorKind::corrupt, "'{}': not a SentencePiece model: {}", origin, status.ToString());
  }
  const SentencePieceModelFile settings = read_sentencepiece_model(bytes);
  if (settings.space_as_suffix || !settings.escape_spaces) {
    fail(ErrorKind::unsupported, "'{}': a model that {} is not supported", origin,
         settings.space_as_suffix ? "writes spaces behind words" : "does not mark spaces");
  }
  dummy_prefix_ = settings.dummy_prefix;
  bool divides = true;
  std::vector<AddedToken> control_pieces;
  pieces_.resize(static_cast<size_t>(processor.GetPieceSize()));
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const auto id = static_cast<int>(i);
    const std::string& piece = processor.IdToPiece(id);
    if (processor.IsControl(id)) {
      control_pieces.push_back({piece, id, /*special=*/true});
      control_pieces.back().normalized = false;
      continue;
    }
    if (processor.IsUnknown(id)) {
      pieces_[i] = "\xef\xbf\xbd";  // U+FFFD
    } else if (processor.IsByte(id)) {
      pieces_[i] = std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
    } else {
      const size_t text = std::min(piece.find_first_not_of(kSpaceMark), piece.size());
      divides = divides && piece.find(kSpaceMark, text) == std::string::npos;
      pieces_[i] = replace_all(piece, kSpaceMark, " ");
    }
  }
  chat_tokens_ = std::make_unique<const AddedTokens>(control_pieces, false, /*special=*/true);
  check_control_tokens(controls_, vocabulary_size(), origin);
  if (settings.kind == SentencePieceModelFile::Kind::unigram) {
    library_->normalizer = SentencePieceNormalizer(settings, origin);
    library_->unigram = unigram_model(settings);
    marks_divide_ = divides && library_->unigram->find(kSpaceMark) >= 0;
  }
  const std::string known[] = {"identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"};
  words_ = divides &&
           std::find(std::begin(known), std::end(known), settings.normalizer) != std::end(known) &&
           (dummy_prefix_ || !settings.remove_extra_spaces);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

int32_t SentencePieceTokenizer::vocabulary_size() const {
  return static_cast<int32_t>(pieces_.size());
}

bool SentencePieceTokenizer::may_cut(std::string_view text, size_t position) const {
  return text[position] == ' ' && position > 0 && is_graphic(text[position - 1]) &&
         position + 1 < text.size() && is_graphic(text[position + 1]);
}

size_t SentencePieceTokenizer::cut(std::string_view text, size_t position) const {
  if (position >= text.size()) return text.size();
  if (!words_) return 0;
  while (position > 0 && !may_cut(text, position)) --position;
  return position;
}

void SentencePieceTokenizer::encode(std::string_view text, std::vector<int32_t>& out) const {
  encode_text(text, false, out);
}

void SentencePieceTokenizer::encode_rest(std::string_view text, std::vector<int32_t>& out) const {
  encode_text(text, true, out);
}

void SentencePieceTokenizer::encode_text(std::string_view text, bool rest,
                                         std::vector<int32_t>& out) const {
  const IdlePool<Scratch>::Lease lease(library_->pool);
  Scratch& scratch = *lease;
  if (library_->unigram.has_value()) {
    encode_unigram(text, rest, scratch, out);
    return;
  }
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.size();
    if (words_) {
      end = begin + 1;
      while (end < text.size() && !may_cut(text, end)) ++end;
    }
    std::string_view word = text.substr(begin, end - begin);
    // The library puts the space in front again.
    if ((begin > 0 || rest) && dummy_prefix_ && word.starts_with(' ')) word.remove_prefix(1);
    begin = end;
    const bool keep = word.size() <= kCachedBytes;
    if (keep) {
      const auto known = scratch.words.find(std::string(word));
      if (known != scratch.words.end()) {
        out.insert(out.end(), known->second.begin(), known->second.end());
        continue;
      }
    }
    const auto status =
        library_->processor.Encode(absl::string_view(word.data(), word.size()), &scratch.ids);
    if (!status.ok()) fail(ErrorKind::usage, "SentencePiece: {}", status.ToString());
    out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
    if (!keep) continue;
    if (scratch.words.size() >= kCachedPieces) scratch.words.clear();
    scratch.words.emplace(word, scratch.ids);
  }
}

void SentencePieceTokenizer::encode_unigram(std::string_view text, bool rest, Scratch& scratch,
                                            std::vector<int32_t>& out) const {
  scratch.normal.clear();
  library_->normalizer.append(text, rest, scratch.normal);
  const std::string_view normal = scratch.normal;
  for (size_t begin = 0; begin < normal.size();) {
    size_t end = begin;
    while (normal.compare(end, kSpaceMark.size(), kSpaceMark) == 0) end += kSpaceMark.size();
    end = marks_divide_ ? std::min(normal.find(kSpaceMark, end), normal.size()) : normal.size();
    const std::string_view word = normal.substr(begin, end - begin);
    begin = end;
    WordCache::Entry* entry = scratch.cache.entry(word);
    if (WordCache::get(entry, word, out)) continue;
    const size_t before = out.size();
    library_->unigram->encode(word, scratch.unigram, out);
    WordCache::keep(entry, word, std::span(out).subspan(before));
  }
}

void SentencePieceTokenizer::encode_chat(std::string_view text, std::string_view origins,
                                         const std::vector<int32_t>& guarded, bool rest,
                                         std::vector<int32_t>& out) const {
  std::vector<TextPart> parts;
  chat_tokens_->find_in_chat(unicode_classes(), text, origins, guarded, parts);
  for (const TextPart& part : parts) {
    if (part.id >= 0) {
      out.push_back(part.id);
      continue;
    }
    const std::string_view words = text.substr(part.begin, part.end - part.begin);
    encode_text(words, (rest || part.begin > 0) && words.starts_with(' '), out);
  }
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text = decode_rest(ids);
  return dummy_prefix_ && text.starts_with(' ') ? text.substr(1) : text;
}

std::string SentencePieceTokenizer::decode_rest(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary_size()) {
      fail(ErrorKind::corrupt, "id {} is outside the tokenizer's vocabulary of {}", id,
           vocabulary_size());
    }
    if (is_control_token(controls_, id)) continue;
    text += pieces_[static_cast<size_t>(id)];
  }
  return text;
}

namespace {

// Transformers does so unless the file beside the model says otherwise.
bool puts_begin_of_sentence(FileSystem& files, const std::string& path) {
  const std::string beside = join_path(parent_path(path), "tokenizer_config.json");
  if (!files.exists(beside)) return true;
  const Json config = parse_json(read_file(files, beside), beside);
  return !config.is_object() || config.value("add_bos_token", Json(true)) != Json(false);
}

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(FileSystem& files, const std::string& path,
                                              const TokenizerOptions& options) {
  std::vector<OriginalFile> originals = read_originals(files, path, "tokenizer.model");
  sentencepiece::SentencePieceProcessor processor;
  const auto status = processor.LoadFromSerializedProto(originals[0].bytes);
  if (!status.ok()) {
    fail(ErrorKind::corrupt, "'{}': not a SentencePiece model: {}", path, status.ToString());
  }
  const auto find = [&](const std::string& piece) {
    const int id = processor.PieceToId(piece);
    return processor.IsUnknown(id) ? kNoToken : id;
  };
  const bool puts_begin = processor.bos_id() >= 0 && puts_begin_of_sentence(files, path);
  OwnControlTokens own{{}, processor.eos_id(), puts_begin};
  if (processor.bos_id() >= 0) own.begin = {processor.bos_id()};
  const ControlTokens controls =
      choose_control_tokens(files, path, options, own, find, processor.GetPieceSize());
  return std::make_unique<SentencePieceTokenizer>(std::move(originals), controls, path);
}

}  // namespace tutti::data
