// `tutti admin list`: users, projects, site, nodes and tokens in the database.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/ledger/account_policy.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"

namespace tutti::cli {
namespace {

using control::Database;

using Rows = std::vector<std::vector<std::string>>;

Json users_json(Database& database) {
  Json json = Json::array();
  const std::vector<control::Member> members = control::all_members(database);
  const std::vector<std::string> demanding = control::accounts_with_demand(database);
  for (const std::string& user : control::all_users(database)) {
    Json roles = Json::object();
    for (const control::Member& member : members) {
      if (member.user == user) roles[member.project] = control::role_name(member.role);
    }
    json.push_back({{"user", user},
                    {"disabled", !control::has_user(database, user)},
                    {"demands_token", std::binary_search(demanding.begin(), demanding.end(), user)},
                    {"roles", roles}});
  }
  return json;
}

Json projects_json(Database& database) {
  Json json = Json::array();
  for (const control::Project& project : control::all_projects(database)) {
    Json entry = {{"project", project.name},
                  {"regions", project.regions},
                  {"budget", to_json(project.budget)},
                  {"spent", to_json(control::spent_by_project(database, project.name))}};
    if (project.max_nodes) entry["max_nodes"] = *project.max_nodes;
    if (project.max_cores) entry["max_cores"] = *project.max_cores;
    if (project.max_jobs) entry["max_jobs"] = *project.max_jobs;
    entry["deployments"] = project.approved_only ? "approved" : "any";
    json.push_back(std::move(entry));
  }
  return json;
}

Json nodes_json(Database& database) {
  Json json = Json::array();
  for (const control::Node& node : control::all_nodes(database)) {
    json.push_back({{"node", node.name},
                    {"cores", node.cores},
                    {"gpus", node.gpus},
                    {"up", node.up},
                    {"drained", node.drained},
                    {"reason", node.reason}});
  }
  return json;
}

Json tokens_json(Database& database, int64_t now_ms) {
  Json json = Json::array();
  for (const control::TokenInfo& token : control::all_tokens(database)) {
    const char* state = token.revoked                ? "withdrawn"
                        : token.expires_ms <= now_ms ? "expired"
                                                     : "valid";
    json.push_back({{"token", token.id},
                    {"user", token.user},
                    {"created", time_text(token.created_ms)},
                    {"expires", time_text(token.expires_ms)},
                    {"state", state},
                    {"issued_by", token.parent}});
  }
  return json;
}

// "usd 250, kwh 12" of an object of numbers; "-" when it is empty.
std::string pairs_text(const Json& object) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : object.items()) {
    parts.push_back(fmt::format("{} {}", name,
                                value.is_string() ? value.get<std::string>() : dump_json(value)));
  }
  return parts.empty() ? "-" : join(parts, ", ");
}

std::string limits_text(const Json& project) {
  Json limits = project["budget"];
  for (const char* key : {"max_nodes", "max_cores", "max_jobs"}) {
    if (project.contains(key)) limits[key] = project[key];
  }
  if (project["deployments"] == "approved") limits["deployments"] = "approved";
  return pairs_text(limits);
}

std::string text_of(const control::Site& site, const Json& all) {
  Rows users = {{"user", "", "roles (project role)"}};
  for (const Json& each : all["users"]) {
    users.push_back(
        {each["user"], each["disabled"].get<bool>() ? "disabled" : "", pairs_text(each["roles"])});
  }
  Rows projects = {{"project", "regions", "limits", "spent USD"}};
  for (const Json& each : all["projects"]) {
    const auto regions = each["regions"].get<std::vector<std::string>>();
    projects.push_back({each["project"], regions.empty() ? "-" : join(regions, ","),
                        limits_text(each),
                        fmt::format("{:.2f}", each["spent"]["usd"].get<double>())});
  }
  Rows nodes = {{"node", "cores", "GPUs", "state", "reason"}};
  for (const Json& each : all["nodes"]) {
    const char* state = !each["up"].get<bool>()       ? "down"
                        : each["drained"].get<bool>() ? "drained"
                                                      : "up";
    nodes.push_back(
        {each["node"], dump_json(each["cores"]), dump_json(each["gpus"]), state, each["reason"]});
  }
  Rows tokens = {{"token", "user", "expires", "state"}};
  for (const Json& each : all["tokens"]) {
    tokens.push_back({each["token"], each["user"], each["expires"], each["state"]});
  }
  std::string text = site_text(site);
  for (const Rows& rows : {users, projects, nodes, tokens}) {
    if (rows.size() > 1) text += "\n" + format_table(rows);
  }
  return text;
}

int run_list(const ControlOptions& options) {
  ControlSession session(options);
  control::authorize(session.caller(), control::Action::run_controller, control::kAllProjects,
                     "list");
  Database& database = session.database();
  const control::Site site = session.site();
  const Json all = {{"place", to_json(site)},
                    {"users", users_json(database)},
                    {"projects", projects_json(database)},
                    {"nodes", nodes_json(database)},
                    {"tokens", tokens_json(database, session.caller().now_ms)}};
  if (options.json) {
    print_json(all);
  } else {
    print_text(text_of(site, all));
  }
  return exit_ok;
}

// What the admin of one project may know: its limits, and who has a role there.
int run_project_list(const ControlOptions& options, const std::string& name) {
  ControlSession session(options);
  control::authorize(session.caller(), control::Action::manage_projects, name, "project " + name);
  Database& database = session.database();
  Json members = Json::array();
  Rows rows = {{"user", "role", ""}};
  for (const control::Member& member : control::all_members(database)) {
    const bool everywhere = member.project == control::kAllProjects;
    if (member.project != name && !everywhere) continue;
    const bool disabled = !control::has_user(database, member.user);
    members.push_back({{"user", member.user},
                       {"role", control::role_name(member.role)},
                       {"in_all_projects", everywhere},
                       {"disabled", disabled}});
    rows.push_back(
        {member.user, control::role_name(member.role),
         std::string(everywhere ? "in all projects" : "") + (disabled ? " disabled" : "")});
  }
  Json project;
  for (Json& each : projects_json(database)) {
    if (each["project"] == name) project = std::move(each);
  }
  if (project.is_null()) {
    fail(ErrorKind::not_found, "unknown project '{}'", printable(name));
  }
  project["members"] = std::move(members);
  if (options.json) {
    print_json(project);
  } else {
    print_text(fmt::format("{}: {}\n\n{}", name, limits_text(project), format_table(rows)));
  }
  return exit_ok;
}

}  // namespace

void add_admin_list(CLI::App& group, Action& action) {
  const auto options = std::make_shared<ControlOptions>();
  const auto project = std::make_shared<std::string>();
  CLI::App* command = group.add_subcommand(
      "list", "List users with their roles, projects, the site, nodes, tokens");
  add_control_options(*command, *options);
  command->add_option("--project", *project,
                      "Only this project's members and limits; needs the role of an admin in it");
  command->footer(
      "Without --project it needs the role of an operator in all projects.\n\n"
      "Examples:\n  tutti admin list\n  tutti admin list --project vision");
  command->callback([options, project, &action] {
    action = [options, project] {
      return project->empty() ? run_list(*options) : run_project_list(*options, *project);
    };
  });
}

}  // namespace tutti::cli
