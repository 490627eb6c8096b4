#include "tutti/data/hf_steps_reader.h"

#include "tutti/base/error.h"

namespace tutti::data {
namespace {

bool contains_quote_end(const std::string& text) { return text.find("\\E") != std::string::npos; }

}  // namespace

void HfStepsReader::read_normalizer(const HfObject& node, std::vector<NormalizeStep>& out) const {
  const auto type = get<std::string>(node, "type");
  using Kind = NormalizeStep::Kind;
  if (type == "Sequence") {
    for (const HfObject& child : get<std::vector<HfObject>>(node, "normalizers")) {
      read_normalizer(child, out);
    }
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    out.push_back({type == "NFC"    ? Kind::nfc
                   : type == "NFD"  ? Kind::nfd
                   : type == "NFKC" ? Kind::nfkc
                                    : Kind::nfkd});
  } else if (type == "Prepend") {
    out.push_back({Kind::prepend, "", get<std::string>(node, "prepend")});
  } else if (type == "Replace") {
    out.push_back({Kind::replace, literal(node, "normalizer"), get<std::string>(node, "content")});
  } else {
    refuse("a normalizer of type '" + type + "'");
  }
}

// The string that a Replace replaces.
std::string HfStepsReader::literal(const HfObject& node, const char* what) const {
  const HfObject* pattern = member(node, "pattern");
  const HfObject* text = pattern == nullptr ? nullptr : member(*pattern, "String");
  if (text == nullptr || !text->is_string() || text->get<std::string>().empty()) {
    refuse(std::string("a ") + what + " Replace of anything but a string");
  }
  return text->get<std::string>();
}

void HfStepsReader::read_split(const HfObject& node, std::vector<SplitStep>& out) const {
  using Kind = SplitStep::Kind;
  const auto type = get<std::string>(node, "type");
  if (type == "Sequence") {
    for (const HfObject& child : get<std::vector<HfObject>>(node, "pretokenizers"))
      read_split(child, out);
  } else if (type == "ByteLevel") {
    if (get_or<bool>(node, "add_prefix_space", true)) out.push_back({Kind::prefix_space});
    if (get_or<bool>(node, "use_regex", true)) {
      out.push_back({Kind::words, WordRule::gpt2});
    }
  } else if (type == "Split") {
    read_pattern(node, out);
  } else if (type == "Digits") {
    const bool each = get_or<bool>(node, "individual_digits", false);
    out.push_back({each ? Kind::each_digit : Kind::digits});
  } else if (type == "Metaspace") {
    read_metaspace(node, out);
  } else {
    refuse("a pre-tokenizer of type '" + type + "'");
  }
}

void HfStepsReader::read_pattern(const HfObject& node, std::vector<SplitStep>& out) const {
  const auto behaviour = get_or<std::string>(node, "behavior", "Isolated");
  if (behaviour != "Isolated") refuse("a Split with behavior '" + behaviour + "'");
  if (get_or<bool>(node, "invert", false)) refuse("an inverted Split");
  const HfObject* pattern = member(node, "pattern");
  const HfObject* regex = pattern == nullptr ? nullptr : member(*pattern, "Regex");
  std::string expression;
  if (regex != nullptr && regex->is_string()) {
    expression = *regex;
  } else {
    const std::string text = literal(node, "Split or");
    if (contains_quote_end(text)) refuse("a Split at \"" + text + "\"");
    expression = "\\Q" + text + "\\E";
  }
  SplitStep step;
  if (!find_word_rule(expression, step.rule)) {
    step.kind = SplitStep::Kind::pattern;
    step.pattern = std::make_shared<const Pattern>(expression, origin_);
  }
  out.push_back(step);
}

void HfStepsReader::read_metaspace(const HfObject& node, std::vector<SplitStep>& out) const {
  check_mark(node);
  using Prefix = SplitStep::Prefix;
  const bool old_prefix = get_or<bool>(node, "add_prefix_space", true);
  const auto scheme = get_or<std::string>(node, "prepend_scheme", old_prefix ? "always" : "never");
  SplitStep step{SplitStep::Kind::mark_spaces};
  step.prefix = scheme == "always"  ? Prefix::always
                : scheme == "first" ? Prefix::first
                                    : Prefix::never;
  out.push_back(step);
  if (get_or<bool>(node, "split", true)) out.push_back({SplitStep::Kind::each_mark});
}

void HfStepsReader::check_mark(const HfObject& node) const {
  const auto mark = get_or<std::string>(node, "replacement", std::string(kSpaceMark));
  if (mark != kSpaceMark) refuse("a Metaspace with replacement '" + mark + "'");
}

void HfStepsReader::read_decoder(const HfObject& node, HfDecoding& out) const {
  const auto type = get<std::string>(node, "type");
  if (type == "Sequence") {
    for (const HfObject& child : get<std::vector<HfObject>>(node, "decoders"))
      read_decoder(child, out);
  } else if (type == "Metaspace") {
    check_mark(node);
    out.marks_to_spaces = true;
    const bool never = get_or<std::string>(node, "prepend_scheme", "") == "never" ||
                       !get_or<bool>(node, "add_prefix_space", true);
    if (!never) out.strip_spaces = 1;
  } else if (type == "Replace") {
    if (literal(node, "decoder") != kSpaceMark || get<std::string>(node, "content") != " ") {
      refuse("a decoder Replace of anything but the space mark by a space");
    }
    out.marks_to_spaces = true;
  } else if (type == "Strip") {
    if (get<std::string>(node, "content") != " " || get_or<int>(node, "stop", 0) != 0) {
      refuse("a decoder Strip of anything but spaces at the start");
    }
    out.strip_spaces = get_or<int>(node, "start", 0);
  } else if (type != "ByteLevel" && type != "ByteFallback" && type != "Fuse") {
    refuse("a decoder of type '" + type + "'");
  }
}

}  // namespace tutti::data
