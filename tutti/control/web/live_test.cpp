#include "tutti/control/web/live.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "tutti/base/json.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/people/visible.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

size_t times(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class PageTest : public testing::Test {
 protected:
  WebView view(const Caller& caller, const WebPages& pages = {}) {
    return {caller, files_, folder_, drawings_, true, "f0", pages};
  }
  int64_t submit_as(const std::string& user, const std::string& project) {
    JobRequest request = SmallControlPlane::request(project);
    request.name = user + "s-job";
    return submit(plane_.as(user), request, false).job.id;
  }

  SmallControlPlane plane_;
  MemoryFileSystem files_;
  ControlFolder folder_{"/c"};
  RunDrawings drawings_;
};

TEST_F(PageTest, JobsHaveButtonsForAuthorizedUsers) {
  const int64_t id = submit_as("ada", "vision");
  submit_as("olaf", "vision");
  const std::string field = "name=\"job\" value=\"" + std::to_string(id) + "\"";
  const Caller ada = plane_.as("ada");
  const std::string own = queue_html(view(ada));
  EXPECT_NE(own.find(field), std::string::npos);
  EXPECT_NE(own.find("value=\"cancel\""), std::string::npos);
  EXPECT_NE(own.find("name=\"form_key\" value=\"f0\""), std::string::npos);
  EXPECT_EQ(times(own, "<form"), 1U) << "olaf's is not ada's to steer";
  EXPECT_NE(own.find("class=\"state quiet\">PENDING"), std::string::npos);
  const Caller olaf = plane_.as("olaf");
  EXPECT_EQ(times(queue_html(view(olaf)), "<form"), 2U);
  const Caller viv = plane_.as("viv");
  EXPECT_EQ(queue_html(view(viv)).find("<form"), std::string::npos);
  const Caller bob = plane_.as("bob");
  EXPECT_EQ(queue_html(view(bob)).find("adas-job"), std::string::npos);
}

TEST_F(PageTest, LongTablesAreTurned) {
  for (int i = 0; i < 120; ++i) submit_as("ada", "vision");
  const Caller ada = plane_.as("ada");
  const std::string first = queue_html(view(ada));
  EXPECT_EQ(times(first, "name=\"job\""), 50U);
  EXPECT_NE(first.find("1 to 50 of 120"), std::string::npos);
  EXPECT_NE(first.find("/?live=50&amp;#queue"), std::string::npos);
  const std::string last = queue_html(view(ada, read_pages({{"live", "100"}, {"ended", "x"}})));
  EXPECT_EQ(times(last, "name=\"job\""), 20U);
  EXPECT_NE(last.find("101 to 120 of 120"), std::string::npos);
  EXPECT_EQ(last.find(">Next<"), std::string::npos);
}

TEST_F(PageTest, VisibleJobsDependOnRoles) {
  submit_as("ada", "vision");
  submit_as("bob", "speech");
  JobFilter filter;
  filter.most = 10;
  EXPECT_EQ(visible_jobs(plane_.as("viv"), filter).size(), 1U);
  EXPECT_EQ(count_visible(plane_.as("root"), filter), 2);
  EXPECT_EQ(count_visible(plane_.as("nobody"), filter), 0);
  EXPECT_EQ(tally_visible(plane_.as("bob")).waiting, 1);
  filter.user = "bob";
  EXPECT_EQ(count_visible(plane_.as("root"), filter), 1);
  EXPECT_EQ(visible_ids(plane_.as("bob"), {1, 2}), std::vector<int64_t>{2});
  disable_user(plane_.as("root"), "viv", true);
  filter.user.clear();
  EXPECT_TRUE(visible_jobs(plane_.as("viv"), filter).empty());
}

// In a file, since a connection learns of what others have written.
TEST(LivePartsTest, UnchangedSectionsAreNotResent) {
  std::string folder = testing::TempDir() + "/live-parts-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  {
    const auto open = [&] { return std::make_unique<Database>(folder + "/control.db"); };
    const auto database = open();
    prepare_schema(*database);
    const Caller root{*database, "root", kNoon};
    create_control_plane(root, {"n1", 4, 0, true, false, ""}, {});
    MemoryFileSystem files;
    const ControlFolder control{"/c"};
    RunDrawings drawings;
    LiveParts live(open);
    const WebView view{root, files, control, drawings, true, "f0", {}};
    const LiveAnswer first = live.answer(view, "");
    EXPECT_FALSE(first.unchanged);
    const Json all = parse_json(first.body, "body")["sections"];
    EXPECT_TRUE(all.contains("queue") && all.contains("nodes")) << first.body;
    EXPECT_TRUE(live.answer(view, first.tag).unchanged);
    submit(root, SmallControlPlane::request("default"), false);
    const LiveAnswer second = live.answer(view, first.tag);
    EXPECT_FALSE(second.unchanged);
    EXPECT_NE(second.tag, first.tag);
    const Json changed = parse_json(second.body, "body")["sections"];
    EXPECT_TRUE(changed.contains("queue")) << second.body;
    EXPECT_FALSE(changed.contains("nodes")) << "not sent again";
    EXPECT_EQ(parse_json(live.answer(view, "").body, "body")["sections"].size(), all.size());
    EXPECT_EQ(parse_json(live.answer(view, "\"of.another.page\"").body, "body")["sections"].size(),
              all.size());
    // Later it is rendered again, and is the same.
    const Caller later{*database, "root", kNoon + 60'000};
    EXPECT_TRUE(
        live.answer({later, files, control, drawings, true, "f0", {}}, second.tag).unchanged);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti::control
