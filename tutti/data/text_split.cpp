#include "tutti/data/text_split.h"

#include <algorithm>
#include <string>

#include "tutti/data/text_normalizer.h"

namespace tutti::data {
namespace {

void divide(const std::vector<SplitStep>& steps, size_t index, const UnicodeClasses& classes,
            std::string_view text, TextPlace place, WordSink& sink) {
  if (index == steps.size()) {
    if (!text.empty()) sink.word(text);
    return;
  }
  const SplitStep& step = steps[index];
  const auto give = [&](size_t begin, size_t end) {
    if (begin == end) return;
    divide(steps, index + 1, classes, text.substr(begin, end - begin),
           {place.first && begin == 0, false}, sink);
  };
  using Kind = SplitStep::Kind;
  switch (step.kind) {
    case Kind::words:
      for (size_t at = 0; at < text.size();) {
        const size_t end = word_end(step.rule, classes, text, at);
        give(at, end);
        at = end;
      }
      break;
    case Kind::pattern: {
      size_t done = 0;
      Match match;
      while (step.pattern->find(text, done, match)) {
        give(done, match.begin);
        give(match.begin, match.end);
        done = match.end;
      }
      give(done, text.size());
      break;
    }
    case Kind::digits:
    case Kind::each_digit:
      for (size_t at = 0; at < text.size();) {
        const ClassifiedChar c = classes.at(text, at);
        size_t end = at + c.bytes;
        if (c.kind == CharClass::number) {
          if (step.kind == Kind::digits) end = classes.run_end(text, end, CharClass::number);
        } else {
          while (end < text.size()) {
            const ClassifiedChar next = classes.at(text, end);
            if (next.kind == CharClass::number) break;
            end += next.bytes;
          }
        }
        give(at, end);
        at = end;
      }
      break;
    case Kind::prefix_space:
      if (place.rest || text.starts_with(' ')) {
        give(0, text.size());
      } else {
        const std::string prefixed = " " + std::string(text);
        divide(steps, index + 1, classes, prefixed, {place.first, false}, sink);
      }
      break;
    case Kind::mark_spaces: {
      std::string marked = replace_all(text, " ", kSpaceMark);
      const bool wanted = step.prefix == SplitStep::Prefix::always ||
                          (step.prefix == SplitStep::Prefix::first && place.first);
      if (wanted && !place.rest && !marked.starts_with(kSpaceMark)) marked.insert(0, kSpaceMark);
      divide(steps, index + 1, classes, marked, {place.first, false}, sink);
      break;
    }
    case Kind::marked_words:
    case Kind::each_mark: {
      const bool each = step.kind == Kind::each_mark;
      size_t begin = 0;
      while (begin < text.size()) {
        size_t at = begin;
        // Past the mark, or the run of marks, that the word starts with.
        while (text.compare(at, kSpaceMark.size(), kSpaceMark) == 0) {
          at += kSpaceMark.size();
          if (each) break;
        }
        const size_t end = std::min(text.find(kSpaceMark, at), text.size());
        give(begin, end);
        begin = end;
      }
      break;
    }
  }
}

}  // namespace

void split_text(const std::vector<SplitStep>& steps, const UnicodeClasses& classes,
                std::string_view text, TextPlace place, WordSink& sink) {
  divide(steps, 0, classes, text, place, sink);
}

}  // namespace tutti::data
