// `tutti submit`: a recipe becomes a job.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/control/job_copies.h"
#include "tutti/cli/control/named_presets.h"
#include "tutti/cli/control/template.h"
#include "tutti/cli/data/label.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/train/start_check.h"
#include "tutti/cli/train/trusted_recipe.h"
#include "tutti/control/audit/digest.h"
#include "tutti/control/jobs/guarded_keys.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/jobs/requests.h"
#include "tutti/control/people/administration.h"
#include "tutti/launch/home.h"
#include "tutti/launch/prepared_data.h"
#include "tutti/object/file_system.h"
#include "tutti/spec/mesh/fit_mesh.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/step/teacher.h"

namespace tutti::cli {
namespace {

struct SubmitArguments {
  ControlOptions control;
  std::string recipe;
  std::vector<std::string> overrides;
  std::string project;
  std::string name;
  std::string run;
  std::string key;
  std::string deadline;
  std::string time_limit;
  std::string usd;
  std::string kwh;
  std::string node_hours;
  std::string system;
  std::string catalog;
  std::string as;
  std::string image = "tutti:latest";
  std::string claim = "data";
  int64_t nodes = 1;
  int64_t least_nodes = 0;  // 0: as many as `nodes`
  int64_t spares = 0;
  int64_t ranks_per_node = 0;  // 0: what the recipe's mesh means, else 1
  int64_t cores = 0;
  int64_t gpus = 0;
  int64_t copy_every = -1;  // steps between peer copies; -1: as copies_of_job says
  int64_t priority = 0;
  int64_t attempts = 4;
  bool no_preemption = false;
  bool no_start = false;
  bool dry_run = false;
  bool yes = false;
};

std::string stem_of(const std::string& recipe) {
  std::string stem(base_name(recipe));
  return stem.substr(0, stem.find_last_of('.'));
}

// The recipe as the job will read it: resolved, in the folder of the control plane, by its
// contents.
struct StoredRecipe {
  spec::Recipe recipe;
  std::string yaml;
  std::string path;
  std::string trusted_yaml;  // what its keys are without the submitter's word: an installed recipe
};
StoredRecipe resolve_recipe(const SubmitArguments& arguments, const control::ControlFolder& folder,
                            bool from_network) {
  FileSystem& files = posix_file_system();
  const std::string path = launch::find_recipe(files, arguments.recipe);
  const std::string text = read_file(files, path);
  if (from_network) require_named_presets(text, path, arguments.overrides);
  StoredRecipe stored;
  stored.recipe = spec::parse_recipe(text, path, arguments.overrides, launch::models_folder(files));
  train::resolve_teacher(object::file_system(), stored.recipe);
  launch::locate_source(files, stored.recipe, path);  // the job's recipe lies elsewhere
  spec::check_executable(stored.recipe, stored.recipe.parallel.world());
  if (stored.recipe.threads == 0 && arguments.cores > 0) {
    const int64_t ranks = stored.recipe.parallel.world();
    stored.recipe.threads = static_cast<int>(std::max<int64_t>(1, arguments.cores / ranks));
  }
  stored.trusted_yaml = trusted_recipe(files, path);
  stored.yaml = spec::to_yaml(stored.recipe);
  stored.path = join_path(folder.recipes(), control::sha256_hex(stored.yaml) + ".yaml");
  return stored;
}

// An earlier version may have stored the recipe of the job with this key, with fewer keys than
// recipes have now: where it means the same today, the request is the same.
void find_stored_before(const control::Caller& caller, const std::string& key,
                        StoredRecipe& stored) {
  const auto job = control::find_job_by_key(caller.database, caller.user, key);
  const std::string path = job ? job->request.command.at(1) : "";
  FileSystem& files = posix_file_system();
  if (path.empty() || path == stored.path || !files.exists(path)) return;
  const spec::Recipe recipe = spec::parse_recipe(read_file(files, path), path, {}, "");
  if (spec::to_yaml(recipe) == stored.yaml) stored.path = path;
}

// Others may be storing the same one.
void store(const StoredRecipe& stored) {
  FileSystem& files = posix_file_system();
  const std::string own = fmt::format("{}.{}", stored.path, control::random_hex(4));
  write_file_atomic(files, own, stored.yaml);
  files.rename(own, stored.path);
  files.sync_directory(parent_path(stored.path));
}

// Of `tutti train` on several nodes.
std::vector<std::string> words_over_nodes(const SubmitArguments& arguments,
                                          const spec::Recipe& recipe, const control::Site& site) {
  const int64_t world = recipe.parallel.world();
  const int64_t per_node = arguments.ranks_per_node > 0   ? arguments.ranks_per_node
                           : world % arguments.nodes == 0 ? world / arguments.nodes
                                                          : 1;
  const int64_t least = arguments.least_nodes > 0 ? arguments.least_nodes : arguments.nodes;
  if (least > arguments.nodes) {
    fail(ErrorKind::usage, "--min-nodes {}: expected at most --nodes {}", least, arguments.nodes);
  }
  const int64_t ranks = arguments.nodes * per_node;
  if (!spec::fits(recipe, ranks)) {
    fail(ErrorKind::usage,
         "--nodes {} with {} ranks on each: the recipe has no layout of {} ranks; see "
         "--ranks-per-node",
         arguments.nodes, per_node, ranks);
  }
  std::vector<std::string> words = {"--nproc",          std::to_string(ranks),
                                    "--ranks-per-node", std::to_string(per_node),
                                    "--min-nproc",      std::to_string(least * per_node)};
  if (!site.node_check.empty()) words.insert(words.end(), {"--node-check", site.node_check});
  return words;
}

control::JobRequest request_of(const SubmitArguments& arguments, const StoredRecipe& stored,
                               const control::Site& site) {
  const spec::RunConfig& run = stored.recipe.run;
  control::JobRequest request;
  request.project = !arguments.project.empty() ? arguments.project
                    : !run.project.empty()     ? run.project
                                               : std::string(control::kDefaultProject);
  request.name = !arguments.name.empty() ? arguments.name
                 : !run.name.empty()     ? run.name
                                         : stem_of(arguments.recipe);
  // The same submission made twice means the same run; others made in one second do not.
  const std::string mark =
      !arguments.key.empty()
          ? arguments.key
          : fmt::format("{}-{}", format_utc_compact(wall_seconds()), control::random_hex(2));
  request.run_folder = absolute(!arguments.run.empty() ? arguments.run
                                : !run.name.empty()    ? join_path("runs", run.name)
                                                    : join_path("runs", request.name + "-" + mark));
  request.command = {"train", stored.path, "--run", request.run_folder};
  if (site.slurm) {
    const std::vector<std::string> words = words_over_nodes(arguments, stored.recipe, site);
    request.command.insert(request.command.end(), words.begin(), words.end());
  } else if (const int64_t ranks = stored.recipe.parallel.world(); ranks > 1) {
    request.command.insert(request.command.end(), {"--nproc", std::to_string(ranks)});
  }
  const int64_t copies = copies_of_job(arguments.copy_every, arguments.nodes, stored.recipe);
  if (copies > 0) {
    request.command.insert(request.command.end(), {"--peer-copies", std::to_string(copies)});
  }
  request.folder = current_folder();
  control::set_label(request, find_label(object::file_system(), stored.recipe, request.run_folder,
                                         request.folder));
  request.guarded_keys = control::guarded_changes(stored.yaml, stored.trusted_yaml);
  request.nodes = arguments.nodes + arguments.spares;
  request.cores = arguments.cores;
  request.gpus = arguments.gpus;
  request.priority = arguments.priority;
  request.max_attempts = arguments.attempts;
  request.preemptible = !arguments.no_preemption;
  request.deadline_ms = parse_deadline(arguments.deadline);
  if (!arguments.time_limit.empty()) {
    request.time_limit_ms = parse_milliseconds(arguments.time_limit, "--time-limit");
  }
  const auto limit = [](const std::string& text, const char* key) -> std::optional<int64_t> {
    return text.empty() ? std::nullopt : std::optional(control::parse_micro(text, key));
  };
  request.budget.micro_usd = limit(arguments.usd, "--usd");
  request.budget.micro_kwh = limit(arguments.kwh, "--kwh");
  request.budget.node_microhours = limit(arguments.node_hours, "--node-hours");
  request.client_key = arguments.key;
  return request;
}

// What the start of the job would refuse; null: nothing.
std::optional<Error> start_problem(const StoredRecipe& stored, const control::JobRequest& request) {
  try {
    check_start(object::file_system(), stored.recipe, request.run_folder);
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

bool confirmed() {
  if (::isatty(STDIN_FILENO) == 0) {
    fail(ErrorKind::usage,
         "--yes: standard input is not a terminal; give --yes to submit without confirmation");
  }
  print_message("Submit? [y/N] ");
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// Options that a template cannot express. --yes and --no-start hold anyway: nothing is asked,
// nothing starts.
constexpr std::array kNotInTemplates = {
    "SETTING",         "--project",  "--key",      "--spares",
    "--min-nodes",     "--priority", "--deadline", "--ranks-per-node",
    "--time-limit",    "--usd",      "--kwh",      "--node-hours",
    "--no-preemption", "--system",   "--catalog",  "--dry-run"};

void check_template_options(const CLI::App& command, const std::string& as) {
  for (const char* name : kNotInTemplates) {
    if (command.get_option(name)->count() == 0) continue;
    fail(ErrorKind::usage, "{}: --as {} cannot express it; drop it, or submit without --as", name,
         as);
  }
}

// For another system to start: printed, not submitted.
int print_template(const SubmitArguments& arguments) {
  FileSystem& files = posix_file_system();
  const std::string path = launch::find_recipe(files, arguments.recipe);
  const spec::Recipe recipe = spec::parse_recipe(read_file(files, path), path, arguments.overrides,
                                                 launch::models_folder(files));
  TemplateJob job;
  job.name = !arguments.name.empty()    ? arguments.name
             : !recipe.run.name.empty() ? recipe.run.name
                                        : stem_of(arguments.recipe);
  job.recipe = "/data/" + std::string(base_name(path));
  job.run_folder = arguments.run.empty() ? "/data/runs/" + job.name : arguments.run;
  job.image = arguments.image;
  job.claim = arguments.claim;
  job.pods = arguments.nodes > 1 ? arguments.nodes : recipe.parallel.world();
  job.cores = arguments.cores;
  job.gpus = arguments.gpus;
  job.max_restarts = arguments.attempts;
  if (!spec::fits(recipe, job.pods)) {
    fail(ErrorKind::usage, "--nodes {}: the recipe has no layout of {} ranks", arguments.nodes,
         job.pods);
  }
  job.copy_every = arguments.as == "jobset" ? copies_of_job_set(arguments.copy_every)
                                            : copies_of_job(arguments.copy_every, job.pods, recipe);
  const std::string text = arguments.as == "jobset" ? jobset_yaml(job) : pytorchjob_yaml(job);
  if (arguments.control.json) {
    print_json({{"kind", arguments.as}, {"yaml", text}});
  } else {
    print_text(text);
  }
  return exit_ok;
}

int run_submit(const SubmitArguments& arguments) {
  if (!arguments.as.empty()) return print_template(arguments);
  ControlSession session(arguments.control);
  StoredRecipe stored =
      resolve_recipe(arguments, session.folder(), !session.caller().client.empty());
  if (!arguments.key.empty()) find_stored_before(session.caller(), arguments.key, stored);
  const auto missing = missing_data(object::file_system(), stored.recipe);
  if (missing && arguments.dry_run) fail(ErrorKind::not_found, "{}", *missing);
  control::JobRequest request = request_of(arguments, stored, session.site());
  request.forecast =
      forecast_job(session, stored.yaml, request, arguments.system, arguments.catalog);
  control::Submission submission = control::submit(session.caller(), request, true);
  // Only now: what the caller may not have is refused before its files are spoken of.
  const auto problem = submission.duplicate ? std::nullopt : start_problem(stored, request);
  if (problem && arguments.dry_run) throw Error(*problem);
  const control::Forecast& forecast = request.forecast;
  print_message(format_pairs(
      {{"job", fmt::format("{} of {} in project {}", request.name, session.caller().user,
                           request.project)},
       {"predicted", fmt::format("{}, {}, {} (estimated: {})", duration_text(forecast.milliseconds),
                                 money_text(forecast.micro_usd), energy_text(forecast.micro_kwh),
                                 forecast.basis)},
       {"peer copies", copies_text(copies_of_words(request.command))},
       {"run folder", request.run_folder}}));
  // It may be made while the job waits.
  if (missing) submission.warnings.push_back(*missing + "; without it the job will fail");
  if (problem) {
    submission.warnings.push_back(
        fmt::format("{}; as things are the job will fail", problem->what()));
  }
  const std::vector<std::string> warnings = submission.warnings;
  for (const std::string& warning : warnings) {
    print_message(fmt::format("warning: {}\n", warning));
  }
  if (!arguments.dry_run && !submission.duplicate) {
    if (!arguments.yes && !confirmed()) {
      print_message("not submitted\n");
      return exit_failed;
    }
    store(stored);
    submission = control::submit(session.caller(), request, false);
  }
  const bool started =
      !arguments.dry_run && !arguments.no_start && ensure_controller(session.folder());
  if (arguments.control.json) {
    Json json =
        arguments.dry_run && !submission.duplicate ? Json::object() : job_json(submission.job);
    json["dry_run"] = arguments.dry_run;
    json["duplicate"] = submission.duplicate;
    json["forecast"] = forecast_json(forecast);
    json["warnings"] = warnings;
    json["controller_started"] = started;
    print_json(json);
  } else if (submission.duplicate) {
    print_text(fmt::format("job {} (submitted before)\n", submission.job.id));
  } else if (!arguments.dry_run) {
    print_text(fmt::format("job {}\n", submission.job.id));
  }
  return exit_ok;
}

void add_limits(CLI::App& command, SubmitArguments& arguments) {
  command.add_option("--nodes", arguments.nodes, "Nodes")
      ->check(at_least(1))
      ->capture_default_str();
  command.add_option("--spares", arguments.spares, "Spare nodes, which replace failed ones")
      ->check(at_least(0))
      ->capture_default_str();
  command
      .add_option("--min-nodes", arguments.least_nodes,
                  "Fewest nodes to continue with when no spare is left; default: --nodes")
      ->check(at_least(0));
  command
      .add_option("--ranks-per-node", arguments.ranks_per_node,
                  "Ranks per node under Slurm; default fits the recipe's mesh")
      ->check(at_least(0));
  command.add_option("--cores", arguments.cores, "Cores of each node; 0: all of them")
      ->check(at_least(0))
      ->capture_default_str();
  command.add_option("--gpus", arguments.gpus, "GPUs of each node")
      ->check(at_least(0))
      ->capture_default_str();
  command
      .add_option("--peer-copies", arguments.copy_every,
                  "Steps between in-memory checkpoints on two nodes; 0: none; default: 1 on "
                  "several nodes, on GPUs 0")
      ->check(at_least(0))
      ->type_name("STEPS");
  command
      .add_option("--priority", arguments.priority,
                  "Priority in the queue; above 0 needs the role of an operator")
      ->capture_default_str();
  command
      .add_option("--deadline", arguments.deadline,
                  "Time by which it must end: 2026-02-01T12:00:00Z, or from now, such as 8h")
      ->type_name("TIME");
  command
      .add_option("--time-limit", arguments.time_limit, "Time limit of one attempt, such as 90min")
      ->type_name("TIME");
  command.add_option("--attempts", arguments.attempts, "Consecutive failures before the job fails")
      ->check(at_least(1))
      ->capture_default_str();
  command.add_option("--usd", arguments.usd, "Budget of the job in USD")->type_name("X");
  command.add_option("--kwh", arguments.kwh, "Budget of the job in kWh")->type_name("X");
  command.add_option("--node-hours", arguments.node_hours, "Budget of the job in node-hours")
      ->type_name("X");
  command.add_flag("--no-preemption", arguments.no_preemption, "Never preempt this job");
}

}  // namespace

void add_submit(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<SubmitArguments>();
  CLI::App* command = app.add_subcommand("submit", "Queue a recipe as a job");
  command->add_option("RECIPE", arguments->recipe, "Recipe file or name")->required();
  command->add_option("SETTING", arguments->overrides, "KEY=VALUE: override a key of the recipe");
  command->add_option("--project", arguments->project,
                      "Project to charge; default run.project of the recipe, else 'default'");
  command->add_option("--name", arguments->name, "Name of the job; default the recipe's");
  command->add_option("--run", arguments->run, "Run folder; default runs/NAME-TIME-XXXX")
      ->type_name("FOLDER");
  command->add_option("--key", arguments->key,
                      "Idempotency key: submitting it again returns the same job");
  add_limits(*command, *arguments);
  command->add_option("--system", arguments->system,
                      "System of the catalog to predict for; default this machine, measured");
  command->add_option("--catalog", arguments->catalog, "Folder of further catalog entries")
      ->type_name("FOLDER");
  command
      ->add_option("--as", arguments->as,
                   "Print a manifest instead: jobset (Kubernetes) or pytorchjob (Kubeflow), one "
                   "pod per rank")
      ->check(CLI::IsMember({"jobset", "pytorchjob"}));
  command->add_option("--image", arguments->image, "Container for --as")->capture_default_str();
  command->add_option("--claim", arguments->claim, "Volume with recipe and data for --as, at /data")
      ->capture_default_str();
  command->add_flag("--dry-run", arguments->dry_run, "Check and predict without submitting");
  command->add_flag("--yes", arguments->yes, "Do not ask");
  command->add_flag("--no-start", arguments->no_start, "Do not start a controller");
  add_control_options(*command, arguments->control);
  command->footer(
      "Prints predicted time, cost and energy, and asks for confirmation unless --yes. Starts a\n"
      "controller that runs until idle, unless one is running.\n\n"
      "Examples:\n"
      "  tutti submit demo --dry-run\n"
      "  tutti submit demo train.steps=500 --yes --time-limit 2h --usd 5");
  command->callback([arguments, command, &action] {
    action = [arguments, command] {
      if (!arguments->as.empty()) check_template_options(*command, arguments->as);
      return run_submit(*arguments);
    };
  });
}

}  // namespace tutti::cli
