#include "tutti/data/hf_tokenizer.h"

#include <algorithm>
#include <span>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/word_cache.h"

namespace tutti::data {
namespace {

// Added tokens are looked for in normalized text as their normalized selves.
std::vector<AddedToken> normalized_tokens(const HfTokenizerFile& file) {
  std::vector<AddedToken> tokens = file.added;
  for (AddedToken& token : tokens) {
    if (token.normalized) token.content = normalize(file.normalizer, token.content, false);
  }
  return tokens;
}

// Whether no token holds a space mark behind anything else: then none reaches across the start of a
// run of marks, and what is before and behind it is encoded independently.
bool marks_divide(const HfTokenizerFile& file) {
  return std::all_of(file.tokens.begin(), file.tokens.end(), [](const auto& token) {
    const std::string& text = token.first;
    size_t at = 0;
    while (text.compare(at, kSpaceMark.size(), kSpaceMark) == 0) at += kSpaceMark.size();
    return text.find(kSpaceMark, at) == std::string::npos;
  });
}

// <0x0A> and the like; -1 for other tokens.
int fallback_byte(const std::string& token) {
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -256;
  };
  return std::max(-1, digit(token[3]) * 16 + digit(token[4]));
}

}  // namespace

struct HfTokenizer::Scratch {
  WordCache cache;
  BpeScratch bpe;
  std::vector<TextPart> parts, inner_parts;
};

HfTokenizer::HfTokenizer(std::vector<OriginalFile> originals, ControlTokens controls,
                         const std::string& origin)
    : originals_(std::move(originals)),
      controls_(controls),
      file_(read_hf_tokenizer(originals_.at(0).bytes, origin)),
      model_(file_.tokens, file_.merges, file_.bpe, origin),
      raw_tokens_(file_.added, /*normalized=*/false, controls.special),
      normalized_tokens_(normalized_tokens(file_), /*normalized=*/true, controls.special),
      pool_(std::make_unique<IdlePool<Scratch>>()) {
  const auto put = [&](int32_t id, std::string text) {
    if (static_cast<size_t>(id) >= pieces_.size()) pieces_.resize(static_cast<size_t>(id) + 1);
    pieces_[static_cast<size_t>(id)] = std::move(text);
  };
  for (const auto& [token, id] : file_.tokens) {
    const int byte = file_.byte_level ? -1 : fallback_byte(token);
    if (byte >= 0) {
      put(id, std::string(1, static_cast<char>(byte)));
    } else {
      put(id, file_.decoding.marks_to_spaces ? replace_all(token, kSpaceMark, " ") : token);
    }
  }
  for (const AddedToken& token : file_.added) put(token.id, token.content);
  if (pieces_.empty()) fail(ErrorKind::corrupt, "'{}': the vocabulary is empty", origin);
  for (const int32_t id : {controls_.begin_of_document, controls_.end_of_document}) {
    if (id == kNoToken || (id >= 0 && id < vocabulary_size())) continue;
    fail(ErrorKind::corrupt, "'{}': the id {} of a control token is outside the vocabulary of {}",
         origin, id, vocabulary_size());
  }
  marks_divide_ = !file_.byte_level && marks_divide(file_);
  if (marks_divide_ && model_.find(kSpaceMark) >= 0) {
    const bool marked =
        std::none_of(file_.splits.begin(), file_.splits.end(),
                     [](const auto& step) { return step.kind != SplitStep::Kind::mark_spaces; });
    if (marked) file_.splits.push_back({SplitStep::Kind::marked_words});
  }
  cut_rule_ = choose_cut_rule();
}

HfTokenizer::~HfTokenizer() = default;

int32_t HfTokenizer::vocabulary_size() const { return static_cast<int32_t>(pieces_.size()); }

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

void HfTokenizer::encode_part(std::string_view text, bool first, bool rest, Scratch& scratch,
                              std::vector<int32_t>& out) const {
  std::string normal;
  if (!file_.normalizer.empty()) {
    normal = normalize(file_.normalizer, text, rest);
    text = normal;
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

void HfTokenizer::encode_words(std::string_view text, TextPlace place, Scratch& scratch,
                               std::vector<int32_t>& out) const {
  class Encoder final : public WordSink {
   public:
    Encoder(const BpeModel& model, Scratch& scratch, std::vector<int32_t>& out)
        : model_(model), scratch_(scratch), out_(out) {}
    void word(std::string_view text) override {
      WordCache::Entry* entry = scratch_.cache.entry(text);
      if (WordCache::get(entry, text, out_)) return;
      const size_t before = out_.size();
      model_.encode(text, scratch_.bpe, out_);
      WordCache::keep(entry, text, std::span(out_).subspan(before));
    }

   private:
    const BpeModel& model_;
    Scratch& scratch_;
    std::vector<int32_t>& out_;
  };
  Encoder encoder(model_, scratch, out);
  split_text(file_.splits, classes_, text, place, encoder);
}

HfTokenizer::CutRule HfTokenizer::choose_cut_rule() const {
  // Tokens found in text that was changed before cannot be told from the text as it was.
  const bool hidden = std::any_of(file_.added.begin(), file_.added.end(), [&](const auto& token) {
    return token.normalized && (!token.special || controls_.special) && !file_.normalizer.empty();
  });
  if (hidden) return CutRule::nowhere;
  using Kind = SplitStep::Kind;
  const auto& splits = file_.splits;
  if (file_.byte_level) {
    if (!only_normal_forms(file_.normalizer)) return CutRule::nowhere;
    size_t step = 0;
    while (step < splits.size() && splits[step].kind == Kind::prefix_space) ++step;
    if (step == splits.size() || splits[step].kind != Kind::words) return CutRule::nowhere;
    return file_.normalizer.empty() ? CutRule::words : CutRule::ascii_words;
  }
  if (!marks_divide_ || splits.empty()) return CutRule::nowhere;
  const Kind last = splits.back().kind;
  if (last != Kind::marked_words && last != Kind::each_mark) return CutRule::nowhere;
  const bool by_step = splits.size() == 2 && splits[0].kind == Kind::mark_spaces;
  bool by_normalizer = false;
  for (const NormalizeStep& step : file_.normalizer) {
    const bool replaces =
        step.kind == NormalizeStep::Kind::replace && step.from == " " && step.to == kSpaceMark;
    const bool prepends = step.kind == NormalizeStep::Kind::prepend && step.to == kSpaceMark;
    if (!replaces && !prepends) return CutRule::nowhere;
    by_normalizer = by_normalizer || replaces;
  }
  return by_step || (by_normalizer && splits.size() == 1) ? CutRule::spaces : CutRule::nowhere;
}

bool HfTokenizer::may_cut(std::string_view text, size_t position) const {
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

void HfTokenizer::append_decoded(std::span<const int32_t> ids, std::string& out) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary_size()) {
      fail(ErrorKind::corrupt, "id {} is outside the tokenizer's vocabulary of {}", id,
           vocabulary_size());
    }
    if (id == controls_.end_of_document || id == controls_.begin_of_document) continue;
    out += pieces_[static_cast<size_t>(id)];
  }
}

std::string HfTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  append_decoded(ids, text);
  size_t spaces = 0;
  while (spaces < static_cast<size_t>(file_.decoding.strip_spaces) && spaces < text.size() &&
         text[spaces] == ' ') {
    ++spaces;
  }
  return text.substr(spaces);
}

std::string HfTokenizer::decode_rest(std::span<const int32_t> ids) const {
  std::string text;
  append_decoded(ids, text);
  return text;
}

std::unique_ptr<Tokenizer> open_hf_tokenizer(FileSystem& files, const std::string& path,
                                             const TokenizerOptions& options) {
  std::vector<OriginalFile> originals = read_originals(files, path, "tokenizer.json");
  const HfTokenizerFile file = read_hf_tokenizer(originals[0].bytes, path);
  const auto find = [&](const std::string& token) { return find_hf_token(file, token); };
  OwnControlTokens own;
  if (!file.begin.empty()) own.begin = find(file.begin);
  own.puts_begin = own.begin != kNoToken;
  for (const char* usual : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
    for (const AddedToken& token : file.added) {
      if (own.end == kNoToken && token.special && token.content == usual) own.end = token.id;
    }
  }
  int32_t vocabulary = 0;
  for (const auto& [token, id] : file.tokens) vocabulary = std::max(vocabulary, id + 1);
  for (const AddedToken& token : file.added) vocabulary = std::max(vocabulary, token.id + 1);
  const ControlTokens controls = choose_control_tokens(files, path, options, own, find, vocabulary);
  return std::make_unique<HfTokenizer>(std::move(originals), controls, path);
}

}  // namespace tutti::data
