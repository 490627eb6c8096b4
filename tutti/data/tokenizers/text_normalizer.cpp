#include "tutti/data/tokenizers/text_normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/data/tokenizers/char_set.h"
#include "tutti/data/tokenizers/grapheme.h"
#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {
namespace {

using NormalizeKind = NormalizeStep::Kind;

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

bool is_normal_form(NormalizeKind kind) {
  return kind == NormalizeKind::nfc || kind == NormalizeKind::nfd || kind == NormalizeKind::nfkc ||
         kind == NormalizeKind::nfkd;
}

// `text` is valid UTF-8.
void append_normal_form(NormalizeKind kind, std::string_view text, std::string& out) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* form =
      kind == NormalizeKind::nfc    ? icu::Normalizer2::getNFCInstance(status)
      : kind == NormalizeKind::nfd  ? icu::Normalizer2::getNFDInstance(status)
      : kind == NormalizeKind::nfkc ? icu::Normalizer2::getNFKCInstance(status)
                                    : icu::Normalizer2::getNFKDInstance(status);
  TUTTI_CHECK(U_SUCCESS(status), "ICU has no normal forms: {}", u_errorName(status));
  icu::StringByteSink<std::string> sink(&out);
  form->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink,
                      nullptr, status);
  TUTTI_CHECK(U_SUCCESS(status), "ICU failed on valid text: {}", u_errorName(status));
}

std::string normal_form(NormalizeKind kind, std::string_view text) {
  constexpr size_t kMost = size_t{1} << 26;  // ICU counts in 32 bits
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    // A line end neither combines nor decomposes, so that pieces that end there are independent.
    const bool divides = text[at] == '\n' && at - start >= kMost;
    if (!c.valid || divides) {
      append_normal_form(kind, text.substr(start, at - start), out);
      if (!c.valid) out += text[at];
      start = divides ? at : at + 1;
    }
    at += c.bytes;
  }
  append_normal_form(kind, text.substr(start), out);
  return out;
}

// Calls change(c, out) for each character, which appends what it becomes.
template <typename Change>
std::string each_char(std::string_view text, const Change& change) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.valid) {
      change(c.value, out);
    } else {
      out += text[at];
    }
    at += c.bytes;
  }
  return out;
}

void append_lower(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x130) {
    out += "i\xcc\x87";  // the one character with a longer lower case (SpecialCasing.txt)
  } else {
    append_utf8(out, static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))));
  }
}

std::string without(std::string_view text, const CharSet& set) {
  return each_char(text, [&](char32_t c, std::string& out) {
    if (!set.has(c)) append_utf8(out, c);
  });
}

std::string cleaned(std::string_view text) {
  return each_char(text, [&](char32_t c, std::string& out) {
    if (c == '\t' || c == '\n' || c == '\r') {
      out += ' ';
    } else if (c >= 0x20 && c < 0x7F) {
      out += static_cast<char>(c);
    } else if (c != 0xFFFD && !control_chars().has(c)) {
      append_utf8(out, space_chars().has(c) ? U' ' : c);
    }
  });
}

// As BERT's own code has it: the blocks of Unicode 8.
bool is_ideograph(char32_t c) {
  constexpr char32_t kBlocks[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                     {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                     {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return c >= 0x3400 && std::any_of(std::begin(kBlocks), std::end(kBlocks), [&](const auto& block) {
           return c >= block[0] && c <= block[1];
         });
}

std::string with_spaced_ideographs(std::string_view text) {
  return each_char(text, [&](char32_t c, std::string& out) {
    const bool spaced = is_ideograph(c);
    if (spaced) out += ' ';
    append_utf8(out, c);
    if (spaced) out += ' ';
  });
}

std::string nmt(std::string_view text) {
  return each_char(text, [&](char32_t c, std::string& out) {
    const bool blank = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    const bool control = (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) ||
                         c == 0x7F || c == 0x8F || c == 0x9F;
    if (!control) append_utf8(out, blank ? U' ' : c);
  });
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const Utf8Char c = decode_utf8(text, 0);
    if (!space_chars().has(c)) break;
    text.remove_prefix(c.bytes);
  }
  while (right && !text.empty()) {
    const Utf8Char c = decode_utf8_before(text, text.size());
    if (!space_chars().has(c)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

// A cluster of fewer than 6 bytes becomes what the shortest rule for its start says, as a whole; in
// any other each character what the rule for it says.
std::string mapped(const Charsmap& map, std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (size_t at = 0; at < text.size();) {
    const std::string_view cluster = text.substr(at, grapheme_bytes(text, at));
    at += cluster.size();
    if (cluster.size() < 6) {
      const CharsmapMatch match = map.shortest(cluster);
      if (match.bytes > 0) {
        out += match.replacement;
        continue;
      }
    }
    for (size_t i = 0; i < cluster.size();) {
      const std::string_view c = cluster.substr(i, decode_utf8(cluster, i).bytes);
      const CharsmapMatch match = map.shortest(c);
      out += match.bytes > 0 ? match.replacement : c;
      i += c.size();
    }
  }
  return out;
}

std::string apply(const NormalizeStep& step, std::string text, bool rest) {
  const bool ascii = is_ascii(text);
  switch (step.kind) {
    case NormalizeKind::prepend: return text.empty() || rest ? text : step.to + text;
    case NormalizeKind::replace:
      return step.pattern != nullptr ? replace_all(text, *step.pattern, step.to)
                                     : replace_all(text, step.from, step.to);
    case NormalizeKind::lowercase: return each_char(text, append_lower);
    case NormalizeKind::strip: return std::string(stripped(text, step.left && !rest, step.right));
    case NormalizeKind::strip_accents: return ascii ? text : without(text, combining_marks());
    case NormalizeKind::strip_nonspacing: return ascii ? text : without(text, nonspacing_marks());
    case NormalizeKind::clean: return cleaned(text);
    case NormalizeKind::space_ideographs: return ascii ? text : with_spaced_ideographs(text);
    case NormalizeKind::nmt: return nmt(text);
    case NormalizeKind::charsmap: return mapped(*step.charsmap, text);
    default: return ascii ? text : normal_form(step.kind, text);  // ASCII is in every normal form
  }
}

// Whether the first character is one of those that the step drops.
bool drops_start(const NormalizeStep& step, std::string_view text, bool rest) {
  const bool drops = (step.kind == NormalizeKind::strip && step.left && !rest) ||
                     step.kind == NormalizeKind::strip_accents ||
                     step.kind == NormalizeKind::strip_nonspacing ||
                     step.kind == NormalizeKind::clean || step.kind == NormalizeKind::nmt;
  if (!drops || text.empty()) return false;
  return apply(step, std::string(text.substr(0, decode_utf8(text, 0).bytes)), rest).empty();
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  for (size_t at = 0;;) {
    const size_t found = text.find(from, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += to;
    at = found + from.size();
  }
}

std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  Match match;
  while (done < text.size() && pattern.find(text, done, match)) {
    out += text.substr(done, match.begin - done);
    out += to;
    done = match.end;
  }
  out += text.substr(done);
  return out;
}

std::string normalize(const std::vector<NormalizeStep>& steps, std::string_view text, bool rest,
                      bool& starts) {
  std::string out(text);
  for (const NormalizeStep& step : steps) {
    starts = starts && !drops_start(step, out, rest);
    out = apply(step, std::move(out), rest);
  }
  return out;
}

bool only_normal_forms(const std::vector<NormalizeStep>& steps) {
  return std::all_of(steps.begin(), steps.end(),
                     [](const NormalizeStep& step) { return is_normal_form(step.kind); });
}

}  // namespace tutti::data
