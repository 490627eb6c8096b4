#include "tutti/cli/control/served.h"

#include <gtest/gtest.h>

#include "tutti/base/csv.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/cli/control/deployment_keys.h"
#include "tutti/endpoint/use_log.h"

namespace tutti::cli {
namespace {

constexpr int64_t kJanuary = 1'769'860'800'000;  // 2026-01-31T12:00:00Z
constexpr int64_t kDayMs = 86'400'000;

class ServedTest : public testing::Test {
 protected:
  void serve(const std::string& project, const std::string& deployment, const std::string& key,
             int64_t time_ms, int64_t tokens) {
    const std::string folder = deployment_folder(plane_, project, deployment);
    files_.create_directories(folder);
    endpoint::UseLog log(files_, use_file_of(folder));
    log.add({time_ms, key, "client " + key, deployment, "cmpl", {1, tokens, 1, 2, 3 * tokens}});
  }
  Served read(const std::vector<std::string>& projects, const std::string& month) {
    return read_served(files_, plane_, projects, month);
  }

  MemoryFileSystem files_;
  const control::ControlFolder plane_{"plane"};
};

TEST_F(ServedTest, SumsByKeyAndMonthOfTheProjectsAskedFor) {
  EXPECT_TRUE(read({"vision"}, "").lines.empty());
  serve("vision", "chat", "aa", kJanuary, 10);
  serve("vision", "chat", "bb", kJanuary, 100);
  serve("vision", "chat", "aa", kJanuary, 5);
  serve("vision", "chat", "aa", kJanuary + kDayMs, 1000);
  serve("speech", "chat", "cc", kJanuary, 7);
  const Served january = read({"vision"}, "2026-01");
  ASSERT_EQ(january.lines.size(), 2u);
  EXPECT_EQ(january.lines[0].use, (endpoint::KeyUse{2, 15, 2, 4, 45}));
  EXPECT_EQ(january.lines[0].client, "client aa");
  EXPECT_EQ(january.lines[1].use.prompt_tokens, 100);
  const Served all = read({"vision", "speech"}, "");
  ASSERT_EQ(all.lines.size(), 4u);
  EXPECT_EQ(all.lines[0].project, "speech");
  int64_t tokens = 0;
  for (const ServedLine& line : all.lines) tokens += line.use.prompt_tokens;
  EXPECT_EQ(tokens, 1122);
}

TEST_F(ServedTest, TablesHaveExactAmounts) {
  EXPECT_EQ(usd_text(90'000'000), "0.000090000000");
  EXPECT_EQ(usd_text(12'000'000'000'003), "12.000000000003");
  serve("vision", "chat", "a\"a", kJanuary, 10);
  const Served served = read({"vision"}, "");
  const CsvTable table = parse_csv(served_csv(served), "served");
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.field(0, "client"), "client a\"a");
  EXPECT_EQ(table.field(0, "usd"), "0.000000000030");
  EXPECT_EQ(table.field(0, "answer_tokens"), "2");
  EXPECT_EQ(served_text({}), "");
  EXPECT_NE(served_text(served).find("all"), std::string::npos);
}

TEST_F(ServedTest, DamagedLinesAreCounted) {
  serve("vision", "chat", "aa", kJanuary, 10);
  const std::string path = use_file_of(deployment_folder(plane_, "vision", "chat"));
  files_.cut(path, files_.size_bytes(path) - 3);
  serve("vision", "chat", "aa", kJanuary, 20);
  const Served served = read({"vision"}, "");
  EXPECT_EQ(served.damaged_lines, 1);
  ASSERT_EQ(served.lines.size(), 1u);
  EXPECT_EQ(served.lines[0].use.prompt_tokens, 20);
}

}  // namespace
}  // namespace tutti::cli
