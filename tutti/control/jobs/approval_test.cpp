#include "tutti/control/jobs/approval.h"

#include "tutti/control/audit/audit.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

Approval of(const std::string& sha256) {
  Approval approval;
  approval.project = "vision";
  approval.manifest_sha256 = sha256;
  approval.path = "/runs/a/checkpoints/step-00000007";
  approval.step = 7;
  approval.remark = "evaluated";
  return approval;
}

TEST(Approval, IsOfTheseBytesByWhoMay) {
  SmallControlPlane plane;
  approve(plane.as("olaf"), of("aa11"));
  const auto found = approvals_of(plane.as("viv"), "aa11");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].who, "olaf");
  EXPECT_EQ(found[0].time_ms, kNoon);
  EXPECT_EQ(found[0].step, 7);
  EXPECT_EQ(found[0].remark, "evaluated");
  EXPECT_TRUE(approvals_of(plane.as("viv"), "aa12").empty());
  EXPECT_TRUE(approvals_of(plane.as("viv"), "aa1").empty());  // only a part of its hash
}

TEST(Approval, OthersNeitherGiveNorSeeIt) {
  SmallControlPlane plane;
  for (const char* user : {"ada", "viv", "bob"}) {
    EXPECT_TRUE(throws(ErrorKind::permission, [&] { approve(plane.as(user), of("bb22")); }));
  }
  EXPECT_TRUE(approvals_of(plane.as("root"), "bb22").empty());
  EXPECT_EQ(audit_lines(plane.database, 100, "bb22").size(), 3u);  // the refusals
  approve(plane.as("olaf"), of("bb22"));
  EXPECT_TRUE(approvals_of(plane.as("bob"), "bb22").empty());
}

}  // namespace
}  // namespace tutti::control
