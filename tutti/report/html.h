// Pieces of HTML. Every text that comes from outside (names, paths, recipes, messages) goes through
// escape_html; functions that take text escape it themselves, parameters called `html` are markup.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/json.h"

namespace tutti::report {

// For element content and quoted attributes: & < > " ' become entities, and bytes that are neither
// printable nor UTF-8 show as \xNN.
std::string escape_html(std::string_view text);

// A block that no browser runs or shows, for scripts to read: <script type="application/json">.
// Nothing in `value` can end the element.
std::string html_data(const Json& value);

struct Column {
  std::string title;
  bool number = false;    // aligned right
  bool one_line = false;  // never broken
  bool html = false;      // its cells are markup
};

struct Table {
  std::string caption;  // read by screen readers, shown when `show_caption`
  bool show_caption = false;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // text
};

// A table that scrolls sideways by itself where the page is too narrow.
std::string html_table(const Table& table);

// Names and values as a description list; values are text. An empty value shows as a dash.
std::string html_facts(const std::vector<std::pair<std::string, std::string>>& facts);

// A box with a heading.
std::string html_card(std::string_view title, const std::string& html);

// Text behind a line that opens it.
std::string html_details(std::string_view summary, const std::string& html, bool open = false);

}  // namespace tutti::report
