#include "tutti/control/people/roles.h"

#include <algorithm>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::control {
namespace {

constexpr std::array<const char*, kRoles> kRoleNames = {"viewer", "submitter", "deployer",
                                                        "operator", "admin"};
constexpr std::array<const char*, kActions> kActionNames = {
    "view",           "submit",          "steer_own",   "steer_any",
    "deploy",         "raise_priority",  "view_ledger", "view_audit",
    "run_controller", "manage_projects", "manage_users"};
constexpr std::array<const char*, kActions> kActionPhrases = {
    "view jobs",
    "submit jobs",
    "change jobs",
    "change others' jobs or approve checkpoints",
    "deploy models or change deployments",
    "raise priorities",
    "view the ledger",
    "view the audit log",
    "run the controller",
    "manage projects",
    "manage users"};

//                         viewer submitter deployer operator admin
constexpr bool kTable[kActions][kRoles] = {
    /* view            */ {true, true, true, true, true},
    /* submit          */ {false, true, true, true, true},
    /* steer_own       */ {false, true, true, true, true},
    /* steer_any       */ {false, false, false, true, true},
    /* deploy          */ {false, false, true, true, true},
    /* raise_priority  */ {false, false, false, true, true},
    /* view_ledger     */ {true, true, true, true, true},
    /* view_audit      */ {false, false, false, true, true},
    /* run_controller  */ {false, false, false, true, true},
    /* manage_projects */ {false, false, false, false, true},
    /* manage_users    */ {false, false, false, false, true}};

}  // namespace

const char* role_name(Role role) { return kRoleNames.at(static_cast<size_t>(role)); }
const char* action_name(Action action) { return kActionNames.at(static_cast<size_t>(action)); }
const char* action_phrase(Action action) { return kActionPhrases.at(static_cast<size_t>(action)); }

Role parse_role(std::string_view name) {
  const auto found = std::find(kRoleNames.begin(), kRoleNames.end(), name);
  if (found == kRoleNames.end()) {
    const std::vector<std::string> known(kRoleNames.begin(), kRoleNames.end());
    fail(ErrorKind::usage, "unknown role '{}'; known: {}", name, join(known, ", "));
  }
  return static_cast<Role>(found - kRoleNames.begin());
}

bool allows(std::optional<Role> role, Action action) {
  return role && kTable[static_cast<size_t>(action)][static_cast<size_t>(*role)];
}

bool is_about_everything(Action action) {
  return action == Action::view_audit || action == Action::run_controller ||
         action == Action::manage_users;
}

}  // namespace tutti::control
