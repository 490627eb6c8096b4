#include "tutti/report/html.h"

#include <fmt/format.h>

#include "tutti/base/text.h"

namespace tutti::report {
namespace {

const char* css_class(const Column& column) {
  return column.number ? " class=\"n\"" : column.one_line ? " class=\"w\"" : "";
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string html_data(const Json& value) {
  std::string out = "<script type=\"application/json\">";
  for (const char c : dump_json(value)) {
    // Within JSON, < can only be in a string, where this means the same.
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out + "</script>";
}

std::string html_table(const Table& table) {
  std::string out = "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"" +
                    escape_html(table.caption) + "\"><table>";
  out += fmt::format("<caption{}>{}</caption><thead><tr>",
                     table.show_caption ? "" : " class=\"unseen\"", escape_html(table.caption));
  for (const Column& column : table.columns) {
    out += fmt::format("<th scope=\"col\"{}>{}</th>", css_class(column), escape_html(column.title));
  }
  out += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      out += fmt::format("<td{}>{}</td>", css_class(table.columns.at(i)),
                         table.columns.at(i).html ? row[i] : escape_html(row[i]));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string html_facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string out = "<dl class=\"facts\">";
  for (const auto& [name, value] : facts) {
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape_html(name),
                       value.empty() ? "–" : escape_html(value));
  }
  return out + "</dl>\n";
}

std::string html_card(std::string_view title, const std::string& html) {
  return fmt::format("<div class=\"card\"><h3>{}</h3>{}</div>\n", escape_html(title), html);
}

std::string html_details(std::string_view summary, const std::string& html, bool open) {
  return fmt::format("<details{}><summary>{}</summary>{}</details>\n", open ? " open" : "",
                     escape_html(summary), html);
}

}  // namespace tutti::report
