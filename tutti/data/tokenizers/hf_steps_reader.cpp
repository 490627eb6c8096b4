#include "tutti/data/tokenizers/hf_steps_reader.h"

#include <array>

#include "tutti/base/error.h"
#include "tutti/data/tokenizers/space_mark.h"
#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {
namespace {

// Patterns of which SplitStep::divides_at_spaces holds: those of o200k (gpt-oss), Tekken (Mistral)
// and DeepSeek-V2 and V3, none of whose alternatives continues after a sign or letter with a space
// and a letter, and none looks ahead so far.
bool known_to_divide(const std::string& expression) {
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  const std::string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const std::string before = R"([^\r\n\p{L}\p{N}]?)";
  const std::string tail = R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string ends = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)";
  const std::string o200k = before + upper + "*" + lower + "+" + ends + "|" + before + upper + "+" +
                            lower + "*" + ends + R"(|\p{N}{1,3}|)" + tail;
  const std::string tekken =
      before + upper + "*" + lower + "+|" + before + upper + "+" + lower + R"(*|\p{N}|)" + tail;
  const std::string deepseek_v3 =
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
      R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  return expression == o200k || expression == tekken || expression == deepseek_v3;
}

// Classes of characters, alone or in runs, that hold no blank.
bool is_local(const std::string& expression) {
  return expression == R"(\p{N}{1,3})" || expression == R"(\p{N})" || expression == R"(\p{N}+)" ||
         expression == R"([\r\n])" ||
         expression ==
             "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+";
}

bool base64_decode(std::string_view text, std::string& out) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int, 256> value{};
  value.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) {
    value[static_cast<unsigned char>(kDigits[i])] = static_cast<int>(i);
  }
  out.clear();
  while (text.ends_with('=')) text.remove_suffix(1);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int digit = value[static_cast<unsigned char>(c)];
    if (digit < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  return true;
}

}  // namespace

void HfStepsReader::read_normalizer(const HfObject& node, std::vector<NormalizeStep>& out) const {
  using Kind = NormalizeStep::Kind;
  const auto type = get<std::string>(node, "type");
  if (type == "Sequence") {
    for (const HfObject& child : get<std::vector<HfObject>>(node, "normalizers")) {
      read_normalizer(child, out);
    }
  } else if (type == "NFC") {
    out.push_back({Kind::nfc});
  } else if (type == "NFD") {
    out.push_back({Kind::nfd});
  } else if (type == "NFKC") {
    out.push_back({Kind::nfkc});
  } else if (type == "NFKD") {
    out.push_back({Kind::nfkd});
  } else if (type == "Lowercase") {
    out.push_back({Kind::lowercase});
  } else if (type == "StripAccents") {
    out.push_back({Kind::strip_accents});
  } else if (type == "Nmt") {
    out.push_back({Kind::nmt});
  } else if (type == "Prepend") {
    out.push_back({Kind::prepend, "", get<std::string>(node, "prepend")});
  } else if (type == "Strip") {
    NormalizeStep step{Kind::strip};
    step.left = get_or<bool>(node, "strip_left", true);
    step.right = get_or<bool>(node, "strip_right", true);
    out.push_back(step);
  } else if (type == "Replace") {
    const Searched searched = read_searched(node);
    NormalizeStep step{Kind::replace, searched.text, get<std::string>(node, "content")};
    if (!searched.expression.empty()) {
      step.pattern = std::make_shared<const Pattern>(searched.expression, origin_);
    }
    out.push_back(step);
  } else if (type == "BertNormalizer") {
    read_bert(node, out);
  } else if (type == "Precompiled") {
    std::string compiled;
    if (!base64_decode(get<std::string>(node, "precompiled_charsmap"), compiled)) {
      damaged("normalizer.precompiled_charsmap is not text in base 64");
    }
    NormalizeStep step{Kind::charsmap};
    step.charsmap = std::make_shared<const Charsmap>(compiled, origin_);
    if (!step.charsmap->empty()) out.push_back(step);
  } else {
    refuse(
        "normalizer.type", type,
        "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, Prepend, Replace, Precompiled, "
        "BertNormalizer, Sequence");
  }
}

void HfStepsReader::read_bert(const HfObject& node, std::vector<NormalizeStep>& out) const {
  using Kind = NormalizeStep::Kind;
  const bool lowercase = get_or<bool>(node, "lowercase", true);
  if (get_or<bool>(node, "clean_text", true)) out.push_back({Kind::clean});
  if (get_or<bool>(node, "handle_chinese_chars", true)) out.push_back({Kind::space_ideographs});
  if (get_or<bool>(node, "strip_accents", lowercase)) {
    out.push_back({Kind::nfd});
    out.push_back({Kind::strip_nonspacing});
  }
  if (lowercase) out.push_back({Kind::lowercase});
}

// The `pattern` of a Replace or Split.
HfStepsReader::Searched HfStepsReader::read_searched(const HfObject& node) const {
  const auto pattern = get<HfObject>(node, "pattern");
  Searched searched;
  for (const char* key : {"String", "Regex"}) {
    if (member(pattern, key) == nullptr) continue;
    const auto text = get<std::string>(pattern, key);
    if (text.empty()) refuse(std::string("pattern.") + key, text);
    (key[0] == 'S' ? searched.text : searched.expression) = text;
    return searched;
  }
  damaged(fmt::format("key 'pattern' has neither String nor Regex: {}", shown(pattern)));
}

Delimiters HfStepsReader::read_behavior(const HfObject& node, const char* otherwise) const {
  const auto behavior = get_or<std::string>(node, "behavior", otherwise);
  if (behavior == "Isolated") return Delimiters::isolated;
  if (behavior == "Removed") return Delimiters::removed;
  if (behavior == "Contiguous") return Delimiters::contiguous;
  if (behavior == "MergedWithPrevious") return Delimiters::with_previous;
  if (behavior == "MergedWithNext") return Delimiters::with_next;
  refuse("pre_tokenizer.behavior", behavior,
         "Isolated, Removed, Contiguous, MergedWithPrevious, MergedWithNext");
}

void HfStepsReader::read_split(const HfObject& node, std::vector<SplitStep>& out) const {
  using Kind = SplitStep::Kind;
  const auto type = get<std::string>(node, "type");
  const auto add_chars = [&](const CharSet& chars, Delimiters delimiters, bool divides) {
    SplitStep step{Kind::characters};
    step.chars = &chars;
    step.delimiters = delimiters;
    step.divides_at_spaces = divides;
    out.push_back(step);
  };
  if (type == "Sequence") {
    for (const HfObject& child : get<std::vector<HfObject>>(node, "pretokenizers")) {
      read_split(child, out);
    }
  } else if (type == "ByteLevel") {
    if (get_or<bool>(node, "add_prefix_space", true)) out.push_back({Kind::prefix_space});
    if (get_or<bool>(node, "use_regex", true)) {
      out.push_back({Kind::words, WordRule::gpt2});
      out.back().divides_at_spaces = true;
    }
  } else if (type == "Split") {
    read_split_pattern(node, out);
  } else if (type == "Digits") {
    const bool each = get_or<bool>(node, "individual_digits", false);
    out.push_back({each ? Kind::each_digit : Kind::digits});
  } else if (type == "Metaspace") {
    read_metaspace(node, out);
  } else if (type == "Whitespace") {
    out.push_back({Kind::word_runs});
    out.back().divides_at_spaces = true;
  } else if (type == "WhitespaceSplit") {
    add_chars(space_chars(), Delimiters::removed, true);
  } else if (type == "BertPreTokenizer") {
    add_chars(space_chars(), Delimiters::removed, true);
    add_chars(punctuation_chars(), Delimiters::isolated, false);
  } else if (type == "Punctuation") {
    add_chars(punctuation_chars(), read_behavior(node, "Isolated"), false);
  } else if (type == "CharDelimiterSplit") {
    SplitStep step{Kind::literal};
    step.text = read_char(node, "delimiter");
    step.delimiters = Delimiters::removed;
    step.divides_at_spaces = step.text == " ";
    out.push_back(step);
  } else {
    refuse("pre_tokenizer.type", type,
           "ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation, "
           "CharDelimiterSplit, BertPreTokenizer, Sequence");
  }
}

std::string HfStepsReader::read_char(const HfObject& node, const char* key) const {
  const auto text = get<std::string>(node, key);
  if (text.empty() || decode_utf8(text, 0).bytes != text.size()) {
    damaged(fmt::format("key '{}' is \"{}\", which is not one character", key, text));
  }
  return text;
}

void HfStepsReader::read_split_pattern(const HfObject& node, std::vector<SplitStep>& out) const {
  SplitStep step;
  step.delimiters = read_behavior(node, "Isolated");
  step.invert = get_or<bool>(node, "invert", false);
  const Searched searched = read_searched(node);
  // The rules match all of a text, so that there is nothing between their words.
  const bool each_match = step.invert ? step.delimiters == Delimiters::removed
                                      : step.delimiters == Delimiters::isolated;
  const std::string spelled = spelled_out(searched.expression);
  if (searched.expression.empty()) {
    step.kind = SplitStep::Kind::literal;
    step.text = searched.text;
  } else if (each_match && find_word_rule(spelled, step.rule)) {
    step.kind = SplitStep::Kind::words;
    step.divides_at_spaces = true;
  } else {
    step.kind = SplitStep::Kind::pattern;
    step.pattern = std::make_shared<const Pattern>(searched.expression, origin_);
    step.divides_at_spaces = each_match && known_to_divide(spelled);
    step.is_local = is_local(spelled);
  }
  out.push_back(step);
}

void HfStepsReader::read_metaspace(const HfObject& node, std::vector<SplitStep>& out) const {
  using Prefix = SplitStep::Prefix;
  SplitStep step{SplitStep::Kind::mark_spaces};
  const auto otherwise = read_mark(node) ? "always" : "never";
  const auto scheme = get_or<std::string>(node, "prepend_scheme", otherwise);
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    refuse("Metaspace.prepend_scheme", scheme, "always, first, never");
  }
  step.prefix = scheme == "always"  ? Prefix::always
                : scheme == "first" ? Prefix::first
                                    : Prefix::never;
  out.push_back(step);
  if (!get_or<bool>(node, "split", true)) return;
  out.push_back({SplitStep::Kind::each_mark});
  out.back().divides_at_spaces = true;
}

// Of a Metaspace: checks its mark; false when files of old say that nothing is put in front.
bool HfStepsReader::read_mark(const HfObject& node) const {
  const auto mark = get_or<std::string>(node, "replacement", std::string(kSpaceMark));
  if (mark != kSpaceMark) refuse("Metaspace.replacement", mark, "only U+2581 is");
  return get_or<bool>(node, "add_prefix_space", true);
}

void HfStepsReader::read_decoder(const HfObject& node, std::vector<DecodeStep>& out) const {
  using Kind = DecodeStep::Kind;
  const auto type = get<std::string>(node, "type");
  if (type == "Sequence") {
    for (const HfObject& child : get<std::vector<HfObject>>(node, "decoders")) {
      read_decoder(child, out);
    }
  } else if (type == "ByteLevel" || type == "Fuse") {
    out.push_back({Kind::fuse});
  } else if (type == "ByteFallback") {
    out.push_back({Kind::byte_fallback});
  } else if (type == "Metaspace") {
    DecodeStep step{Kind::marks, std::string(kSpaceMark)};
    const auto otherwise = read_mark(node) ? "always" : "never";
    step.first = get_or<std::string>(node, "prepend_scheme", otherwise) != "never";
    out.push_back(step);
  } else if (type == "Replace") {
    const Searched searched = read_searched(node);
    DecodeStep step{Kind::replace, searched.text, get<std::string>(node, "content")};
    if (!searched.expression.empty()) {
      step.pattern = std::make_shared<const Pattern>(searched.expression, origin_);
    }
    out.push_back(step);
  } else if (type == "Strip") {
    DecodeStep step{Kind::strip, read_char(node, "content")};
    step.start = get_or<int64_t>(node, "start", 0);
    step.stop = get_or<int64_t>(node, "stop", 0);
    out.push_back(step);
  } else if (type == "WordPiece") {
    out.push_back({Kind::word_piece, get_or<std::string>(node, "prefix", "##")});
    if (get_or<bool>(node, "cleanup", true)) out.push_back({Kind::clean_up});
  } else {
    refuse("decoder.type", type,
           "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, WordPiece, Sequence");
  }
}

void HfStepsReader::read_post_processor(const HfObject& node,
                                        std::vector<std::string>& begin) const {
  const auto type = get<std::string>(node, "type");
  if (type == "Sequence") {
    for (const HfObject& child : get<std::vector<HfObject>>(node, "processors")) {
      read_post_processor(child, begin);
    }
  } else if (type == "TemplateProcessing") {
    read_template(node, begin);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto token = get<std::vector<HfObject>>(node, "cls");
    if (token.empty() || !token[0].is_string()) {
      damaged("post_processor.cls is not a token and its id");
    }
    begin = {token[0].get<std::string>()};
  } else if (type != "ByteLevel") {
    refuse("post_processor.type", type,
           "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence");
  }
}

void HfStepsReader::read_template(const HfObject& node, std::vector<std::string>& begin) const {
  begin.clear();
  if (member(node, "single") == nullptr) return;
  for (const HfObject& part : get<std::vector<HfObject>>(node, "single")) {
    if (member(part, "SpecialToken") == nullptr) return;
    begin.push_back(get<std::string>(get<HfObject>(part, "SpecialToken"), "id"));
  }
}

}  // namespace tutti::data
