#include "tutti/control/people/permission.h"

#include <fmt/format.h>

#include <utility>

#include "tutti/control/audit/audit.h"

namespace tutti::control {

bool may(const Caller& caller, Action action, const std::string& project) {
  const std::string& where = is_about_everything(action) ? kAllProjects : project;
  return allows(role_of(caller.database, caller.user, where), action);
}

void note(const Caller& caller, const char* what, const std::string& on, bool allowed,
          Json detail) {
  append_audit(caller.database,
               {caller.now_ms, caller.user, what, on, allowed, std::move(detail), caller.client});
}

void refuse(const Caller& caller, Transaction& transaction, ErrorKind kind, const char* what,
            const std::string& on, const std::string& why) {
  note(caller, what, on, false, {{"why", why}});
  transaction.commit();
  throw Error(kind, why);
}

void require(const Caller& caller, Transaction& transaction, Action action,
             const std::string& project, const char* what, const std::string& on) {
  if (may(caller, action, project)) return;
  const std::string where =
      is_about_everything(action) ? "all projects" : fmt::format("project '{}'", project);
  refuse(caller, transaction, ErrorKind::permission, what, on,
         fmt::format("{} may not {} in {}; an admin can grant a role that may", caller.user,
                     action_phrase(action), where));
}

void authorize(const Caller& caller, Action action, const std::string& project,
               const std::string& on) {
  Transaction transaction(caller.database);
  require(caller, transaction, action, project, action_name(action), on);
}

}  // namespace tutti::control
