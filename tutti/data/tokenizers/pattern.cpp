#include "tutti/data/tokenizers/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "tutti/base/check.h"
#include "tutti/base/error.h"

namespace tutti::data {
namespace {

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// Oniguruma's meaning of \s, \S, \w and \W spelled out for PCRE2, whose own sets differ (U+180E is
// a blank there and marks are not part of words), and what cannot be spelled refused.
std::string bridge(const std::string& expression, const std::string& origin) {
  constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
  std::string out;
  bool in_class = false;
  const auto refuse = [&](const std::string& what) {
    fail(ErrorKind::unsupported,
         "'{}': the pattern \"{}\" uses {}, which is not supported; use the model's "
         "tokenizer.model if "
         "it has one, or a corpus that was tokenized elsewhere, in Megatron-LM's format",
         origin, expression, what);
  };
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (expression.compare(i, 2, "\\Q") == 0) {  // literally up to \E
      const size_t end = std::min(expression.find("\\E", i), expression.size());
      out += expression.substr(i, end - i);
      i = end - 1;
    } else if (c == '\\' && i + 1 < expression.size()) {
      const char escaped = expression[++i];
      const bool refused = escaped == 'h' || escaped == 'H' || (in_class && escaped == 'W') ||
                           (!in_class && (escaped == 'b' || escaped == 'B'));
      if (refused) refuse(std::string("\\") + escaped);
      switch (escaped) {
        case 's': out += "\\p{White_Space}"; break;
        case 'S': out += "\\P{White_Space}"; break;
        case 'w': out += in_class ? std::string(kWord) : fmt::format("[{}]", kWord); break;
        case 'W': out += fmt::format("[^{}]", kWord); break;
        default: (out += c) += escaped;
      }
      const size_t close = expression.find('}', i);
      if ((escaped == 'p' || escaped == 'P' || escaped == 'x') && close != std::string::npos &&
          expression.compare(i + 1, 1, "{") == 0) {
        out += expression.substr(i + 1, close - i);
        i = close;
      }
    } else {
      // Oniguruma nests and intersects classes, (?m) is another option there, and {1,3}+ repeats.
      if (in_class && c == '[' && expression.compare(i, 2, "[:") != 0) refuse("a class in a class");
      if (in_class && expression.compare(i, 2, "&&") == 0) refuse("&& in a class");
      if (!in_class && expression.compare(i, 2, "}+") == 0) refuse("}+");
      if (!in_class && expression.compare(i, 2, "(?") == 0) {
        const size_t end = expression.find_first_not_of("imsx-", i + 2);
        const size_t option = expression.find_first_of("ms", i + 2);
        if (option < end) refuse(std::string("the option ") + expression[option]);
      }
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      out += c;
    }
  }
  return out;
}

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct Pattern::State {
  std::string expression;
  pcre2_code* code = nullptr;
  ~State() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& expression, const std::string& origin)
    : state_(std::make_unique<State>()) {
  const std::string bridged = bridge(expression, origin);
  int code = 0;
  PCRE2_SIZE offset = 0;
  state_->expression = expression;
  state_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(bridged.data()), bridged.size(),
                               PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_MATCH_INVALID_UTF,
                               &code, &offset, nullptr);
  if (state_->code == nullptr) {
    fail(ErrorKind::corrupt, "'{}': the pattern \"{}\" is invalid at position {}: {}", origin,
         expression, offset, error_text(code));
  }
  code = pcre2_jit_compile(state_->code, PCRE2_JIT_COMPLETE);
  if (code != 0 && code != PCRE2_ERROR_JIT_BADOPTION) {
    fail(ErrorKind::unsupported, "'{}': the pattern \"{}\" cannot be compiled: {}", origin,
         expression, error_text(code));
  }
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

bool Pattern::find(std::string_view text, size_t from, Match& match) const {
  // One pair of offsets: groups are not captured.
  thread_local const std::unique_ptr<pcre2_match_data, FreeMatchData> data(
      pcre2_match_data_create(1, nullptr));
  TUTTI_CHECK(data != nullptr, "no memory for a match");
  const int found = pcre2_match(state_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                text.size(), from, PCRE2_NOTEMPTY, data.get(), nullptr);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    fail(ErrorKind::usage, "the pattern \"{}\" cannot be searched in this text: {}",
         state_->expression, error_text(found));
  }
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data.get());
  match = {span[0], span[1]};
  return true;
}

const std::string& Pattern::expression() const { return state_->expression; }

std::string pattern_unicode_version() {
  std::array<char, 32> text{};
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, text.data());
  return text.data();
}

}  // namespace tutti::data
