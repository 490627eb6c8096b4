// `tutti admin`: users, roles, projects with their limits, the site, nodes, tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/catalog/catalog.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/control/said.h"
#include "tutti/cli/plan/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/jobs/guarded_keys.h"
#include "tutti/control/jobs/requests.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/people/administration.h"

namespace tutti::cli {
namespace {

using control::Project;

struct ProjectArguments {
  ControlOptions control;
  std::string name;
  std::string regions, nodes, cores, jobs;
  std::string node_hours, core_hours, gpu_hours, usd, kwh;
  std::string deployments;
};

// "" keeps a limit, "none" takes it away.
template <typename Parse>
void set_limit(std::optional<int64_t>& limit, const std::string& text, const char* key,
               Parse parse) {
  if (text.empty()) return;
  limit = text == "none" ? std::nullopt : std::optional<int64_t>(parse(text, key));
}

Said define_project(ControlSession& session, const ProjectArguments& arguments) {
  const control::Caller caller = session.caller();
  Project project;
  if (auto known = control::find_project(session.database(), arguments.name)) project = *known;
  project.name = arguments.name;
  if (arguments.regions == "any") {
    project.regions.clear();
  } else if (!arguments.regions.empty()) {
    project.regions.clear();
    for (const auto region : split(arguments.regions, ',')) {
      if (!trim(region).empty()) project.regions.emplace_back(trim(region));
    }
  }
  const auto set_count = [](auto& at, const std::string& text, const char* key) {
    set_limit(at, text, key, parse_count);
  };
  const auto set_amount = [](auto& at, const std::string& text, const char* key) {
    set_limit(at, text, key, control::parse_micro);
  };
  set_count(project.max_nodes, arguments.nodes, "--max-nodes");
  set_count(project.max_cores, arguments.cores, "--max-cores");
  set_count(project.max_jobs, arguments.jobs, "--max-jobs");
  set_amount(project.budget.node_microhours, arguments.node_hours, "--node-hours");
  set_amount(project.budget.core_microhours, arguments.core_hours, "--core-hours");
  set_amount(project.budget.gpu_microhours, arguments.gpu_hours, "--gpu-hours");
  set_amount(project.budget.micro_usd, arguments.usd, "--usd");
  set_amount(project.budget.micro_kwh, arguments.kwh, "--kwh");
  if (!arguments.deployments.empty()) project.approved_only = arguments.deployments == "approved";
  control::define_project(caller, project);
  const control::Spend spent = control::spent_by_project(session.database(), project.name);
  const auto count = [](const std::optional<int64_t>& limit) {
    return limit ? std::to_string(*limit) : std::string("no limit");
  };
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"project", project.name},
      {"regions", project.regions.empty() ? "any" : join(project.regions, ", ")},
      {"nodes at once", count(project.max_nodes)},
      {"cores at once", count(project.max_cores)},
      {"jobs at once", count(project.max_jobs)},
      {"deployments", project.approved_only ? "of approved checkpoints" : "of any checkpoint"}};
  for (const control::BudgetPart& part : control::budget_parts()) {
    const auto& limit = project.budget.*part.limit;
    pairs.emplace_back(part.name, fmt::format("{} of {}", control::format_micro(spent.*part.spent),
                                              limit ? control::format_micro(*limit) : "no limit"));
  }
  return {format_pairs(pairs),
          {{"project", project.name},
           {"regions", project.regions},
           {"deployments", project.approved_only ? "approved" : "any"},
           {"budget", control::to_json(project.budget)},
           {"spent", control::to_json(spent)}}};
}

void add_project(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<ProjectArguments>();
  CLI::App* command = group.add_subcommand("project", "Create a project, or change its limits");
  command->add_option("NAME", arguments->name, "Of the project")->required();
  command
      ->add_option("--regions", arguments->regions,
                   "Regions that may hold its internal and restricted data: eu,ch; any")
      ->type_name("LIST");
  const auto limit = [&](const char* name, std::string& value, const char* what) {
    command->add_option(name, value, what)->type_name("N");
  };
  limit("--max-nodes", arguments->nodes, "Most nodes at once; none removes the limit");
  limit("--max-cores", arguments->cores, "Most cores at once");
  limit("--max-jobs", arguments->jobs, "Most running jobs at once");
  limit("--node-hours", arguments->node_hours, "Budget of all its jobs");
  limit("--core-hours", arguments->core_hours, "Budget");
  limit("--gpu-hours", arguments->gpu_hours, "Budget");
  limit("--usd", arguments->usd, "Budget");
  limit("--kwh", arguments->kwh, "Budget");
  command
      ->add_option("--deployments", arguments->deployments,
                   "approved: it deploys approved checkpoints only (tutti checkpoint approve); any")
      ->check(CLI::IsMember({"approved", "any"}));
  command->footer("Example:\n  tutti admin project vision --max-jobs 4 --usd 250 --regions eu");
  set_action(*command, action, arguments, &define_project);
}

struct SiteArguments {
  ControlOptions control;
  std::string name, region, highest, usd_per_node_hour, watts_per_node, site, catalog;
  std::string scheduler, partition, account, unlabelled, allowed_keys;
  std::optional<std::string> node_check;
};

Said define_site(ControlSession& session, const SiteArguments& arguments) {
  control::Site site = session.site();
  if (!arguments.name.empty()) site.policy.name = arguments.name;
  if (!arguments.region.empty()) site.policy.region = arguments.region;
  if (!arguments.highest.empty()) {
    site.policy.highest = control::parse_data_class(arguments.highest);
    site.policy.declares_classes = true;
  }
  if (arguments.unlabelled == "strictest") {
    site.policy.unlabelled.reset();
  } else if (!arguments.unlabelled.empty()) {
    site.policy.unlabelled = control::parse_data_class(arguments.unlabelled);
  }
  if (!arguments.allowed_keys.empty()) {
    site.allowed_keys = control::parse_guarded_keys(arguments.allowed_keys);
  }
  if (!arguments.usd_per_node_hour.empty()) {
    site.micro_usd_per_node_hour =
        control::parse_micro(arguments.usd_per_node_hour, "--usd-per-node-hour");
  }
  if (!arguments.watts_per_node.empty()) {
    site.milliwatts_per_node =
        control::parse_micro(arguments.watts_per_node, "--watts-per-node") / 1000;
  }
  if (!arguments.site.empty()) {
    const catalog::Catalog catalog =
        catalog::load_catalog(posix_file_system(), catalog_folders(arguments.catalog));
    const catalog::Site& entry = catalog.site(arguments.site);
    site.pue = entry.pue;
    site.micro_kg_per_kwh = std::llround(entry.kg_co2e_per_kwh * 1e6);
    site.micro_liters_per_kwh = std::llround(entry.liters_per_kwh * 1e6);
  }
  if (!arguments.scheduler.empty()) site.slurm = arguments.scheduler == "slurm";
  if (!arguments.partition.empty()) site.slurm_partition = arguments.partition;
  if (!arguments.account.empty()) site.slurm_account = arguments.account;
  if (arguments.node_check) site.node_check = *arguments.node_check;
  control::define_site(session.caller(), site);
  if (site.slurm && !follow_slurm(session)) {
    print_message("tutti: warning: Slurm does not answer (sinfo); its nodes are not known yet\n");
  }
  return {
      site_text(site),
      {{"name", site.policy.name},
       {"region", site.policy.region},
       {"highest_data_class", control::data_class_name(site.policy.highest)},
       {"usd_per_node_hour", static_cast<double>(site.micro_usd_per_node_hour) / 1e6},
       {"watts_per_node", static_cast<double>(site.milliwatts_per_node) / 1000},
       {"scheduler", site.slurm ? "slurm" : "local"},
       {"node_check", site.node_check},
       {"declares_classes", site.policy.declares_classes},
       {"unlabelled_data_class",
        site.policy.unlabelled ? Json(control::data_class_name(*site.policy.unlabelled)) : Json()},
       {"allowed_keys", site.allowed_keys},
       {"pue", site.pue}}};
}

struct NodeArguments {
  ControlOptions control;
  std::string name;
  std::string reason;
  bool drain = false;
  bool resume = false;
};

Said define_node(ControlSession& session, const NodeArguments& arguments) {
  for (control::Node node : control::all_nodes(session.database())) {
    if (node.name != arguments.name) continue;
    if (arguments.drain == arguments.resume) {
      fail(ErrorKind::usage, "give one of --drain and --resume");
    }
    node.drained = arguments.drain;
    node.reason = arguments.reason;
    control::define_node(session.caller(), node);
    return {
        fmt::format("node {} {}\n", node.name, node.drained ? "takes no new jobs" : "takes jobs"),
        {{"node", node.name}, {"drained", node.drained}}};
  }
  fail(ErrorKind::not_found, "unknown node '{}'", printable(arguments.name));
}

void add_site(CLI::App& group, Action& action) {
  const auto site = std::make_shared<SiteArguments>();
  CLI::App* command =
      group.add_subcommand("site", "Set name, region, prices and power of this site");
  command->add_option("--name", site->name, "Name of the site");
  command->add_option("--region", site->region,
                      "Region of the site, for rule 2 of the data classes");
  command->add_option("--data", site->highest,
                      "Highest data class: public, internal or restricted");
  command
      ->add_option("--unlabelled", site->unlabelled,
                   "Class of unlabelled data: a class, or strictest: that of --data")
      ->type_name("CLASS");
  command
      ->add_option("--allow-keys", site->allowed_keys,
                   "Keys that every submitter may set: telemetry.metrics_port,...; all; none")
      ->type_name("LIST");
  command->add_option("--usd-per-node-hour", site->usd_per_node_hour, "Price")->type_name("X");
  command->add_option("--watts-per-node", site->watts_per_node, "Under load")->type_name("X");
  command->add_option("--site", site->site, "Site of the catalog with PUE, grid and water");
  add_catalog_option(*command, site->catalog);
  command->add_option("--scheduler", site->scheduler, "Scheduler: local (this machine) or slurm")
      ->check(CLI::IsMember({"local", "slurm"}));
  command->add_option("--partition", site->partition, "Slurm partition; default Slurm's");
  command->add_option("--account", site->account, "Slurm account");
  command
      ->add_option("--node-check", site->node_check,
                   "Health check that a node must pass (exit code 0 or 1) before ranks start on it")
      ->type_name("COMMAND");
  command->footer(
      "Example:\n  tutti admin site --region eu --usd-per-node-hour 1.20 --site google");
  set_action(*command, action, site, &define_site);

  const auto node = std::make_shared<NodeArguments>();
  command = group.add_subcommand("node", "Drain a node, or return it to service");
  command->add_option("NAME", node->name, "Of the node")->required();
  command->add_flag("--drain", node->drain, "Accept no new jobs; running jobs continue");
  command->add_flag("--resume", node->resume, "Accept jobs again");
  command->add_option("--reason", node->reason, "Reason, for the audit log");
  command->footer("Example:\n  tutti admin node n1 --drain --reason 'new memory'");
  set_action(*command, action, node, &define_node);
}

constexpr const char* kDefaultLifetime = "90d";

struct TokenArguments {
  ControlOptions control;
  std::string user;
  std::string revoke;
  std::string lifetime;
};

Said issue_token(ControlSession& session, const TokenArguments& arguments) {
  const control::Caller caller = session.caller();
  if (!arguments.revoke.empty()) {
    const int64_t count = control::withdraw_token(caller, arguments.revoke);
    return {
        count > 1 ? fmt::format("withdrawn, and {} that it issued\n", count - 1) : "withdrawn\n",
        {{"withdrawn", arguments.revoke}, {"tokens", count}}};
  }
  const std::string user = arguments.user.empty() ? caller.user : arguments.user;
  const bool is_default = arguments.lifetime.empty();
  int64_t expires =
      caller.now_ms +
      parse_milliseconds(is_default ? kDefaultLifetime : arguments.lifetime, "--lifetime");
  if (is_default) {
    expires = std::min(expires, control::caller_expires_ms(caller).value_or(expires));
  }
  const std::string token = control::issue_token(caller, user, expires);
  return {token + "\n", {{"token", token}, {"user", user}, {"expires", time_text(expires)}}};
}

void add_token(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<TokenArguments>();
  CLI::App* command = group.add_subcommand("token", "Issue or revoke a token");
  command->add_option("--user", arguments->user, "User; default yourself");
  command->add_option("--lifetime", arguments->lifetime,
                      "Lifetime; default 90d, or that of the issuing token");
  command
      ->add_option("--withdraw", arguments->revoke,
                   "Revoke the token with this id, the part between the dashes")
      ->type_name("ID");
  command->footer(
      "The token is printed once and stored nowhere. A command with it in $TUTTI_TOKEN acts as its "
      "user.\nA token issued with another token expires no later, and is revoked with it.\n\n"
      "Example:\n  tutti admin token --lifetime 30d");
  set_action(*command, action, arguments, &issue_token);
}

}  // namespace

void add_admin(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("admin", "Users, roles, projects, budgets, the site");
  group->require_subcommand(1);
  group->footer("Example:\n  tutti admin project vision --usd 250");
  add_admin_people(*group, action);
  add_project(*group, action);
  add_site(*group, action);
  add_token(*group, action);
  add_admin_list(*group, action);
}

}  // namespace tutti::cli
