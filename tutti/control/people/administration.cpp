#include "tutti/control/people/administration.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/control/audit/audit.h"

namespace tutti::control {
namespace {

// A change of the site or of permissions.
template <typename Change>
void change(const Caller& caller, Action action, const std::string& project, const char* what,
            const std::string& on, Json detail, Change apply) {
  Transaction transaction(caller.database);
  require(caller, transaction, action, project, what, on);
  apply(transaction);
  note(caller, what, on, true, std::move(detail));
  transaction.commit();
}

void check_name(const std::string& name, const char* what) {
  const bool plain = !name.empty() && name.size() <= 64 && name[0] != '-' && name[0] != '@' &&
                     name.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "0123456789._-@") == std::string::npos;
  if (!plain) {
    fail(
        ErrorKind::usage,
        "'{}' is not a valid {} name; write 1 to 64 letters, digits, . _ - @, of which - and @ not "
        "first",
        printable(name), what);
  }
}

void check_user_name(const std::string& name) {
  check_name(name, "user");
  if (name != kController) return;
  fail(ErrorKind::usage,
       "'{}' cannot be a user: the audit log uses this name for the controller itself; "
       "choose another name",
       name);
}

// Refuses a change that leaves no admin of all projects. `undo` comes before the refusal is
// written: the transaction carries only its line.
template <typename Undo>
void keep_ruled(const Caller& caller, Transaction& transaction, const char* what,
                const std::string& on, Undo undo) {
  const std::vector<Member> members = all_members(caller.database);
  const bool is_ruled = std::any_of(members.begin(), members.end(), [&](const Member& member) {
    return member.project == kAllProjects && member.role == Role::admin &&
           has_user(caller.database, member.user);
  });
  if (is_ruled) return;
  undo();
  refuse(caller, transaction, ErrorKind::usage, what, on,
         "at least one admin of all projects must remain");
}

bool is_known(Database& database, const std::string& user) {
  const std::vector<std::string> users = all_users(database);
  return std::find(users.begin(), users.end(), user) != users.end();
}

std::string disabled_text(const std::string& user) {
  return fmt::format("user '{}' is disabled; `tutti admin user {} --enable` undoes that", user,
                     user);
}

}  // namespace

void create_control_plane(const Caller& caller, const Node& node, const Site& site) {
  Transaction transaction(caller.database);
  if (!all_users(caller.database).empty()) return;
  check_user_name(caller.user);
  add_user(caller.database, caller.user, caller.now_ms);
  set_member(caller.database, {caller.user, kAllProjects, Role::admin});
  Project project;
  project.name = kDefaultProject;
  write_project(caller.database, project, caller.now_ms);
  write_node(caller.database, node);
  write_site(caller.database, site);
  note(caller, "found", "place " + site.policy.name, true,
       {{"node", node.name}, {"cores", node.cores}, {"admin", caller.user}});
  transaction.commit();
}

void create_user(const Caller& caller, const std::string& user) {
  check_user_name(user);
  change(caller, Action::manage_users, "", "create user", "user " + user, Json::object(),
         [&](Transaction& transaction) {
           if (is_known(caller.database, user)) {
             refuse(caller, transaction, ErrorKind::usage, "create user", "user " + user,
                    has_user(caller.database, user) ? fmt::format("user '{}' is there", user)
                                                    : disabled_text(user));
           }
           add_user(caller.database, user, caller.now_ms);
         });
}

void disable_user(const Caller& caller, const std::string& user, bool disabled) {
  const char* what = disabled ? "disable user" : "enable user";
  const std::string on = "user " + user;
  change(caller, Action::manage_users, "", what, on, Json::object(), [&](Transaction& transaction) {
    if (!is_known(caller.database, user)) {
      refuse(caller, transaction, ErrorKind::usage, what, on,
             unknown_text("user", user, all_users(caller.database)));
    }
    set_disabled(caller.database, user, disabled);
    keep_ruled(caller, transaction, what, on, [&] { set_disabled(caller.database, user, false); });
  });
}

void grant(const Caller& caller, const Member& member) {
  const bool all = member.project == kAllProjects;
  const std::string on = fmt::format("project {}", member.project);
  change(caller, all ? Action::manage_users : Action::manage_projects, member.project, "grant", on,
         {{"user", member.user}, {"role", role_name(member.role)}}, [&](Transaction& transaction) {
           if (!has_user(caller.database, member.user)) {
             refuse(caller, transaction, ErrorKind::usage, "grant", on,
                    is_known(caller.database, member.user)
                        ? disabled_text(member.user)
                        : unknown_text("user", member.user, all_users(caller.database)));
           }
           if (!all && !find_project(caller.database, member.project)) {
             refuse(caller, transaction, ErrorKind::usage, "grant", on,
                    fmt::format("project '{}' is not known", member.project));
           }
           set_member(caller.database, member);
           if (!all) return;
           keep_ruled(caller, transaction, "grant", on, [&] {
             set_member(caller.database, {member.user, member.project, Role::admin});
           });
         });
}

void revoke(const Caller& caller, const std::string& user, const std::string& project) {
  const std::string on = fmt::format("project {}", project);
  const Action action = project == kAllProjects ? Action::manage_users : Action::manage_projects;
  change(caller, action, project, "revoke", on, {{"user", user}}, [&](Transaction& transaction) {
    const std::vector<Member> members = all_members(caller.database);
    const bool has_role = std::any_of(members.begin(), members.end(), [&](const Member& member) {
      return member.user == user && member.project == project;
    });
    // A typo must not look as if a user had lost a right.
    if (!has_role) {
      refuse(caller, transaction, ErrorKind::usage, "revoke", on,
             fmt::format("'{}' has no role in '{}' itself; `tutti admin list` shows who has "
                         "which",
                         printable(user), printable(project)));
    }
    remove_member(caller.database, user, project);
    if (project != kAllProjects) return;
    keep_ruled(caller, transaction, "revoke", on, [&] {
      set_member(caller.database, {user, project, Role::admin});
    });
  });
}

void define_project(const Caller& caller, const Project& project) {
  check_name(project.name, "project");
  const bool known = find_project(caller.database, project.name).has_value();
  Json detail = {{"regions", project.regions}, {"budget", to_json(project.budget)}};
  if (project.max_nodes) detail["max_nodes"] = *project.max_nodes;
  if (project.max_cores) detail["max_cores"] = *project.max_cores;
  if (project.max_jobs) detail["max_jobs"] = *project.max_jobs;
  if (project.approved_only) detail["approved_only"] = true;
  change(caller, known ? Action::manage_projects : Action::manage_users, project.name,
         "define project", "project " + project.name, std::move(detail),
         [&](Transaction&) { write_project(caller.database, project, caller.now_ms); });
}

void define_site(const Caller& caller, const Site& site) {
  change(caller, Action::manage_users, "", "define site", "place " + site.policy.name,
         {{"region", site.policy.region},
          {"highest", data_class_name(site.policy.highest)},
          {"usd_per_node_hour", format_micro(site.micro_usd_per_node_hour)},
          {"milliwatts_per_node", site.milliwatts_per_node},
          {"site", to_json(site)}},
         [&](Transaction&) { write_site(caller.database, site); });
}

void define_node(const Caller& caller, const Node& node) {
  check_name(node.name, "node");
  change(caller, Action::run_controller, "", "define node", "node " + node.name,
         {{"cores", node.cores}, {"gpus", node.gpus}, {"drained", node.drained}},
         [&](Transaction&) { write_node(caller.database, node); });
}

std::string issue_token(const Caller& caller, const std::string& user, int64_t expires_ms) {
  Transaction transaction(caller.database);
  const std::string on = "user " + user;
  if (user != caller.user) {
    require(caller, transaction, Action::manage_users, "", "issue token", on);
  }
  if (!has_user(caller.database, user)) {
    refuse(caller, transaction, ErrorKind::usage, "issue token", on,
           is_known(caller.database, user) ? disabled_text(user)
                                           : fmt::format("user '{}' is not known", user));
  }
  const auto latest = caller_expires_ms(caller);
  if (latest && expires_ms > *latest) {
    const auto utc = [](int64_t ms) { return format_utc(static_cast<double>(ms) / 1000); };
    refuse(
        caller, transaction, ErrorKind::usage, "issue token", on,
        fmt::format("a token that expires {} would outlive the one that issues it, which expires "
                    "{}; choose a shorter --lifetime",
                    utc(expires_ms), utc(*latest)));
  }
  std::string token = add_token(caller.database, user, caller.now_ms, expires_ms, caller.token_id);
  Json detail = {{"id", id_of_token(token)}, {"expires_ms", expires_ms}};
  if (!caller.token_id.empty()) detail["parent"] = caller.token_id;
  note(caller, "issue token", on, true, std::move(detail));
  transaction.commit();
  return token;
}

std::optional<int64_t> caller_expires_ms(const Caller& caller) {
  const auto token = find_token(caller.database, caller.token_id);
  return token ? std::optional(token->expires_ms) : std::nullopt;
}

int64_t withdraw_token(const Caller& caller, const std::string& id) {
  Transaction transaction(caller.database);
  const std::string on = "token " + id;
  const auto token = find_token(caller.database, id);
  if (!token || token->user != caller.user) {
    require(caller, transaction, Action::manage_users, "", "withdraw token", on);
  }
  if (!token) {
    refuse(caller, transaction, ErrorKind::usage, "withdraw token", on,
           fmt::format("unknown token '{}'", printable(id)));
  }
  const int64_t withdrawn = revoke_token(caller.database, id);
  note(caller, "withdraw token", on, true, {{"user", token->user}, {"withdrawn", withdrawn}});
  transaction.commit();
  return withdrawn;
}

}  // namespace tutti::control
