// `tutti queue`, `show`, `logs`: what jobs there are and how they are.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/control/job_copies.h"
#include "tutti/cli/control/run_end.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/controller/controller.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/jobs/requests.h"
#include "tutti/control/launches/local_launcher.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/people/visible.h"
#include "tutti/control/schedule/schedule.h"
#include "tutti/report/run_summary.h"

namespace tutti::cli {
namespace {

using control::Job;

struct QueueArguments {
  ControlOptions control;
  bool all = false;
  std::string project;
  std::string user;
  int64_t most = 50;
  int64_t skip = 0;
};

int64_t elapsed_ms(const Job& job) {
  return job.run_ms + (control::owns_nodes(job.state) ? job.elapsed_ms : 0);
}

void check_known(const char* what, const std::string& name, const std::vector<std::string>& known) {
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return;
  fail(ErrorKind::usage, "{}", control::unknown_text(what, name, known));
}

// Of an empty list: "no jobs", or what has ended, which a reader after a failure looks for.
std::string empty_text(const control::Caller& caller, control::JobFilter filter, int64_t total) {
  if (total > 0) return fmt::format("there are only {} jobs\n", total);
  if (filter.which == control::JobFilter::Which::all) return "no jobs\n";
  filter.which = control::JobFilter::Which::ended;
  filter.skip = 0;
  filter.most = 1;
  const std::vector<Job> last = control::visible_jobs(caller, filter);
  if (last.empty()) return "no jobs\n";
  const Job& job = last.front();
  return fmt::format(
      "nothing waits and nothing runs; the last of {} jobs, {} {}, is {}{}: tutti show {}, tutti "
      "queue --all\n",
      control::count_visible(caller, filter), job.id, job.request.name,
      control::state_name(job.state), job.detail.empty() ? "" : " (" + job.detail + ")", job.id);
}

int run_queue(const QueueArguments& arguments) {
  ControlSession session(arguments.control);
  const control::Caller caller = session.caller();
  check_known("project", arguments.project, control::visible_projects(caller));
  check_known("user", arguments.user, control::visible_users(caller));
  using Which = control::JobFilter::Which;
  control::JobFilter filter{arguments.all ? Which::all : Which::live, arguments.project,
                            arguments.user, arguments.skip, arguments.most};
  const std::vector<Job> jobs = control::visible_jobs(caller, filter);
  const int64_t total = control::count_visible(caller, filter);
  const bool runs = controller_runs(session.folder());
  if (arguments.control.json) {
    Json list = Json::array();
    for (const Job& job : jobs) list.push_back(job_json(job));
    print_json({{"jobs", list}, {"total", total}, {"controller_runs", runs}});
    return exit_ok;
  }
  std::vector<std::vector<std::string>> rows = {
      {"job", "name", "user", "project", "state", "reason", "priority", "submitted", "ran"}};
  for (const Job& job : jobs) {
    rows.push_back({std::to_string(job.id), job.request.name, job.user, job.request.project,
                    control::state_name(job.state), control::reason_name(job.reason),
                    std::to_string(job.priority), time_text(job.submitted_ms),
                    duration_text(elapsed_ms(job))});
  }
  print_text(jobs.empty() ? empty_text(caller, filter, total) : format_table(rows));
  if (const int64_t shown = arguments.skip + static_cast<int64_t>(jobs.size());
      !jobs.empty() && shown < total) {
    print_message(fmt::format("{} more: --skip {}\n", total - shown, shown));
  }
  const bool waits = std::any_of(jobs.begin(), jobs.end(), [](const Job& job) {
    return job.state == control::JobState::pending;
  });
  if (waits && !runs) {
    print_message("no controller runs: `tutti controller run` starts what waits\n");
  }
  return exit_ok;
}

// How far the run of a job has come.
struct RunSoFar {
  report::RunSummary summary;
  std::optional<double> end_wall_seconds;  // when it will be done, or was
};

// Absent: no run yet, or it is that of a project which the caller may not see.
std::optional<RunSoFar> run_so_far(const control::Caller& caller, const Job& job) {
  const std::string& folder = job.request.run_folder;
  FileSystem& files = posix_file_system();
  if (folder.empty() || !files.exists(join_path(folder, "events.jsonl"))) return std::nullopt;
  const auto project = control::project_of_run(caller.database, folder);
  if (!project || !control::may(caller, control::Action::view, *project)) return std::nullopt;
  try {
    const double now = wall_seconds();
    RunSoFar run{report::summarize(report::read_run(files, folder), now), std::nullopt};
    const bool goes_on = run.summary.steps < run.summary.planned_steps;
    if (control::owns_nodes(job.state) && goes_on) {
      run.end_wall_seconds = run_end_seconds(files, folder, now);
    } else if (job.ended_ms != 0) {
      run.end_wall_seconds = static_cast<double>(job.ended_ms) / 1000;
    }
    return run;
  } catch (const Error&) {
    return std::nullopt;  // it has not recorded anything yet
  }
}

Json run_json(const RunSoFar& run) {
  const report::RunSummary& summary = run.summary;
  return {{"step", summary.steps},
          {"planned_steps", summary.planned_steps == 0 ? Json() : Json(summary.planned_steps)},
          {"loss", summary.final_loss ? Json(*summary.final_loss) : Json()},
          {"validation_loss", summary.validation_loss ? Json(*summary.validation_loss) : Json()},
          {"tokens_per_second", summary.tokens_per_second},
          {"end", run.end_wall_seconds ? Json(format_utc(*run.end_wall_seconds)) : Json()}};
}

std::string step_text(const report::RunSummary& summary) {
  std::string text = std::to_string(summary.steps);
  if (summary.planned_steps > 0) text += fmt::format(" of {}", summary.planned_steps);
  if (summary.final_loss) text += fmt::format(", loss {:.4f}", *summary.final_loss);
  if (summary.validation_loss) text += fmt::format(", validation {:.4f}", *summary.validation_loss);
  if (summary.tokens_per_second > 0) {
    text += ", " + format_rate(summary.tokens_per_second, "tokens");
  }
  return text;
}

struct ShowArguments {
  ControlOptions control;
  int64_t job = 0;
};

int run_show(const ShowArguments& arguments) {
  ControlSession session(arguments.control);
  const control::Caller caller = session.caller();
  const Job job = control::visible_job(caller, arguments.job);
  const std::optional<RunSoFar> so_far = run_so_far(caller, job);
  control::Database& database = session.database();
  const auto launches = control::launches_of(database, job.id);
  const auto incidents = control::incidents_of(database, job.id);
  const control::Spend spent = control::spent_by_job(database, job.id);
  const std::string output = output_path_of(session.folder(), job);
  if (arguments.control.json) {
    Json json = job_json(job);
    json["spent"] = control::to_json(spent);
    json["budget"] = control::to_json(job.request.budget);
    json["output"] = output;
    json["data_class"] =
        control::data_class_name(control::parse_data_class(job.request.data_class));
    json["progress"] = so_far ? run_json(*so_far) : Json();
    json["launches"] = Json::array();
    for (const control::Launch& launch : launches) {
      json["launches"].push_back(
          {{"generation", launch.generation},
           {"nodes", launch.nodes},
           {"started", time_text(launch.started_ms)},
           {"seconds", static_cast<double>(launch.elapsed_ms) / 1000},
           {"exit_code", launch.exit_code ? Json(*launch.exit_code) : Json()},
           {"outcome", launch.outcome}});
    }
    json["incidents"] = Json::array();
    for (const control::Incident& incident : incidents) {
      json["incidents"].push_back(control::to_json(incident));
    }
    print_json(json);
    return exit_ok;
  }
  std::vector<std::string> why;
  if (job.reason != control::Reason::none) why.emplace_back(control::reason_name(job.reason));
  if (!job.detail.empty()) why.push_back(job.detail);
  std::string state = control::state_name(job.state);
  if (!why.empty()) state += fmt::format(" ({})", join(why, ": "));
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"job", fmt::format("{} {}", job.id, job.request.name)}, {"state", state}};
  if (so_far) {
    pairs.emplace_back("step", step_text(so_far->summary));
    if (so_far->end_wall_seconds) {
      const bool is_over = job.ended_ms != 0 && !control::owns_nodes(job.state);
      pairs.emplace_back(is_over ? "ended" : "should end", format_utc(*so_far->end_wall_seconds));
    }
  }
  pairs.emplace_back("user, project", fmt::format("{}, {}", job.user, job.request.project));
  pairs.emplace_back("submitted", time_text(job.submitted_ms));
  pairs.emplace_back("ran", duration_text(elapsed_ms(job)));
  pairs.emplace_back(
      "spent", fmt::format("{}, {}", money_text(spent.micro_usd), energy_text(spent.micro_kwh)));
  pairs.emplace_back("command", "tutti " + join(job.request.command, " "));
  if (const auto& deployment = job.request.deployment) {
    pairs.emplace_back("checkpoint", fmt::format("{}, step {}, SHA-256 {}", deployment->checkpoint,
                                                 deployment->step, deployment->manifest_sha256));
  } else {
    pairs.emplace_back("peer copies", copies_text(copies_of_words(job.request.command)));
  }
  pairs.emplace_back("output", output);
  print_text(format_pairs(pairs));
  if (!launches.empty()) {
    std::vector<std::vector<std::string>> rows = {
        {"launch", "nodes", "started", "ran", "exit code", "outcome"}};
    for (const control::Launch& launch : launches) {
      rows.push_back({std::to_string(launch.generation), join(launch.nodes, ","),
                      time_text(launch.started_ms), duration_text(launch.elapsed_ms),
                      launch.exit_code ? std::to_string(*launch.exit_code) : "-", launch.outcome});
    }
    print_text(format_table(rows));
  }
  if (!incidents.empty()) {
    std::vector<std::vector<std::string>> rows = {
        {"incident", "launch", "node", "cause", "action"}};
    for (const control::Incident& incident : incidents) {
      rows.push_back({time_text(incident.time_ms), std::to_string(incident.generation),
                      incident.node, incident.detail, incident.action});
    }
    print_text(format_table(rows));
  }
  return exit_ok;
}

struct LogsArguments {
  ControlOptions control;
  int64_t job = 0;
  int64_t lines = 0;
  bool follow = false;
};

// The last `lines` lines of `text`; 0: all.
std::string_view tail(std::string_view text, int64_t lines) {
  if (lines == 0) return text;
  size_t at = text.size();
  for (int64_t found = 0; at > 0; --at) {
    if (text[at - 1] == '\n' && at != text.size() && ++found == lines) break;
  }
  return text.substr(at);
}

int run_logs(const LogsArguments& arguments) {
  ControlSession session(arguments.control);
  FileSystem& files = posix_file_system();
  Job job = control::visible_job(session.caller(), arguments.job);
  const std::string path = output_path_of(session.folder(), job);
  if (arguments.control.json) {
    const std::string text = files.exists(path) ? read_file(files, path) : std::string();
    print_json({{"job", job.id},
                {"state", control::state_name(job.state)},
                {"path", path},
                {"text", printable(tail(text, arguments.lines))}});
    return exit_ok;
  }
  if (!files.exists(path) && !arguments.follow) {
    print_message(
        fmt::format("job {} has not started: it is {}\n", job.id, control::state_name(job.state)));
    return exit_ok;
  }
  if (arguments.follow) watch_signals();
  size_t printed = 0;
  bool first = true;
  while (true) {
    // Before the file is read: what it wrote before it ended is there.
    job = control::visible_job(session.caller(), arguments.job);
    const bool done = control::is_final(job.state) || job.state == control::JobState::completed;
    if (files.exists(path)) {
      const std::string text = read_file(files, path);
      if (first) printed = text.size() - tail(text, arguments.lines).size();
      first = false;
      print_text(std::string_view(text).substr(std::min(printed, text.size())));
      printed = text.size();
      flush_output();
    }
    if (!arguments.follow || done) return exit_ok;
    throw_if_interrupted();
    sleep_seconds(0.3);
  }
}

void add_job_number(CLI::App& command, int64_t& job) {
  command.add_option("JOB", job, "Its number")->required();
}

}  // namespace

void add_job_queries(CLI::App& app, Action& action) {
  const auto queue = std::make_shared<QueueArguments>();
  CLI::App* command = app.add_subcommand("queue", "Pending and running jobs");
  command->add_flag("--all", queue->all, "Include ended jobs; newest first");
  command->add_option("--project", queue->project, "Only those of this project");
  command->add_option("--user", queue->user, "Only those of this user");
  command->add_option("--most", queue->most, "Most rows to print")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_option("--skip", queue->skip, "Rows to skip")
      ->check(at_least(0))
      ->capture_default_str();
  add_control_options(*command, queue->control);
  command->footer("Example:\n  tutti queue --all");
  command->callback([queue, &action] { action = [queue] { return run_queue(*queue); }; });

  const auto show = std::make_shared<ShowArguments>();
  command = app.add_subcommand("show", "Show a job: state, launches, incidents, spend");
  add_job_number(*command, show->job);
  add_control_options(*command, show->control);
  command->footer("Example:\n  tutti show 7");
  command->callback([show, &action] { action = [show] { return run_show(*show); }; });

  const auto logs = std::make_shared<LogsArguments>();
  command = app.add_subcommand("logs", "Print the output of a job");
  add_job_number(*command, logs->job);
  command->add_flag("-f,--follow", logs->follow, "Follow until the job ends");
  command->add_option("--lines", logs->lines, "Only the last N lines; 0: all")
      ->check(at_least(0))
      ->capture_default_str();
  add_control_options(*command, logs->control);
  command->footer("Example:\n  tutti logs 7 -f");
  command->callback([logs, &action] { action = [logs] { return run_logs(*logs); }; });
}

}  // namespace tutti::cli
