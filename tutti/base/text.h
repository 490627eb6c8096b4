// Small text helpers that several folders need.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

std::string_view trim(std::string_view text);  // white space on both sides
std::vector<std::string_view> split(std::string_view text, char separator);  // keeps empty parts
std::string join(const std::vector<std::string>& parts, std::string_view separator);
bool starts_with(std::string_view text, std::string_view prefix);
bool ends_with(std::string_view text, std::string_view suffix);

// The candidate nearest to `word` by edit distance, or "" when none is near enough to suggest.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// Rows of cells as aligned columns; the first row is the header. Numbers align right.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

// One "name  value" per line, values aligned.
std::string format_pairs(const std::vector<std::pair<std::string, std::string>>& pairs);

// Whether all of `text` is well-formed UTF-8.
bool is_utf8(std::string_view text);

// `text` with every byte that is not printable ASCII or UTF-8 shown as \xNN.
std::string printable(std::string_view text);

}  // namespace tutti
