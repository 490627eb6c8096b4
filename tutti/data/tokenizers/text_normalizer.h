// What happens to text before it is divided: `normalizer` of a tokenizer.json. Unicode's normal
// forms and lower case come from ICU. Bytes that are not UTF-8 pass unchanged.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/data/tokenizers/charsmap.h"
#include "tutti/data/tokenizers/pattern.h"

namespace tutti::data {

struct NormalizeStep {
  enum class Kind {
    nfc,
    nfd,
    nfkc,
    nfkd,
    prepend,           // `to` before a text that is not empty
    replace,           // every `from`, or every match of `pattern`, by `to`
    lowercase,         // each character for itself
    strip,             // white space at the start (`left`) and the end (`right`)
    strip_accents,     // without combining marks (M)
    strip_nonspacing,  // without nonspacing marks (Mn)
    clean,             // without control characters; every blank is a space (BERT)
    space_ideographs,  // a space at both sides of each (BERT)
    nmt,               // SentencePiece's rules of that name: controls go, blanks are spaces
    charsmap,          // compiled rules (charsmap.h), as Hugging Face applies them
  };
  Kind kind = Kind::nfc;
  std::string from = {};  // replace: not empty, or a pattern
  std::string to = {};
  std::shared_ptr<const Pattern> pattern = nullptr;
  std::shared_ptr<const Charsmap> charsmap = nullptr;
  bool left = false, right = false;
};

// `text` after all steps; `rest`: it continues a document: nothing is prepended or stripped.
// Where characters at the start were dropped, `starts` becomes false.
std::string normalize(const std::vector<NormalizeStep>& steps, std::string_view text, bool rest,
                      bool& starts);

std::string replace_all(std::string_view text, std::string_view from, std::string_view to);
std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view to);

// True when every step is a normal form.
bool only_normal_forms(const std::vector<NormalizeStep>& steps);

}  // namespace tutti::data
