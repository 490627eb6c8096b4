#include "tutti/report/html.h"

#include <gtest/gtest.h>

#include "tutti/report/page.h"

namespace tutti::report {
namespace {

constexpr const char* kEvil = "<script>alert('x')</script>\"&\x01";

TEST(Html, TextCannotBecomeMarkup) {
  EXPECT_EQ(escape_html(kEvil), "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;\\x01");
  EXPECT_EQ(escape_html("naïve – ok"), "naïve – ok");
  for (const std::string& html :
       {html_table({kEvil, true, {{kEvil}}, {{kEvil}}}), html_facts({{kEvil, kEvil}}),
        html_details(kEvil, ""), html_card(kEvil, "")}) {
    EXPECT_EQ(html.find("<script"), std::string::npos) << html;
    EXPECT_NE(html.find("&lt;script"), std::string::npos) << html;
  }
}

TEST(Html, DataCannotEndItsElement) {
  const std::string html = html_data(Json{{"name", "</script><!--"}});
  EXPECT_EQ(html,
            "<script type=\"application/json\">{\"name\":\"\\u003c/script>\\u003c!--\"}"
            "</script>");
}

TEST(Html, APageEscapesAllItsTexts) {
  Page page;
  page.kind = page.title = page.lead = page.status = page.footer = kEvil;
  page.notes = {kEvil};
  page.tiles = {{kEvil, kEvil, kEvil}};
  page.sections = {{"id", kEvil, "<b>markup</b>"}};
  const std::string html = render(page);
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_NE(html.find("<b>markup</b>"), std::string::npos);
  // The policy is there, and nothing is fetched.
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  for (const char* outside : {"http://", "https://", "src=", "url(", "@import"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
}

}  // namespace
}  // namespace tutti::report
