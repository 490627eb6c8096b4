#include "tutti/report/page.h"

#include <fmt/format.h>

#include "tutti/base/check.h"
#include "tutti/report/html.h"
#include "tutti/report/served_page.h"

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
// scripts only the one with this hash runs. A page with a server may fetch from it only.
std::string policy(bool served) {
  return fmt::format(
      "default-src 'none'; style-src 'unsafe-inline'; script-src '{}'{}; base-uri 'none'; "
      "form-action {}",
      page_script_hash(), served ? " 'self'; connect-src 'self'" : "",
      served ? "'self'" : "'none'");
}

std::string head(const Page& page, bool served) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<title>{} – {}</title>\n<style>{}</style>\n</head>\n",
      policy(served), escape_html(page.title), escape_html(page.kind), page_style());
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

// Of several sections.
std::string contents(const Page& page) {
  std::string items;
  int count = 0;
  for (const Section& section : page.sections) {
    if (section.title.empty()) continue;
    items += fmt::format("<li><a href=\"#{}\">{}</a></li>", section.id, escape_html(section.title));
    ++count;
  }
  if (count < 2) return "";
  return "<nav aria-label=\"Contents\"><ul>" + items + "</ul></nav>\n";
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

// `script`: of the server; empty: a file of its own.
std::string document(const Page& page, const std::string& script) {
  std::string out = head(page, !script.empty());
  out += "<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n<div class=\"page\">\n";
  out += masthead(page) + tiles(page) + contents(page) + "<main id=\"main\">\n";
  for (const Section& section : page.sections) {
    out += fmt::format("<section id=\"{}\">\n", section.id);
    if (!section.title.empty()) out += fmt::format("<h2>{}</h2>\n", escape_html(section.title));
    out += section.html + "</section>\n";
  }
  out += fmt::format("</main>\n<footer>{}</footer>\n</div>\n<script>{}</script>\n",
                     escape_html(page.footer), page_script());
  if (!script.empty()) {
    out += fmt::format("<script src=\"{}\"></script>\n", escape_html(script));
  }
  return out + "</body>\n</html>\n";
}

}  // namespace

std::string render(const Page& page) { return document(page, ""); }

std::string served_policy() { return policy(true); }

std::string render_served(const Page& page, const std::string& script) {
  TUTTI_CHECK(!script.empty(), "a served page without its script");
  return document(page, script);
}

}  // namespace tutti::report
