// The text of an answer as it grows token by token, and how much of it may be shown already.
//
// Bytes become UTF-8: a character that is cut between tokens is held back until it is whole, and
// bytes that can be part of no character become U+FFFD, one for each longest part that could have
// begun one (Unicode 15, 3.9, "maximal subparts"). A text at whose first occurrence the answer
// stops is not part of it: what may become one is held back. Of several the first that is whole
// counts, so that how the bytes were cut into tokens changes nothing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::endpoint {

class AnswerText {
 public:
  explicit AnswerText(std::vector<std::string> stops = {});  // none is empty

  void add(std::string_view bytes);  // of one token; nothing happens once it has stopped
  void finish();                     // nothing follows: nothing is held back

  // Whole characters. May still be cut at the end, by stops, down to ready().
  const std::string& text() const { return text_; }
  size_t ready() const { return ready_; }  // never falls; bytes of whole characters
  bool is_stopped() const { return is_stopped_; }

 private:
  void take_whole(bool is_last);
  void look_for_stops();

  std::vector<std::string> stops_;
  std::string bytes_;  // of a character that is not whole
  std::string text_;
  size_t ready_ = 0;
  size_t searched_ = 0;  // no stop begins before it
  bool is_stopped_ = false;
};

// All of it at once: `bytes` as UTF-8.
std::string whole_characters(std::string_view bytes);

}  // namespace tutti::endpoint
