#include "tutti/control/controller/node_report.h"

#include <gtest/gtest.h>

#include "tutti/base/testing/memory_file.h"
#include "tutti/control/controller/controller_metrics.h"
#include "tutti/control/store/schema.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

constexpr const char* kSick = R"({"healthy":false,"wall_seconds":1.8e9,"kind":"k","checks":[)"
                              R"({"name":"clock","status":"pass","detail":""},)"
                              R"({"name":"disk_fsync","status":"fail","detail":"slow"}]})";

TEST(NodeReport, ReadsReportsAndNamesUnreadableOnes) {
  MemoryFileSystem files;
  EXPECT_TRUE(read_node_reports(files, "/c/health").empty());
  files.create_directories("/c/health");
  write_file_atomic(files, "/c/health/n1.json", kSick);
  write_file_atomic(files, "/c/health/n2.json", "{");
  write_file_atomic(files, "/c/health/n3.json",
                    R"({"healthy":true,"state":"busy","wall_seconds":1,"kind":"","checks":[)"
                    R"({"name":"clock","status":"busy","detail":""}]})");
  write_file_atomic(files, "/c/health/README", "text");
  const auto reports = read_node_reports(files, "/c/health");
  ASSERT_EQ(reports.size(), 3U);
  EXPECT_EQ(reports[0].node, "n1");
  EXPECT_FALSE(reports[0].healthy);
  ASSERT_EQ(reports[0].failures.size(), 1U);
  EXPECT_EQ(reports[0].failures[0].check, "disk_fsync");
  EXPECT_EQ(reports[1].node, "n2");
  EXPECT_FALSE(reports[1].problem.empty());
  EXPECT_TRUE(reports[2].healthy);
  EXPECT_TRUE(reports[2].busy);
  EXPECT_TRUE(reports[2].failures.empty());
}

TEST(ControllerMetrics, TellStatesNodesAndHealth) {
  Database database(":memory:");
  prepare_schema(database);
  MemoryFileSystem files;
  files.create_directories("/c/health");
  write_file_atomic(files, "/c/health/n1.json", kSick);
  const std::string text = controller_metrics(database, files, {"/c"}, true, 1);
  for (const char* line : {"tutti_controller_up 1", "tutti_jobs{state=\"PENDING\"} 0",
                           "tutti_nodes{state=\"up\"} 0", "tutti_node_healthy{node=\"n1\"} 0",
                           "tutti_audit_lines_total 0", "# TYPE tutti_jobs gauge"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

TEST(ControllerMetrics, HeldJobsDoNotWait) {
  SmallControlPlane plane;
  const int64_t held = submit(plane.as("ada"), SmallControlPlane::request(), false).job.id;
  submit(plane.as("ada", kNoon + 5000), SmallControlPlane::request(), false);
  set_held(plane.as("ada"), held, true);
  MemoryFileSystem files;
  const std::string text = controller_metrics(plane.database, files, {"/c"}, true, kNoon + 9000);
  EXPECT_NE(text.find("tutti_oldest_wait_seconds 4\n"), std::string::npos) << text;
  EXPECT_NE(text.find("tutti_jobs{state=\"PENDING\"} 2"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::control
