#include "tutti/data/text_normalizer.h"

#include <unicode/unorm2.h>
#include <unicode/ustring.h>

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/data/utf8.h"

namespace tutti::data {
namespace {

// `text` is valid UTF-8.
void append_normal_form(NormalizeStep::Kind kind, std::string_view text, std::string& out) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; })) {
    out += text;  // ASCII is in every normal form
    return;
  }
  using Kind = NormalizeStep::Kind;
  UErrorCode status = U_ZERO_ERROR;
  const UNormalizer2* form = kind == Kind::nfc    ? unorm2_getNFCInstance(&status)
                             : kind == Kind::nfd  ? unorm2_getNFDInstance(&status)
                             : kind == Kind::nfkc ? unorm2_getNFKCInstance(&status)
                                                  : unorm2_getNFKDInstance(&status);
  TUTTI_CHECK(U_SUCCESS(status), "ICU has no normal forms: {}", u_errorName(status));
  const auto size = static_cast<int32_t>(text.size());
  std::u16string wide(text.size(), u'\0');  // never more units than bytes
  int32_t length = 0;
  u_strFromUTF8(wide.data(), size, &length, text.data(), size, &status);
  std::u16string normal(static_cast<size_t>(length) * 2 + 64, u'\0');
  int32_t normal_length = unorm2_normalize(form, wide.data(), length, normal.data(),
                                           static_cast<int32_t>(normal.size()), &status);
  if (status == U_BUFFER_OVERFLOW_ERROR) {
    status = U_ZERO_ERROR;
    normal.resize(static_cast<size_t>(normal_length) + 1);
    normal_length = unorm2_normalize(form, wide.data(), length, normal.data(),
                                     static_cast<int32_t>(normal.size()), &status);
  }
  std::string narrow(static_cast<size_t>(normal_length) * 3 + 1, '\0');
  int32_t bytes = 0;
  u_strToUTF8(narrow.data(), static_cast<int32_t>(narrow.size()), &bytes, normal.data(),
              normal_length, &status);
  TUTTI_CHECK(U_SUCCESS(status), "ICU failed on valid text: {}", u_errorName(status));
  out.append(narrow, 0, static_cast<size_t>(bytes));
}

std::string normal_form(NormalizeStep::Kind kind, std::string_view text) {
  constexpr size_t kMost = size_t{1} << 26;  // ICU counts in 32 bits
  std::string out;
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

std::string normalize(const std::vector<NormalizeStep>& steps, std::string_view text, bool rest) {
  std::string out(text);
  for (const NormalizeStep& step : steps) {
    switch (step.kind) {
      case NormalizeStep::Kind::prepend:
        if (!out.empty() && !rest) out.insert(0, step.to);
        break;
      case NormalizeStep::Kind::replace: out = replace_all(out, step.from, step.to); break;
      default: out = normal_form(step.kind, out);
    }
  }
  return out;
}

bool only_normal_forms(const std::vector<NormalizeStep>& steps) {
  return std::all_of(steps.begin(), steps.end(), [](const NormalizeStep& step) {
    return step.kind != NormalizeStep::Kind::prepend && step.kind != NormalizeStep::Kind::replace;
  });
}

}  // namespace tutti::data
