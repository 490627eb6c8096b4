// `tutti deploy`: a checkpoint of a run becomes a job that serves it.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/http_client.h"
#include "tutti/base/text.h"
#include "tutti/cli/checkpoint/subject.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/control/deployment_keys.h"
#include "tutti/cli/control/deployments.h"
#include "tutti/cli/data/label.h"
#include "tutti/cli/endpoint/api_keys.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/jobs/deployment_rule.h"
#include "tutti/control/jobs/requests.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/people/visible.h"
#include "tutti/endpoint/model.h"
#include "tutti/object/file_system.h"

namespace tutti::cli {
namespace {

constexpr int64_t kFirstPort = 8000;
constexpr double kPortSeconds = 1;  // to see that a port is taken

struct DeployArguments {
  ControlOptions control;
  std::string run;
  std::string name;
  std::string project;
  std::string address = "127.0.0.1";
  int64_t port = 0;  // 0: the first that is free
  bool plain_http = false;
  std::string weights = "as_stored";
  std::string cache;
  int64_t max_sequences = 0;  // 0: the default of `tutti endpoint`
  int64_t max_waiting = -1;   // likewise
  int64_t cores = 0;
  int64_t attempts = 10;
  int64_t priority = 0;
  std::string usd;
  TokenPriceOptions prices;
  std::string start_limit = "10min";
  std::string health_every = "10s";
  int64_t health_failures = 3;
  bool dry_run = false;
  bool no_start = false;
};

// Whether something on this machine listens there.
bool is_taken(int64_t port) {
  HttpAsk ask;
  ask.path = "/health";
  ask.patience_seconds = kPortSeconds;
  try {
    http_ask({"127.0.0.1", static_cast<int>(port), ""}, ask);
    return true;
  } catch (const Error& error) {
    return error.kind() == ErrorKind::corrupt;  // it listens, and speaks something else
  }
}

int64_t choose_port(ControlSession& session) {
  control::Database& database = session.database();
  int64_t port = control::unused_port(database, kFirstPort);
  const bool is_here = !session.site().slurm;
  while (is_here && is_taken(port)) port = control::unused_port(database, port + 1);
  return port;
}

std::vector<std::string> words_of(const DeployArguments& arguments,
                                  const control::Deployment& deployment, const std::string& project,
                                  const control::ControlFolder& plane) {
  std::vector<std::string> words = {"endpoint",
                                    deployment.name + "=" + deployment.checkpoint,
                                    "--manifest-sha256",
                                    deployment.manifest_sha256,
                                    "--address",
                                    deployment.address,
                                    "--port",
                                    std::to_string(deployment.port),
                                    "--weights",
                                    arguments.weights};
  const auto add = [&](const char* option, const std::string& value) {
    words.insert(words.end(), {option, value});
  };
  const std::string folder = deployment_folder(plane, project, deployment.name);
  add("--api-key-file", key_file_of(folder));
  add("--usage-file", use_file_of(folder));
  if (!arguments.prices.prompt.empty()) {
    add("--usd-per-million-prompt-tokens", arguments.prices.prompt);
  }
  if (!arguments.prices.answer.empty()) {
    add("--usd-per-million-answer-tokens", arguments.prices.answer);
  }
  if (arguments.plain_http) words.emplace_back("--plain-http");
  if (!arguments.cache.empty()) add("--cache", arguments.cache);
  if (arguments.max_sequences > 0) add("--max-sequences", std::to_string(arguments.max_sequences));
  if (arguments.max_waiting >= 0) add("--max-waiting", std::to_string(arguments.max_waiting));
  if (arguments.cores > 0) add("--threads", std::to_string(arguments.cores));
  return words;
}

// A run of a job may be deployed by those who may see the job.
void check_visible(const control::Caller& caller, const CheckpointSubject& subject) {
  const auto project = control::project_of_run(caller.database, subject.run);
  if (!project || control::may(caller, control::Action::view, *project)) return;
  fail(ErrorKind::permission, "'{}' is the run of a job that {} may not see", subject.run,
       caller.user);
}

control::JobRequest request_of(const DeployArguments& arguments, ControlSession& session) {
  const control::Caller caller = session.caller();
  const CheckpointSubject subject = find_subject(arguments.run);
  check_visible(caller, subject);
  control::Deployment deployment;
  deployment.name = arguments.name;
  deployment.checkpoint = subject.path;
  deployment.manifest_sha256 = subject.manifest_sha256;
  deployment.step = subject.manifest.state.step;
  deployment.address = arguments.address;
  deployment.port = arguments.port > 0 ? arguments.port : choose_port(session);
  deployment.health = {parse_milliseconds(arguments.start_limit, "--start-limit"),
                       parse_milliseconds(arguments.health_every, "--health-every"),
                       arguments.health_failures};
  if (!control::listens_on_loopback(deployment) && !arguments.plain_http) {
    fail(ErrorKind::usage,
         "--address {}: keys and texts would cross the network unencrypted; put a proxy with TLS "
         "before 127.0.0.1, or say --plain-http",
         arguments.address);
  }
  control::JobRequest request;
  request.name = arguments.name;
  request.project = arguments.project.empty() ? project_of(caller, subject) : arguments.project;
  parse_token_prices(arguments.prices);  // refused here rather than by the job
  request.command = words_of(arguments, deployment, request.project, session.folder());
  request.folder = current_folder();
  control::set_label(request, find_origins(object::file_system(), subject.path, {}).label);
  request.cores = arguments.cores;
  request.priority = arguments.priority;
  request.max_attempts = arguments.attempts;
  request.preemptible = false;
  if (!arguments.usd.empty()) {
    request.budget.micro_usd = control::parse_micro(arguments.usd, "--usd");
  }
  request.deployment = deployment;
  return request;
}

int64_t micro_usd_per_hour(ControlSession& session, const control::JobRequest& request) {
  const std::vector<control::Node> nodes = control::all_nodes(session.database());
  if (nodes.empty()) return 0;
  const int64_t cores = request.cores > 0 ? request.cores : nodes.front().cores;
  return control::rate_of(session.site(), nodes, {{0, 0, nodes.front().name, cores, 0}})
      .micro_usd_per_hour;
}

int run_deploy(const DeployArguments& arguments) {
  ControlSession session(arguments.control);
  const control::JobRequest request = request_of(arguments, session);
  const control::Deployment& deployment = *request.deployment;
  control::Submission submission = control::submit(session.caller(), request, true);
  check_kept_keys(deployment_folder(session.folder(), request.project, deployment.name), request);
  if (!arguments.dry_run) {
    make_key_file(deployment_folder(session.folder(), request.project, deployment.name));
    submission = control::submit(session.caller(), request, false);
  }
  const int64_t price = micro_usd_per_hour(session, request);
  const bool started =
      !arguments.dry_run && !arguments.no_start && ensure_controller(session.folder());
  const bool is_here = !session.site().slurm;
  const std::string url =
      is_here
          ? fmt::format("http://{}:{}/", deployment.address, deployment.port)
          : fmt::format("port {} of {}its node, which tutti deployment list names", deployment.port,
                        control::listens_on_loopback(deployment) ? "loopback on " : "");
  if (arguments.control.json) {
    Json json = arguments.dry_run ? Json::object() : job_json(submission.job);
    json["dry_run"] = arguments.dry_run;
    json["deployment"] = control::to_json(deployment);
    json["url"] = url;
    json["usd_per_hour"] = static_cast<double>(price) / 1e6;
    json["controller_started"] = started;
    print_json(json);
    return exit_ok;
  }
  print_message(format_pairs(
      {{"deployment", fmt::format("{} of {} in project {}", deployment.name, session.caller().user,
                                  request.project)},
       {"checkpoint", fmt::format("{}, step {}", deployment.checkpoint, deployment.step)},
       {"price", money_text(price) + " per hour"},
       {"will listen at", url}}));
  if (!arguments.dry_run) {
    print_text(fmt::format("job {}\n", submission.job.id));
    print_message(fmt::format("clients need an API key: tutti deployment keys {} --add NAME\n",
                              deployment.name));
  }
  return exit_ok;
}

void add_serving_options(CLI::App& command, DeployArguments& arguments) {
  command
      .add_option("--address", arguments.address,
                  "Address to listen on; other than loopback only by operators in all projects")
      ->capture_default_str();
  command.add_option("--port", arguments.port, "Port; default the first free one from 8000 on")
      ->check(between(1, 65535));
  command.add_flag("--plain-http", arguments.plain_http,
                   "Allow unencrypted HTTP on addresses other than loopback");
  command
      .add_option("--weights", arguments.weights,
                  "Type of the weights in memory: " + join(endpoint::weight_type_names(), ", "))
      ->capture_default_str()
      ->check(CLI::IsMember(endpoint::weight_type_names()));
  command.add_option("--cache", arguments.cache, "Memory for keys and values, such as 2GiB")
      ->type_name("BYTES");
  command.add_option("--max-sequences", arguments.max_sequences, "Requests that run side by side")
      ->check(at_least(1));
  command
      .add_option("--max-waiting", arguments.max_waiting,
                  "Requests that wait; beyond it the answer is 429")
      ->check(at_least(0));
}

void add_job_options(CLI::App& command, DeployArguments& arguments) {
  command.add_option("--cores", arguments.cores, "Cores, and threads of the model; 0: all")
      ->check(at_least(0))
      ->capture_default_str();
  command
      .add_option("--attempts", arguments.attempts,
                  "Failures in a row, each within ten minutes, before it is given up")
      ->check(at_least(1))
      ->capture_default_str();
  command
      .add_option("--priority", arguments.priority,
                  "Priority in the queue; above 0 needs the role of an operator")
      ->capture_default_str();
  command.add_option("--usd", arguments.usd, "Budget of the job in USD; it is stopped there")
      ->type_name("X");
  add_token_price_options(command, arguments.prices);
  command
      .add_option("--start-limit", arguments.start_limit,
                  "Time from its start to its first good answer of /health")
      ->capture_default_str()
      ->type_name("TIME");
  command.add_option("--health-every", arguments.health_every, "Time between two health checks")
      ->capture_default_str()
      ->type_name("TIME");
  command
      .add_option("--health-failures", arguments.health_failures,
                  "Failed checks in a row after which it is killed and started again")
      ->check(at_least(1))
      ->capture_default_str();
}

}  // namespace

void add_deploy(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<DeployArguments>();
  CLI::App* command =
      app.add_subcommand("deploy", "Serve a checkpoint as a job until it is stopped");
  command->add_option("RUN", arguments->run, "Run folder (its newest checkpoint), or a checkpoint")
      ->required();
  command
      ->add_option("--name", arguments->name,
                   "Of the deployment, and of the model that clients ask for")
      ->required();
  command->add_option("--project", arguments->project,
                      "Project to charge; default that of the run's job or recipe");
  add_serving_options(*command, *arguments);
  add_job_options(*command, *arguments);
  command->add_flag("--dry-run", arguments->dry_run, "Check without deploying");
  command->add_flag("--no-start", arguments->no_start, "Do not start a controller");
  add_control_options(*command, arguments->control);
  command->footer(
      "Needs the role of a deployer in the project; where the project says so, an approved\n"
      "checkpoint. It runs `tutti endpoint`, is checked by /health and started again when it ends\n"
      "or does not answer. Clients need an API key: tutti deployment keys NAME --add CLIENT.\n\n"
      "Example:\n  tutti deploy runs/mine --name chat");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_deploy(*arguments); }; });
  add_deployment(app, action);
}

}  // namespace tutti::cli
