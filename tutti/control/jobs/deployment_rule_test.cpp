#include "tutti/control/jobs/deployment_rule.h"

#include "tutti/base/json.h"
#include "tutti/control/audit/audit.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

void demand_approval(SmallControlPlane& plane, const std::string& name) {
  Project project = *find_project(plane.database, name);
  project.approved_only = true;
  define_project(plane.as("root"), project);
}

Approval approval_in(const std::string& project) {
  Approval approval;
  approval.project = project;
  approval.manifest_sha256 = "aa11";
  return approval;
}

TEST(Deployment, SurvivesTheRecords) {
  JobRequest request = SmallControlPlane::deployment();
  request.deployment->health = {1, 2, 3};
  EXPECT_EQ(request_from_json(to_json(request), "test"), request);
  EXPECT_FALSE(to_json(SmallControlPlane::request()).contains("deployment"));
}

TEST(Deployment, TheLogSaysWhoDeployedWhat) {
  SmallControlPlane plane;
  approve(plane.as("olaf"), approval_in("vision"));
  const Job job = submit(plane.as("dora"), SmallControlPlane::deployment(), false).job;
  const auto lines = audit_lines(plane.database, 10, "deploy");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["who"], "dora");
  EXPECT_EQ(lines[0]["on"], "job " + std::to_string(job.id));
  const Json& detail = lines[0]["detail"];
  EXPECT_EQ(detail["deployment"], "chat");
  EXPECT_EQ(detail["manifest_sha256"], "aa11");
  EXPECT_EQ(detail["step"], 7);
  EXPECT_EQ(detail["approved_by"], Json::array({"olaf"}));
}

TEST(Deployment, AnUnapprovedCheckpointIsRefusedWhereTheProjectSaysSo) {
  SmallControlPlane plane;
  demand_approval(plane, "vision");
  const auto deploy = [&] {
    return submit(plane.as("dora"), SmallControlPlane::deployment(), false).job;
  };
  EXPECT_TRUE(throws(ErrorKind::usage, deploy, "is not approved there"));
  EXPECT_EQ(audit_lines(plane.database, 10, "dora").back()["allowed"], false);
  approve(plane.as("root"), approval_in("speech"));  // another project's sign-off
  EXPECT_TRUE(throws(ErrorKind::usage, deploy, "is not approved there"));
  approve(plane.as("olaf"), approval_in("vision"));
  EXPECT_EQ(deploy().state, JobState::pending);
  // Of these bytes alone.
  JobRequest other = SmallControlPlane::deployment();
  other.deployment->name = "other";
  other.deployment->manifest_sha256 = "bb22";
  EXPECT_TRUE(throws(ErrorKind::usage, [&] { submit(plane.as("dora"), other, false); }));
}

TEST(Deployment, ItsRoleStopsItAndNothingLess) {
  SmallControlPlane plane;
  const Job job = submit(plane.as("dora"), SmallControlPlane::deployment(), false).job;
  EXPECT_TRUE(throws(ErrorKind::permission, [&] { cancel(plane.as("ada"), job.id); }));
  // Who deployed it and has lost the role.
  grant(plane.as("root"), {"dora", "vision", Role::submitter});
  EXPECT_TRUE(throws(
      ErrorKind::permission, [&] { cancel(plane.as("dora"), job.id); },
      "deploy models or change deployments"));
  EXPECT_TRUE(throws(ErrorKind::permission, [&] {
    JobRequest request = SmallControlPlane::deployment();
    request.deployment->name = "again";
    submit(plane.as("dora"), request, false);
  }));
  // Another deployer of the project, whose job it is not.
  grant(plane.as("root"), {"ada", "vision", Role::deployer});
  EXPECT_EQ(cancel(plane.as("ada"), job.id).state, JobState::cancelled);
}

TEST(Deployment, ItsNameIsTakenWhileItLives) {
  SmallControlPlane plane;
  const auto deploy = [&] {
    return submit(plane.as("dora"), SmallControlPlane::deployment(), false).job;
  };
  const Job first = deploy();
  EXPECT_TRUE(throws(ErrorKind::usage, deploy, "has a deployment 'chat'"));
  // Another project has names of its own.
  JobRequest elsewhere = SmallControlPlane::deployment("speech");
  elsewhere.deployment->port += 1;
  submit(plane.as("root"), elsewhere, false);
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { find_deployment(plane.as("root"), "", "chat"); },
      "several projects"));
  EXPECT_EQ(find_deployment(plane.as("dora"), "", "chat").id, first.id);
  EXPECT_EQ(find_deployment(plane.as("root"), "vision", "chat").id, first.id);
  cancel(plane.as("dora"), first.id);
  EXPECT_TRUE(throws(ErrorKind::not_found, [&] { find_deployment(plane.as("dora"), "", "chat"); }));
  const Job second = deploy();
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { requeue(plane.as("dora"), first.id); }, "has a deployment 'chat'"));
  cancel(plane.as("dora"), second.id);
  EXPECT_EQ(requeue(plane.as("dora"), first.id).state, JobState::pending);
  EXPECT_EQ(visible_deployments(plane.as("viv"), "vision", true).size(), 2u);
  EXPECT_EQ(visible_deployments(plane.as("viv"), "", false).size(), 1u);
  EXPECT_TRUE(visible_deployments(plane.as("bob"), "vision", true).empty());
}

TEST(Deployment, ARequeueIsAsStrictAsADeploy) {
  SmallControlPlane plane;
  const Job job = submit(plane.as("dora"), SmallControlPlane::deployment(), false).job;
  cancel(plane.as("dora"), job.id);
  Project project = *find_project(plane.database, "vision");
  project.approved_only = true;
  define_project(plane.as("root"), project);
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { requeue(plane.as("dora"), job.id); }, "approved checkpoints only"));
}

TEST(Deployment, NamesAndAddressesAreChecked) {
  SmallControlPlane plane;
  JobRequest request = SmallControlPlane::deployment();
  for (const char* name : {"", "-a", ".a", "a/b", "a=b", "a b"}) {
    request.deployment->name = name;
    EXPECT_TRUE(throws(
        ErrorKind::usage, [&] { submit(plane.as("dora"), request, false); }, "not a valid name"))
        << name;
  }
  request = SmallControlPlane::deployment();
  request.deployment->address = "0.0.0.0";
  EXPECT_TRUE(throws(
      ErrorKind::permission, [&] { submit(plane.as("dora"), request, false); },
      "--address 0.0.0.0"));
  EXPECT_TRUE(throws(ErrorKind::permission, [&] { submit(plane.as("olaf"), request, false); }));
  EXPECT_EQ(submit(plane.as("root"), request, false).job.state, JobState::pending);
}

TEST(Deployment, PortsOfLiveDeploymentsAreNotGivenAgain) {
  SmallControlPlane plane;
  EXPECT_EQ(unused_port(plane.database, 8000), 8000);
  const Job job = submit(plane.as("dora"), SmallControlPlane::deployment(), false).job;
  EXPECT_EQ(unused_port(plane.database, 8000), 8001);
  // Also while it waits or restarts, and for any project.
  JobRequest other = SmallControlPlane::deployment();
  other.deployment->name = "other";
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { submit(plane.as("dora"), other, false); }, "port 8000"));
  cancel(plane.as("dora"), job.id);
  EXPECT_EQ(unused_port(plane.database, 8000), 8000);
}

}  // namespace
}  // namespace tutti::control
