// The whole table of roles and actions, and the same table through the requests themselves.

#include "tutti/control/people/roles.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tutti/control/audit/audit.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

TEST(Roles, HigherRolesIncludeLowerOnes) {
  for (int action = 0; action < kActions; ++action) {
    const auto what = static_cast<Action>(action);
    EXPECT_FALSE(allows(std::nullopt, what)) << action_name(what);
    for (int role = 1; role < kRoles; ++role) {
      EXPECT_LE(allows(static_cast<Role>(role - 1), what), allows(static_cast<Role>(role), what))
          << action_name(what);
    }
    EXPECT_TRUE(allows(Role::admin, what)) << action_name(what);
  }
}

// What a caller with a role (none, or one of five, in the project or in all) is let do; a job of
// the project stands by, of the caller's own where he could have submitted it.
struct Attempt {
  const char* name;
  Role least;       // in the project
  bool everywhere;  // only a role in all projects counts
  std::function<void(SmallControlPlane&, const Caller&, int64_t own, int64_t others)> act;
};

const std::vector<Attempt>& attempts() {
  static const std::vector<Attempt> all = {
      {"view", Role::viewer, false,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t others) {
         visible_job(c, others);
       }},
      {"view ledger", Role::viewer, false,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) {
         authorize(c, Action::view_ledger, "vision", "project vision");
       }},
      {"submit", Role::submitter, false,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) {
         submit(c, SmallControlPlane::request(), false);
       }},
      {"submit with priority", Role::operator_, false,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) {
         JobRequest request = SmallControlPlane::request();
         request.priority = 1;
         submit(c, request, false);
       }},
      {"deploy", Role::deployer, false,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) {
         submit(c, SmallControlPlane::deployment(), false);
       }},
      {"hold own", Role::submitter, false,
       [](SmallControlPlane&, const Caller& c, int64_t own, int64_t) { set_held(c, own, true); }},
      {"cancel own", Role::submitter, false,
       [](SmallControlPlane&, const Caller& c, int64_t own, int64_t) { cancel(c, own); }},
      {"cancel others'", Role::operator_, false,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t others) { cancel(c, others); }},
      {"requeue others'", Role::operator_, false,
       [](SmallControlPlane& plane, const Caller& c, int64_t, int64_t others) {
         cancel(plane.as("root"), others);
         requeue(c, others);
       }},
      {"hold others'", Role::operator_, false,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t others) {
         set_held(c, others, true);
       }},
      {"change the project", Role::admin, false,
       [](SmallControlPlane& plane, const Caller& c, int64_t, int64_t) {
         define_project(c, *find_project(plane.database, "vision"));
       }},
      {"grant in the project", Role::admin, false,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) {
         grant(c, {"bob", "vision", Role::viewer});
       }},
      {"revoke in the project", Role::admin, false,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) { revoke(c, "viv", "vision"); }},
      {"read the audit log", Role::operator_, true,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) {
         authorize(c, Action::view_audit, kAllProjects, "trail");
       }},
      {"drain a node", Role::operator_, true,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) {
         define_node(c, {"n1", 4, 0, true, true, "repair"});
       }},
      {"create a user", Role::admin, true,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) { create_user(c, "new"); }},
      {"grant in all projects", Role::admin, true,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) {
         grant(c, {"bob", kAllProjects, Role::viewer});
       }},
      {"create a project", Role::admin, true,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) {
         Project project;
         project.name = "new";
         define_project(c, project);
       }},
      {"change the site", Role::admin, true,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) { define_site(c, Site{}); }},
      {"token for another", Role::admin, true,
       [](SmallControlPlane&, const Caller& c, int64_t, int64_t) {
         issue_token(c, "ada", kNoon + 1);
       }},
  };
  return all;
}

bool allowed(const Attempt& attempt, const std::optional<Role>& role, const char* project) {
  SmallControlPlane plane;
  create_user(plane.as("root"), "eve");
  // The caller's own job dates from when he could submit.
  grant(plane.as("root"), {"eve", "vision", Role::submitter});
  const int64_t own = submit(plane.as("eve"), SmallControlPlane::request(), false).job.id;
  const int64_t others = submit(plane.as("ada"), SmallControlPlane::request(), false).job.id;
  revoke(plane.as("root"), "eve", "vision");
  if (role) grant(plane.as("root"), {"eve", project, *role});
  const AuditHead before = audit_head(plane.database);
  try {
    attempt.act(plane, plane.as("eve"), own, others);
    return true;
  } catch (const Error& error) {
    EXPECT_TRUE(error.kind() == ErrorKind::permission || error.kind() == ErrorKind::not_found)
        << attempt.name << ": " << error.what();
    // The error reveals nothing to users who cannot see the job.
    if (error.kind() == ErrorKind::not_found) {
      EXPECT_TRUE(!role || std::string(project) == "speech");
    }
    EXPECT_TRUE(std::string(attempt.name) == "view" || audit_head(plane.database).seq > before.seq)
        << attempt.name << ": a refusal leaves its line";
    return false;
  }
}

TEST(Roles, EveryRoleAndEveryRequest) {
  for (const Attempt& attempt : attempts()) {
    EXPECT_FALSE(allowed(attempt, std::nullopt, "")) << attempt.name;
    for (int i = 0; i < kRoles; ++i) {
      const auto role = static_cast<Role>(i);
      const bool enough = role >= attempt.least;
      EXPECT_EQ(allowed(attempt, role, "vision"), enough && !attempt.everywhere)
          << attempt.name << " as " << role_name(role) << " of the project";
      EXPECT_EQ(allowed(attempt, role, "speech"), false)
          << attempt.name << " as " << role_name(role) << " of another project";
      EXPECT_EQ(allowed(attempt, role, kAllProjects), enough)
          << attempt.name << " as " << role_name(role) << " of all projects";
    }
  }
}

TEST(Roles, UnknownAndDisabledUsersHaveNoRights) {
  SmallControlPlane plane;
  EXPECT_FALSE(role_of(plane.database, "nobody", "vision"));
  plane.database.run("UPDATE users SET disabled = 1 WHERE name = 'ada'");
  EXPECT_FALSE(role_of(plane.database, "ada", "vision"));
  EXPECT_TRUE(throws(ErrorKind::permission,
                     [&] { submit(plane.as("ada"), SmallControlPlane::request(), false); }));
}

}  // namespace
}  // namespace tutti::control
