// How text is divided into the words that a model encodes each for itself: the `pre_tokenizer` of a
// tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/data/tokenizers/char_set.h"
#include "tutti/data/tokenizers/pattern.h"
#include "tutti/data/tokenizers/unicode_classes.h"
#include "tutti/data/tokenizers/word_split.h"

namespace tutti::data {

// What becomes of delimiters, as Hugging Face names it: words for themselves, dropped, one word
// with delimiters beside them, or part of the text before or behind.
enum class Delimiters { isolated, removed, contiguous, with_previous, with_next };

struct SplitStep {
  enum class Kind {
    words,         // by `rule`
    pattern,       // delimiters are the matches of `pattern`
    literal,       // delimiters are `text`
    characters,    // each character of `chars` is a delimiter
    word_runs,     // \w+|[^\w\s]+; what is between them is dropped
    digits,        // runs of numbers and what is between them
    each_digit,    // likewise, every number for itself
    prefix_space,  // a space before what does not start with one
    mark_spaces,   // spaces become marks, and one is put in front (`prefix`)
    marked_words,  // a word starts with a run of marks
    each_mark,     // a word starts with a mark
  };
  enum class Prefix { always, first, never };
  Kind kind = Kind::words;
  WordRule rule = WordRule::gpt2;
  std::shared_ptr<const Pattern> pattern = nullptr;
  std::string text = {};
  const CharSet* chars = nullptr;
  Delimiters delimiters = Delimiters::isolated;
  bool invert = false;  // delimiters are what does not match
  Prefix prefix = Prefix::always;
  // No word reaches across a space between an ASCII sign or letter and an ASCII letter, and none
  // depends on what is behind such a space. A pattern's: it is one of those that are known to.
  bool divides_at_spaces = false;
  bool is_local =
      false;  // a pattern's: its matches hold no blank and depend on no character beside
};

class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void word(std::string_view text) = 0;  // never empty
};

// Where a piece of text is in its document.
struct TextPosition {
  bool first = false;  // it is the start of the document
  bool rest = false;   // it continues a document that was cut
};

// Gives the words of `text` in order: each step divides what the step before left.
void split_text(const std::vector<SplitStep>& steps, const UnicodeClasses& classes,
                std::string_view text, TextPosition position, WordSink& sink);

}  // namespace tutti::data
