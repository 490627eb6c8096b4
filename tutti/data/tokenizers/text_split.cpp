#include "tutti/data/tokenizers/text_split.h"

#include <algorithm>
#include <string>

#include "tutti/data/tokenizers/space_mark.h"
#include "tutti/data/tokenizers/text_normalizer.h"
#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {
namespace {

// Groups the segments of a text, delimiters and what is between them, in order.
template <typename Give>
class Grouping {
 public:
  Grouping(Delimiters rule, const Give& give) : rule_(rule), give_(give) {}

  void segment(size_t begin, size_t end, bool delimiter) {
    if (begin == end) return;
    switch (rule_) {
      case Delimiters::isolated: give_(begin, end); return;
      case Delimiters::removed:
        if (!delimiter) give_(begin, end);
        return;
      case Delimiters::contiguous: add(begin, end, delimiter == previous_); break;
      case Delimiters::with_previous: add(begin, end, delimiter && !previous_); break;
      case Delimiters::with_next: add(begin, end, !delimiter && previous_); break;
    }
    previous_ = delimiter;
  }
  void finish() {
    if (held_) give_(begin_, end_);
  }

 private:
  void add(size_t begin, size_t end, bool joins) {
    if (held_ && !joins) give_(begin_, end_);
    if (!held_ || !joins) begin_ = begin;
    end_ = end;
    held_ = true;
  }

  Delimiters rule_;
  const Give& give_;
  bool held_ = false, previous_ = false;
  size_t begin_ = 0, end_ = 0;
};

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid) return false;
    at += c.bytes;
  }
  return true;
}

// `next(from, match)` finds the first match from there on.
template <typename Next, typename Give>
void split_by(const SplitStep& step, std::string_view text, const Next& next, const Give& give) {
  Grouping<Give> grouping(step.delimiters, give);
  const bool drops_rest = step.invert && step.delimiters == Delimiters::removed;
  const auto between = [&](size_t begin, size_t end) {
    // Patterns know no bytes that are not UTF-8; those are never dropped.
    const bool keep = drops_rest && begin < end && !is_utf8(text.substr(begin, end - begin));
    grouping.segment(begin, end, step.invert && !keep);
  };
  size_t done = 0;
  Match match;
  while (done < text.size() && next(done, match)) {
    between(done, match.begin);
    grouping.segment(match.begin, match.end, !step.invert);
    done = match.end;
  }
  between(done, text.size());
  grouping.finish();
}

bool find_char(const CharSet& set, std::string_view text, size_t from, Match& match) {
  for (size_t at = from; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (set.has(c)) {
      match = {at, at + c.bytes};
      return true;
    }
    at += c.bytes;
  }
  return false;
}

// \w+|[^\w\s]+
bool find_word_run(std::string_view text, size_t from, Match& match) {
  const CharSet& words = word_chars();
  const CharSet& spaces = space_chars();
  size_t at = from;
  for (; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!spaces.has(c)) break;
    at += c.bytes;
  }
  if (at == text.size()) return false;
  const bool word = words.has(decode_utf8(text, at));
  match.begin = at;
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if (words.has(c) != word || (!word && spaces.has(c))) break;
    at += c.bytes;
  }
  match.end = at;
  return true;
}

void divide(const std::vector<SplitStep>& steps, size_t index, const UnicodeClasses& classes,
            std::string_view text, TextPosition position, WordSink& sink) {
  if (index == steps.size()) {
    if (!text.empty()) sink.word(text);
    return;
  }
  const SplitStep& step = steps[index];
  const auto give = [&](size_t begin, size_t end) {
    if (begin == end) return;
    divide(steps, index + 1, classes, text.substr(begin, end - begin),
           {position.first && begin == 0, false}, sink);
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
    case Kind::pattern:
      split_by(
          step, text, [&](size_t from, Match& m) { return step.pattern->find(text, from, m); },
          give);
      break;
    case Kind::literal:
      split_by(
          step, text,
          [&](size_t from, Match& m) {
            m.begin = text.find(step.text, from);
            m.end = m.begin + step.text.size();
            return m.begin != std::string_view::npos;
          },
          give);
      break;
    case Kind::characters:
      split_by(
          step, text, [&](size_t from, Match& m) { return find_char(*step.chars, text, from, m); },
          give);
      break;
    case Kind::word_runs:
      for (Match m; m.end < text.size() && find_word_run(text, m.end, m);) give(m.begin, m.end);
      break;
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
      if (position.rest || text.starts_with(' ')) {
        give(0, text.size());
      } else {
        const std::string prefixed = " " + std::string(text);
        divide(steps, index + 1, classes, prefixed, {position.first, false}, sink);
      }
      break;
    case Kind::mark_spaces: {
      std::string marked = replace_all(text, " ", kSpaceMark);
      const bool wanted = step.prefix == SplitStep::Prefix::always ||
                          (step.prefix == SplitStep::Prefix::first && position.first);
      if (wanted && !position.rest && !marked.starts_with(kSpaceMark)) marked.insert(0, kSpaceMark);
      divide(steps, index + 1, classes, marked, {position.first, false}, sink);
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
                std::string_view text, TextPosition position, WordSink& sink) {
  divide(steps, 0, classes, text, position, sink);
}

}  // namespace tutti::data
