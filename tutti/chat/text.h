// Text of a template's values: UTF-8 with an origin per byte, so that users' text stays
// distinguishable from the template's, however a template cuts and joins it.
//
// Operations are those of Python's str: positions count code points, white space is what
// str.isspace() accepts. Source: Python's documentation of str.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::chat {

enum class Origin : char {
  from_template,   // literal text of the template: may contain control tokens
  from_assistant,  // content of a message of the assistant
  from_input,      // all other content: messages, tools, documents, variables
};

struct Text {
  Text() = default;
  explicit Text(std::string_view text, Origin origin = Origin::from_template);

  size_t size() const { return bytes.size(); }
  bool empty() const { return bytes.empty(); }
  void append(const Text& other);
  void append(const Text& other, size_t begin, size_t end);
  void append(std::string_view text, Origin origin);
  Text part(size_t begin, size_t end) const;  // of bytes

  std::string bytes;    // well-formed UTF-8
  std::string origins;  // of each byte, as char
};

// Printed values of other types take the origin of their neighbours: the less trusted of two.
Origin least_trusted(Origin a, Origin b);
Origin least_trusted(const Text& text);

bool is_python_space(char32_t c);
// The code point at `at`, and its number of bytes.
char32_t code_point(std::string_view text, size_t at, size_t& bytes);
void append_code_point(std::string& out, char32_t c);

int64_t code_points(std::string_view text);
std::vector<Text> characters(const Text& text);

struct SliceRange {
  int64_t first = 0, step = 1, count = 0;
};
// For `length` items, like Python's slice.indices. A step of 0 must be refused before.
SliceRange slice_range(int64_t length, std::optional<int64_t> start, std::optional<int64_t> stop,
                       int64_t step);
Text slice_text(const Text& text, std::optional<int64_t> start, std::optional<int64_t> stop,
                int64_t step);

// Without `chars`: white space.
Text strip_text(const Text& text, const std::optional<std::string>& chars, bool left, bool right);
// Without a separator: at runs of white space. `most` < 0: all. The separator must not be empty.
std::vector<Text> split_text(const Text& text, const std::optional<std::string>& separator,
                             int64_t most, bool from_right);
std::vector<Text> split_lines(const Text& text, bool keep_ends);
Text replace_text(const Text& text, const std::string& old, const Text& by, int64_t most);
// The first or last position in code points, or -1.
int64_t find_text(std::string_view text, std::string_view what, bool last);
int64_t count_text(std::string_view text, std::string_view what);

enum class LetterCase { upper, lower, capitalized, title };
Text change_case(const Text& text, LetterCase wanted);

enum class TextClass { alpha, digit, alnum, space, lower, upper };
bool is_all(std::string_view text, TextClass wanted);  // like str.isalpha and so on

}  // namespace tutti::chat
