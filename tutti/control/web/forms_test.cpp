#include "tutti/control/web/forms.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/store/schema.h"

namespace tutti::control {
namespace {

ErrorKind refused(WebFields fields) {
  fields.emplace("key", "a1");
  fields.emplace("project", "vision");
  try {
    read_submission(fields);
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "taken";
  return ErrorKind::io;
}

TEST(WebForms, ReadsASubmission) {
  const WebSubmission submission = read_submission({{"recipe", "demo"},
                                                    {"overrides", "train.steps=5\r\n\r\n a=b \n"},
                                                    {"project", "vision"},
                                                    {"nodes", " 2 "},
                                                    {"usd", "1.5"},
                                                    {"key", "a1"}});
  EXPECT_EQ(submission.recipe, "demo");
  EXPECT_EQ(submission.overrides, (std::vector<std::string>{"train.steps=5", "a=b"}));
  EXPECT_EQ(submission.nodes, 2);
  EXPECT_EQ(submission.cores, 0);
  EXPECT_EQ(submission.usd, "1.5");
}

TEST(WebForms, PathsAndNonsenseAreRefused) {
  for (const char* recipe : {"/etc/passwd", "../secret", "a.yaml", "demo;rm"}) {
    EXPECT_EQ(refused({{"recipe", recipe}}), ErrorKind::usage) << recipe;
  }
  EXPECT_EQ(refused({}), ErrorKind::usage);
  EXPECT_EQ(refused({{"recipe", "demo"}, {"text", "model: x"}}), ErrorKind::usage);
  EXPECT_EQ(refused({{"recipe", "demo"}, {"name", "../../x"}}), ErrorKind::usage);
  EXPECT_EQ(refused({{"recipe", "demo"}, {"nodes", "0"}}), ErrorKind::usage);
  EXPECT_EQ(refused({{"recipe", "demo"}, {"nodes", "2x"}}), ErrorKind::usage);
  EXPECT_EQ(refused({{"recipe", "demo"}, {"overrides", "x"}}), ErrorKind::usage);
  EXPECT_EQ(refused({{"recipe", "demo"}, {"overrides", "--control=/x"}}), ErrorKind::usage);
  EXPECT_EQ(refused({{"recipe", "demo"}, {"key", "../x"}}), ErrorKind::usage);
  EXPECT_EQ(refused({{"recipe", "demo"}, {"project", ""}}), ErrorKind::usage);
}

TEST(WebForms, NothingIsWrittenUnescaped) {
  const std::string evil = "<script>\"'&";
  WebAnswer answer;
  answer.forecast.basis = evil;
  answer.warnings = {evil};
  const std::string html =
      confirm_html({{"recipe", "demo"}, {"key", "a1"}, {"name", "a<b"}, {"project", evil}}, answer,
                   "key") +
      login_page(evil);
  EXPECT_EQ(html.find(evil), std::string::npos);
  EXPECT_EQ(html.find("<script>\""), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;&quot;&#39;&amp;"), std::string::npos);
}

TEST(WebForms, LinesOfARecipeStayLines) {
  const std::string html =
      confirm_html({{"text", "model:\r\n  layers: 2\n"}, {"key", "a1"}, {"project", "vision"}},
                   WebAnswer(), "key");
  EXPECT_NE(html.find("value=\"model:&#10;  layers: 2\""), std::string::npos) << html;
}

TEST(WebForms, ForbiddenJobActionsAreErrors) {
  Database database(":memory:");
  prepare_schema(database);
  const Caller caller{database, "ada", 1};
  EXPECT_THROW(steer(caller, "delete", "1"), Error);
  EXPECT_THROW(steer(caller, "cancel", "one"), Error);
  EXPECT_THROW(steer(caller, "cancel", "1"), Error);  // no such job
  EXPECT_EQ(submit_form(caller, {"demo"}, "key", {}), "");
  EXPECT_EQ(steer_form(caller, "key"), "");
}

}  // namespace
}  // namespace tutti::control
