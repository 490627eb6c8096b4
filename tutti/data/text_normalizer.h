// What happens to text before it is divided: `normalizer` of a tokenizer.json. Unicode's normal
// forms come from ICU. Bytes that are not UTF-8 pass unchanged.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::data {

struct NormalizeStep {
  enum class Kind { nfc, nfd, nfkc, nfkd, prepend, replace };
  Kind kind = Kind::nfc;
  std::string from = {};  // replace: never empty
  std::string to = {};    // replace, prepend
};

// `text` after all steps; `rest`: text that goes on, before which nothing is prepended.
std::string normalize(const std::vector<NormalizeStep>& steps, std::string_view text, bool rest);

std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

// True when every step is a normal form.
bool only_normal_forms(const std::vector<NormalizeStep>& steps);

}  // namespace tutti::data
