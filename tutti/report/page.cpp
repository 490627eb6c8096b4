#include "tutti/report/page.h"

#include <fmt/format.h>

#include "tutti/report/html.h"

namespace tutti::report {
namespace {

const char* tone_name(Page::Tone tone) {
  switch (tone) {
    case Page::Tone::good: return "good";
    case Page::Tone::neutral: return "neutral";
    case Page::Tone::bad: return "bad";
  }
  return "";
}

// 'none' for everything that could fetch, embed, submit or rebase; styles are inline, and of
// scripts only the one with this hash runs.
std::string head(const Page& page) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src '{}'; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<title>{} – {}</title>\n<style>{}</style>\n</head>\n",
      page_script_hash(), escape_html(page.title), escape_html(page.kind), page_style());
}

std::string masthead(const Page& page) {
  std::string out = fmt::format(
      "<header>\n<p class=\"kind\"><span class=\"brand\">Tutti</span> {}</p>\n"
      "<button type=\"button\" id=\"theme\" hidden>Dark</button>\n<h1>{}</h1>\n",
      escape_html(page.kind), escape_html(page.title));
  if (!page.status.empty()) {
    out += fmt::format("<p class=\"status {}\">{}</p>\n", tone_name(page.tone),
                       escape_html(page.status));
  }
  if (!page.lead.empty()) out += fmt::format("<p class=\"lead\">{}</p>\n", escape_html(page.lead));
  for (const std::string& note : page.notes) {
    out += fmt::format("<p class=\"notice\">{}</p>\n", escape_html(note));
  }
  return out + "</header>\n";
}

std::string contents(const Page& page) {
  std::string out = "<nav aria-label=\"Contents\"><ul>";
  for (const Section& section : page.sections) {
    if (section.title.empty()) continue;
    out += fmt::format("<li><a href=\"#{}\">{}</a></li>", section.id, escape_html(section.title));
  }
  return out + "</ul></nav>\n";
}

std::string tiles(const Page& page) {
  if (page.tiles.empty()) return {};
  std::string out = "<dl class=\"tiles\">\n";
  for (const Tile& tile : page.tiles) {
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd><dd class=\"sub\">{}</dd></div>\n",
                       escape_html(tile.name), escape_html(tile.value), escape_html(tile.note));
  }
  return out + "</dl>\n";
}

}  // namespace

std::string render(const Page& page) {
  std::string out = head(page);
  out += "<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n<div class=\"page\">\n";
  out += masthead(page) + tiles(page) + contents(page) + "<main id=\"main\">\n";
  for (const Section& section : page.sections) {
    out += fmt::format("<section id=\"{}\">\n", section.id);
    if (!section.title.empty()) out += fmt::format("<h2>{}</h2>\n", escape_html(section.title));
    out += section.html + "</section>\n";
  }
  out +=
      fmt::format("</main>\n<footer>{}</footer>\n</div>\n<script>{}</script>\n</body>\n</html>\n",
                  escape_html(page.footer), page_script());
  return out;
}

}  // namespace tutti::report
