#include "tutti/data/tokenizers/hf_tokenizer.h"

#include <algorithm>
#include <limits>
#include <span>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizers/space_mark.h"
#include "tutti/data/tokenizers/word_cache.h"

namespace tutti::data {
namespace {

// Added tokens are looked for in normalized text as their normalized selves.
std::vector<AddedToken> normalized_tokens(const HfTokenizerFile& file) {
  std::vector<AddedToken> tokens = file.added;
  for (AddedToken& token : tokens) {
    bool starts = true;
    if (token.normalized) token.content = normalize(file.normalizer, token.content, false, starts);
  }
  return tokens;
}

// All of them, to be looked for in the text as it is.
std::vector<AddedToken> raw_tokens(const HfTokenizerFile& file) {
  std::vector<AddedToken> tokens = file.added;
  for (AddedToken& token : tokens) token.normalized = false;
  return tokens;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Whether no token holds a space mark behind anything else: then none reaches across the start of a
// run of marks, and what is before and behind it is encoded independently.
bool marks_divide(const HfTokenizerFile& file) {
  const auto& tokens = file.model.tokens;
  return std::all_of(tokens.begin(), tokens.end(), [](const auto& token) {
    const std::string& text = token.first;
    size_t at = 0;
    while (text.compare(at, kSpaceMark.size(), kSpaceMark) == 0) at += kSpaceMark.size();
    return text.find(kSpaceMark, at) == std::string::npos;
  });
}

}  // namespace

struct HfTokenizer::Scratch {
  WordCache cache;
  BpeScratch bpe;
  UnigramScratch unigram;
  std::vector<TextPart> parts, inner_parts;
};

HfTokenizer::HfTokenizer(std::vector<OriginalFile> originals, ControlTokens controls,
                         const std::string& origin)
    : originals_(std::move(originals)),
      controls_(controls),
      file_(read_hf_tokenizer(originals_.at(0).bytes, origin)),
      model_(make_model(file_.model, origin)),
      raw_tokens_(file_.added, /*normalized=*/false, controls.special),
      normalized_tokens_(normalized_tokens(file_), /*normalized=*/true, controls.special),
      chat_tokens_(raw_tokens(file_), /*normalized=*/false, /*special=*/true),
      pool_(std::make_unique<IdlePool<Scratch>>()) {
  std::vector<std::string> tokens;
  const auto put = [&](int32_t id, const std::string& text) {
    if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(static_cast<size_t>(id) + 1);
    tokens[static_cast<size_t>(id)] = text;
  };
  for (const auto& [token, id] : file_.model.tokens) put(id, token);
  for (const AddedToken& token : file_.added) put(token.id, token.content);
  if (tokens.empty()) fail(ErrorKind::corrupt, "'{}': the vocabulary is empty", origin);
  vocabulary_size_ = static_cast<int32_t>(tokens.size());
  decoder_ = TextDecoder(file_.decoder, std::move(tokens));
  check_control_tokens(controls_, vocabulary_size_, origin);
  divide_at_marks();
  cut_rule_ = choose_cut_rule();
}

HfTokenizer::Model HfTokenizer::make_model(const HfModelFile& file, const std::string& origin) {
  switch (file.kind) {
    case HfModelKind::bpe: return BpeModel(file.tokens, file.merges, file.bpe, origin);
    case HfModelKind::word_piece:
      return WordPieceModel(file.tokens, file.continuation, static_cast<size_t>(file.most_chars),
                            file.unknown);
    case HfModelKind::word_level: return WordLevelModel(file.tokens, file.unknown);
    case HfModelKind::unigram: break;
  }
  constexpr double kUnknownPenalty = 10;  // of SentencePiece
  UnigramOptions options;
  options.unknown = file.unknown;
  options.byte_fallback = file.byte_fallback;
  std::fill(std::begin(options.byte_ids), std::end(options.byte_ids), -1);
  double least = std::numeric_limits<double>::infinity();
  std::vector<UnigramPiece> pieces;
  for (size_t i = 0; i < file.tokens.size(); ++i) {
    const auto& [token, id] = file.tokens[i];
    pieces.push_back({token, id, file.scores[i]});
    least = std::min(least, file.scores[i]);
    const int byte = token.size() == 6 ? fallback_byte(token) : -1;
    if (byte >= 0 && token == fmt::format("<0x{:02X}>", byte)) options.byte_ids[byte] = id;
  }
  options.unknown_score = least - kUnknownPenalty;
  return UnigramModel(pieces, options);
}

// Where no token reaches across the start of a run of marks, what is between such starts is short
// and often met before. Sums of scores would be rounded otherwise, so that this is for BPE only.
void HfTokenizer::divide_at_marks() {
  using Kind = SplitStep::Kind;
  const bool replaced =
      std::any_of(file_.normalizer.begin(), file_.normalizer.end(), [](const auto& step) {
        return step.kind == NormalizeStep::Kind::replace && step.from == " ";
      });
  // A Split at spaces, of which there are none any more (Gemma).
  if (replaced && !file_.normalizer.empty() &&
      file_.normalizer.back().kind == NormalizeStep::Kind::replace) {
    std::erase_if(file_.splits, [](const SplitStep& step) {
      return step.kind == Kind::literal && step.text == " " && !step.invert;
    });
  }
  const auto* bpe = std::get_if<BpeModel>(&model_);
  marks_divide_ = bpe != nullptr && !file_.byte_level && marks_divide(file_);
  if (!marks_divide_ || file_.model.bpe.whole_words || bpe->find(kSpaceMark) < 0) return;
  if (file_.splits.empty() || file_.splits.back().kind != Kind::each_mark) {
    file_.splits.push_back({Kind::marked_words});
    file_.splits.back().divides_at_spaces = true;
  }
}

HfTokenizer::~HfTokenizer() = default;

std::string HfTokenizer::name() const {
  switch (file_.model.kind) {
    case HfModelKind::bpe: return "bpe";
    case HfModelKind::unigram: return "unigram";
    case HfModelKind::word_piece: return "wordpiece";
    case HfModelKind::word_level: break;
  }
  return "wordlevel";
}

int32_t HfTokenizer::vocabulary_size() const { return vocabulary_size_; }

void HfTokenizer::encode(std::string_view text, std::vector<int32_t>& out) const {
  encode_text(text, false, out);
}

void HfTokenizer::encode_rest(std::string_view text, std::vector<int32_t>& out) const {
  encode_text(text, true, out);
}

void HfTokenizer::encode_text(std::string_view text, bool rest, std::vector<int32_t>& out) const {
  const IdlePool<Scratch>::Lease lease(*pool_);
  Scratch& scratch = *lease;
  raw_tokens_.find(classes_, text, scratch.parts);
  for (const TextPart& part : scratch.parts) {
    if (part.id >= 0) {
      out.push_back(part.id);
    } else {
      const bool first = part.begin == 0;
      encode_part(text.substr(part.begin, part.end - part.begin), first && !rest, first && rest,
                  scratch, out);
    }
  }
}

std::vector<int32_t> HfTokenizer::spelled_tokens(const std::vector<std::string>& literals) const {
  std::vector<int32_t> ids;
  for (const AddedToken& token : file_.added) {
    if (token.special || is_blank(token.content)) continue;
    const bool spelled = std::any_of(literals.begin(), literals.end(), [&](const auto& literal) {
      return literal.find(token.content) != std::string::npos;
    });
    if (spelled) ids.push_back(token.id);
  }
  return ids;
}

void HfTokenizer::encode_chat(std::string_view text, std::string_view origins,
                              const std::vector<int32_t>& guarded, bool rest,
                              std::vector<int32_t>& out) const {
  const IdlePool<Scratch>::Lease lease(*pool_);
  Scratch& scratch = *lease;
  chat_tokens_.find_in_chat(classes_, text, origins, guarded, scratch.parts);
  for (const TextPart& part : scratch.parts) {
    if (part.id >= 0) {
      out.push_back(part.id);
      continue;
    }
    const bool start = part.begin == 0;
    TextPosition position = {start && !rest, start && rest};
    std::string_view words = text.substr(part.begin, part.end - part.begin);
    std::string normal;
    if (!file_.normalizer.empty()) {
      bool starts = position.first;
      normal = normalize(file_.normalizer, words, position.rest, starts);
      position.first = starts;
      words = normal;
    }
    if (!words.empty()) encode_words(words, position, scratch, out);
  }
}

void HfTokenizer::encode_part(std::string_view text, bool first, bool rest, Scratch& scratch,
                              std::vector<int32_t>& out) const {
  std::string normal;
  if (!file_.normalizer.empty()) {
    normal = normalize(file_.normalizer, text, rest, first);
    text = normal;
    if (text.empty()) return;
  }
  if (normalized_tokens_.empty()) {
    encode_words(text, {first, rest}, scratch, out);
    return;
  }
  normalized_tokens_.find(classes_, text, scratch.inner_parts);
  for (const TextPart& part : scratch.inner_parts) {
    if (part.id >= 0) {
      out.push_back(part.id);
    } else {
      const bool start = part.begin == 0;
      encode_words(text.substr(part.begin, part.end - part.begin), {first && start, rest && start},
                   scratch, out);
    }
  }
}

void HfTokenizer::encode_words(std::string_view text, TextPosition position, Scratch& scratch,
                               std::vector<int32_t>& out) const {
  class Encoder final : public WordSink {
   public:
    Encoder(const Model& model, Scratch& scratch, std::vector<int32_t>& out)
        : model_(model), scratch_(scratch), out_(out) {}
    void word(std::string_view text) override {
      WordCache::Entry* entry = scratch_.cache.entry(text);
      if (WordCache::get(entry, text, out_)) return;
      const size_t before = out_.size();
      if (const auto* bpe = std::get_if<BpeModel>(&model_)) {
        bpe->encode(text, scratch_.bpe, out_);
      } else if (const auto* unigram = std::get_if<UnigramModel>(&model_)) {
        unigram->encode(text, scratch_.unigram, out_);
      } else if (const auto* pieces = std::get_if<WordPieceModel>(&model_)) {
        pieces->encode(text, out_);
      } else {
        std::get<WordLevelModel>(model_).encode(text, out_);
      }
      WordCache::keep(entry, text, std::span(out_).subspan(before));
    }

   private:
    const Model& model_;
    Scratch& scratch_;
    std::vector<int32_t>& out_;
  };
  Encoder encoder(model_, scratch, out);
  split_text(file_.splits, classes_, text, position, encoder);
}

HfTokenizer::CutRule HfTokenizer::choose_cut_rule() const {
  // Tokens found in normalized text cannot be distinguished from the original text.
  const bool hidden = std::any_of(file_.added.begin(), file_.added.end(), [&](const auto& token) {
    return token.normalized && (!token.special || controls_.special) && !file_.normalizer.empty();
  });
  if (hidden) return CutRule::nowhere;
  const auto& splits = file_.splits;
  const CutRule plain = may_cut_at_plain_spaces() ? CutRule::plain_spaces : CutRule::nowhere;
  if (file_.byte_level) {
    const auto words = std::find_if(splits.begin(), splits.end(), [](const SplitStep& step) {
      return step.kind != SplitStep::Kind::prefix_space;
    });
    if (words == splits.end() || words->kind != SplitStep::Kind::words) return plain;
    if (!only_normal_forms(file_.normalizer)) return plain;
    return file_.normalizer.empty() ? CutRule::words : CutRule::ascii_words;
  }
  using Kind = SplitStep::Kind;
  if (!marks_divide_ || splits.empty()) return plain;
  const Kind last = splits.back().kind;
  if (last != Kind::marked_words && last != Kind::each_mark) return plain;
  const bool by_step = splits.size() == 2 && splits[0].kind == Kind::mark_spaces;
  bool by_normalizer = false;
  for (const NormalizeStep& step : file_.normalizer) {
    const bool replaces =
        step.kind == NormalizeStep::Kind::replace && step.from == " " && step.to == kSpaceMark;
    const bool prepends = step.kind == NormalizeStep::Kind::prepend && step.to == kSpaceMark;
    if (!replaces && !prepends) return plain;
    by_normalizer = by_normalizer || replaces;
  }
  return by_step || (by_normalizer && splits.size() == 1) ? CutRule::spaces : plain;
}

// Whether a text may be cut before a space with an ASCII sign or letter before it and an ASCII
// letter behind it: normalizers keep such spaces as spaces or marks and do not look across them,
// and words end there.
bool HfTokenizer::may_cut_at_plain_spaces() const {
  using Kind = SplitStep::Kind;
  bool marked = false;  // spaces are marks by now
  for (const NormalizeStep& step : file_.normalizer) {
    if (step.kind != NormalizeStep::Kind::replace) continue;
    const bool marks = step.from == " " && step.to == kSpaceMark;
    const bool shortens = step.pattern != nullptr && step.pattern->expression() == " {2,}";
    if (!marks && !shortens) return false;
    marked = marked || marks;
  }
  bool divides = false;
  for (const SplitStep& step : file_.splits) {
    marked = marked || step.kind == Kind::mark_spaces;
    const bool at_marks = step.kind == Kind::each_mark || step.kind == Kind::marked_words;
    const bool at_spaces = step.divides_at_spaces && !at_marks;
    divides = divides || (step.divides_at_spaces && at_marks == marked);
    const bool local = at_spaces || at_marks || step.is_local || step.kind == Kind::characters ||
                       step.kind == Kind::digits || step.kind == Kind::each_digit ||
                       step.kind == Kind::mark_spaces || step.kind == Kind::prefix_space;
    if (!local || (step.kind == Kind::characters && step.delimiters != Delimiters::isolated &&
                   step.delimiters != Delimiters::removed)) {
      return false;
    }
  }
  return divides;
}

bool HfTokenizer::may_cut(std::string_view text, size_t position) const {
  const auto is_sign = [&](size_t at) { return text[at] > 0x20 && text[at] < 0x7F; };
  const auto is_letter = [&](size_t at) {
    return at < text.size() && (text[at] | 0x20) >= 'a' && (text[at] | 0x20) <= 'z';
  };
  if (cut_rule_ == CutRule::plain_spaces) {
    if (text[position] != ' ' || !is_sign(position - 1) || !is_letter(position + 1)) return false;
    return !raw_tokens_.touches(classes_, text, position) &&
           !normalized_tokens_.touches(classes_, text, position);
  }
  const Utf8Char before = decode_utf8_before(text, position);
  if (cut_rule_ == CutRule::spaces) {
    const std::string_view head = text.substr(0, position);
    if (text[position] != ' ' || !before.valid || before.value == ' ' ||
        head.ends_with(kSpaceMark)) {
      return false;
    }
  } else {
    if (is_utf8_continuation(text[position]) || !before.valid) return false;
    const Utf8Char after = decode_utf8(text, position);
    if (cut_rule_ == CutRule::ascii_words && (before.value >= 0x80 || after.value >= 0x80)) {
      return false;
    }
    const CharClass after_class = after.valid ? classes_.of(after.value) : CharClass::other;
    if (!always_divides(before.value, classes_.of(before.value), after.value, after_class)) {
      return false;
    }
  }
  return !raw_tokens_.touches(classes_, text, position) &&
         !normalized_tokens_.touches(classes_, text, position);
}

size_t HfTokenizer::cut(std::string_view text, size_t position) const {
  if (position >= text.size()) return text.size();
  if (cut_rule_ == CutRule::nowhere) return 0;
  while (position > 0 && !may_cut(text, position)) --position;
  return position;
}

std::string HfTokenizer::decode_text(std::span<const int32_t> ids, bool rest) const {
  std::vector<int32_t> shown;
  shown.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary_size_) {
      fail(ErrorKind::corrupt, "id {} is outside the tokenizer's vocabulary of {}", id,
           vocabulary_size_);
    }
    if (!is_control_token(controls_, id)) shown.push_back(id);
  }
  return decoder_.decode(shown, rest);
}

std::string HfTokenizer::decode(std::span<const int32_t> ids) const {
  return decode_text(ids, false);
}

std::string HfTokenizer::decode_rest(std::span<const int32_t> ids) const {
  return decode_text(ids, true);
}

std::unique_ptr<Tokenizer> open_hf_tokenizer(FileSystem& files, const std::string& path,
                                             const TokenizerOptions& options) {
  std::vector<OriginalFile> originals = read_originals(files, path, "tokenizer.json");
  const HfTokenizerFile file = read_hf_tokenizer(originals[0].bytes, path);
  const auto find = [&](const std::string& token) { return find_hf_token(file, token); };
  OwnControlTokens own;
  for (const std::string& token : file.begin) {
    own.begin.push_back(find(token));
    if (own.begin.back() >= 0) continue;
    fail(ErrorKind::corrupt,
         "'{}': post_processor puts \"{}\" before a text, which is not a token; take the file from "
         "its "
         "source again",
         path, printable(token));
  }
  own.puts_begin = !own.begin.empty();
  for (const char* usual : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
    for (const AddedToken& token : file.added) {
      if (own.end == kNoToken && token.special && token.content == usual) own.end = token.id;
    }
  }
  int32_t vocabulary = 0;
  for (const auto& [token, id] : file.model.tokens) vocabulary = std::max(vocabulary, id + 1);
  for (const AddedToken& token : file.added) vocabulary = std::max(vocabulary, token.id + 1);
  const ControlTokens controls = choose_control_tokens(files, path, options, own, find, vocabulary);
  return std::make_unique<HfTokenizer>(std::move(originals), controls, path);
}

}  // namespace tutti::data
