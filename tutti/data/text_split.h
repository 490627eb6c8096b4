// How text is divided into the words that a model encodes each for itself: the `pre_tokenizer` of a
// tokenizer.json.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tutti/data/pattern.h"
#include "tutti/data/unicode_classes.h"
#include "tutti/data/word_split.h"

namespace tutti::data {

// U+2581, which stands for a space in vocabularies of SentencePiece's kind.
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

struct SplitStep {
  enum class Kind {
    words,         // by `rule`
    pattern,       // matches and what is between them
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
  Prefix prefix = Prefix::always;
};

class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void word(std::string_view text) = 0;  // never empty
};

// Where a piece of text is in its document.
struct TextPlace {
  bool first = false;  // it is the start of the document
  bool rest = false;   // it goes on where a document was cut
};

// Gives the words of `text` in order: each step divides what the step before left.
void split_text(const std::vector<SplitStep>& steps, const UnicodeClasses& classes,
                std::string_view text, TextPlace place, WordSink& sink);

}  // namespace tutti::data
