// Comma-separated tables as RFC 4180 has them: a header row, fields that may be quoted (doubled
// quotes inside), CR LF or LF. Throws corrupt naming `origin` and the line for an unclosed quote, a
// row of another length than the header's, or a column given twice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct CsvTable {
  std::string origin;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<int> lines;  // of each row, 1 for the header

  // Index of a column, or -1.
  int column(std::string_view name) const;
  // The field, or "" when there is no such column.
  const std::string& field(size_t row, std::string_view name) const;
  // The field as a number; `fallback` when it is empty. Throws corrupt when it is not a number.
  double number(size_t row, std::string_view name, double fallback) const;
};

CsvTable parse_csv(std::string_view text, const std::string& origin);

}  // namespace tutti
