#include "tutti/cli/control/deployments.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/control/deployment_keys.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/jobs/deployment_rule.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/jobs/requests.h"
#include "tutti/control/launches/launch_folder.h"

namespace tutti::cli {
namespace {

using control::Job;

struct ListArguments {
  ControlOptions control;
  std::string project;
  bool all = false;
};

struct StopArguments {
  ControlOptions control;
  std::string project;
  std::string name;
};

// Of its newest launch, where that runs.
control::Health health_of(const control::ControlFolder& folder, const Job& job) {
  if (job.state != control::JobState::running) return {};
  const control::LaunchFolder launch(posix_file_system(),
                                     control::job_folder(folder.jobs(), job.id, job.submitted_ms));
  return launch.read_health(job.generation).value_or(control::Health{});
}

// Where clients find it: an endpoint that listens on all addresses of its node says no other.
std::string url_of(control::Database& database, const Job& job, const std::string& url) {
  const auto launch = control::find_launch(database, job.id, job.generation);
  if (!launch || launch->nodes.empty()) return url;
  for (const std::string_view any : {"//0.0.0.0:", "//[::]:"}) {
    const size_t at = url.find(any);
    if (at == std::string::npos) continue;
    return url.substr(0, at) + "//" + launch->nodes.front() + ":" + url.substr(at + any.size());
  }
  return url;
}

int run_list(const ListArguments& arguments) {
  ControlSession session(arguments.control);
  const std::vector<Job> jobs =
      control::visible_deployments(session.caller(), arguments.project, arguments.all);
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {
      {"name", "project", "job", "user", "state", "health", "URL", "step", "checkpoint", "detail"}};
  for (const Job& job : jobs) {
    const control::Deployment& deployment = *job.request.deployment;
    control::Health health = health_of(session.folder(), job);
    health.url = url_of(session.database(), job, health.url);
    const std::string detail = health.detail.empty() ? job.detail : health.detail;
    Json json = job_json(job);
    json["health"] = health.state;
    json["health_detail"] = health.detail;
    json["url"] = health.url;
    list.push_back(std::move(json));
    rows.push_back({deployment.name, job.request.project, std::to_string(job.id), job.user,
                    control::state_name(job.state), health.state.empty() ? "-" : health.state,
                    health.url.empty() ? "-" : health.url, std::to_string(deployment.step),
                    deployment.checkpoint, detail});
  }
  const bool runs = controller_runs(session.folder());
  if (arguments.control.json) {
    print_json({{"deployments", list}, {"controller_runs", runs}});
    return exit_ok;
  }
  print_text(jobs.empty() ? "nothing is deployed\n" : format_table(rows));
  const bool any_lives = std::any_of(jobs.begin(), jobs.end(),
                                     [](const Job& job) { return !control::is_final(job.state); });
  if (any_lives && !runs) {
    print_message("no controller runs: `tutti controller run` starts what waits or failed\n");
  }
  return exit_ok;
}

int run_stop(const StopArguments& arguments) {
  ControlSession session(arguments.control);
  const control::Caller caller = session.caller();
  const Job found = control::find_deployment(caller, arguments.project, arguments.name);
  const Job job = control::cancel(caller, found.id);
  const bool started = !control::is_final(job.state) && ensure_controller(session.folder());
  if (arguments.control.json) {
    Json json = job_json(job);
    json["controller_started"] = started;
    print_json(json);
  } else {
    print_text(fmt::format("deployment {}, job {}: {} ({})\n", arguments.name, job.id,
                           control::state_name(job.state), control::reason_name(job.reason)));
  }
  return exit_ok;
}

}  // namespace

void add_deployment(CLI::App& app, Action& action) {
  CLI::App* group =
      app.add_subcommand("deployment", "List and stop what is deployed; its API keys");
  group->require_subcommand(1);
  group->footer("Example:\n  tutti deployment list");

  const auto list = std::make_shared<ListArguments>();
  CLI::App* command = group->add_subcommand("list", "List deployments with their health and URL");
  command->add_option("--project", list->project, "Only those of this project");
  command->add_flag("--all", list->all, "Include those that were stopped or given up");
  add_control_options(*command, list->control);
  command->footer("Example:\n  tutti deployment list --all");
  command->callback([list, &action] { action = [list] { return run_list(*list); }; });

  const auto stop = std::make_shared<StopArguments>();
  command = group->add_subcommand(
      "stop", "Stop a deployment: new requests are refused, those that run are finished");
  command->add_option("NAME", stop->name, "Of the deployment")->required();
  command->add_option("--project", stop->project, "Its project, where several have that name");
  add_control_options(*command, stop->control);
  command->footer(
      "Needs the role of a deployer in the project. tutti requeue JOB starts one again.\n\n"
      "Example:\n  tutti deployment stop chat");
  command->callback([stop, &action] { action = [stop] { return run_stop(*stop); }; });
  add_deployment_keys(*group, action);
}

}  // namespace tutti::cli
