#include "tutti/base/csv.h"

#include <algorithm>
#include <charconv>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

const std::string kEmpty;

}  // namespace

int CsvTable::column(std::string_view name) const {
  const auto found = std::find(columns.begin(), columns.end(), name);
  return found == columns.end() ? -1 : static_cast<int>(found - columns.begin());
}

const std::string& CsvTable::field(size_t row, std::string_view name) const {
  const int at = column(name);
  return at < 0 ? kEmpty : rows[row][static_cast<size_t>(at)];
}

double CsvTable::number(size_t row, std::string_view name, double fallback) const {
  const std::string_view text = trim(field(row, name));
  if (text.empty()) return fallback;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail(ErrorKind::corrupt, "{}:{}: {}: '{}' is not a number", origin, lines[row], name,
         printable(text));
  }
  return value;
}

CsvTable parse_csv(std::string_view text, const std::string& origin) {
  CsvTable table;
  table.origin = origin;
  size_t at = 0;
  int line = 1;
  const auto read_row = [&](std::vector<std::string>& fields) {
    fields.emplace_back();
    bool quoted = false;
    for (; at < text.size(); ++at) {
      const char c = text[at];
      if (c == '\n') ++line;
      if (quoted) {
        if (c != '"') {
          fields.back() += c;
        } else if (at + 1 < text.size() && text[at + 1] == '"') {
          fields.back() += '"';
          ++at;
        } else {
          quoted = false;
        }
      } else if (c == '"' && fields.back().empty()) {
        quoted = true;
      } else if (c == ',') {
        fields.emplace_back();
      } else if (c == '\n') {
        ++at;
        return;
      } else if (c != '\r') {
        fields.back() += c;
      }
    }
    if (quoted) fail(ErrorKind::corrupt, "{}:{}: a quote is not closed", origin, line);
  };
  while (at < text.size() && text[at] == '#') {  // comments before the header
    at = std::min(text.find('\n', at), text.size() - 1) + 1;
    ++line;
  }
  read_row(table.columns);
  for (size_t i = 0; i < table.columns.size(); ++i) {
    table.columns[i] = std::string(trim(table.columns[i]));
    if (table.column(table.columns[i]) != static_cast<int>(i)) {
      fail(ErrorKind::corrupt, "{}:{}: column '{}' is given twice", origin, line - 1,
           printable(table.columns[i]));
    }
  }
  while (at < text.size()) {
    const int first = line;
    std::vector<std::string> fields;
    read_row(fields);
    if (fields.size() == 1 && trim(fields[0]).empty()) continue;
    if (fields.size() != table.columns.size()) {
      fail(ErrorKind::corrupt, "{}:{}: {} fields, but the header has {}", origin, first,
           fields.size(), table.columns.size());
    }
    table.rows.push_back(std::move(fields));
    table.lines.push_back(first);
  }
  return table;
}

}  // namespace tutti
