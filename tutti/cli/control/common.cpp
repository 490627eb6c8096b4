#include "tutti/cli/control/common.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/catalog/catalog.h"
#include "tutti/cli/control/job_copies.h"
#include "tutti/cli/plan/assumed_site.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/audit/audit.h"
#include "tutti/control/controller/cluster_nodes.h"
#include "tutti/control/launches/launch_folder.h"
#include "tutti/control/ledger/account_policy.h"
#include "tutti/control/people/administration.h"
#include "tutti/control/slurm/launcher.h"
#include "tutti/launch/home.h"

namespace tutti::cli {
namespace {

// Processor, its share of memory, board and power supply under load, where not measured.
constexpr int64_t kAssumedMilliwattsPerCore = 10'000;

std::string account() {
  const passwd* entry = ::getpwuid(::geteuid());
  return entry == nullptr ? fmt::format("uid-{}", ::geteuid()) : std::string(entry->pw_name);
}

int64_t micro(double value) { return std::llround(value * static_cast<double>(control::kMicro)); }

control::Site first_site(const Machine& machine) {
  control::Site site;
  site.milliwatts_per_node = machine.cores * kAssumedMilliwattsPerCore;
  FileSystem& files = posix_file_system();
  const catalog::Catalog catalog = catalog::load_catalog(files, {launch::catalog_folder(files)});
  const catalog::Site& average = catalog.site(kAssumedSite);
  site.pue = average.pue;
  site.micro_kg_per_kwh = micro(average.kg_co2e_per_kwh);
  site.micro_liters_per_kwh = micro(average.liters_per_kwh);
  return site;
}

// The value of a variable that is of this process alone: neither what descends from it has it, such
// as a controller or a training, nor /proc/PID/environ, which shows the bytes that it began with.
std::string take_variable(const char* name) {
  char* value = std::getenv(name);
  if (value == nullptr) return {};
  std::string text = value;
  ::explicit_bzero(value, text.size());
  ::unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text;
}

}  // namespace

control::Caller caller_in(control::Database& database) {
  const std::string token = take_variable("TUTTI_TOKEN");
  const std::string client = take_variable("TUTTI_CLIENT");
  const int64_t now_ms = wall_milliseconds();
  if (token.empty()) return {database, account(), now_ms};
  const auto user = control::user_of_token(database, token, now_ms);
  if (!user) {
    fail(ErrorKind::permission,
         "TUTTI_TOKEN: no valid token; it may have expired or been withdrawn");
  }
  return {database, *user, now_ms, client, control::id_of_token(token)};
}

void add_control_options(CLI::App& command, ControlOptions& options) {
  command
      .add_option("--control", options.folder,
                  "Folder of the control plane; default $TUTTI_CONTROL, else your data folder")
      ->type_name("FOLDER");
  add_json_option(command, options.json);
}

control::ControlFolder folder_of(const ControlOptions& options) {
  if (!options.folder.empty()) return {absolute(options.folder)};
  if (const char* folder = std::getenv("TUTTI_CONTROL"); folder != nullptr && *folder != '\0') {
    return {absolute(folder)};
  }
  return {absolute(join_path(launch::user_data_folder(), "control"))};
}

bool exists(const control::ControlFolder& folder) {
  return posix_file_system().exists(folder.database());
}

ControlSession::ControlSession(const ControlOptions& options, bool serves_jobs)
    : folder_(folder_of(options)) {
  database_ = control::open_control(posix_file_system(), folder_);
  caller_.emplace(caller_in(*database_));
  if (!has_token() && !serves_jobs && control::demands_token(*database_, account())) {
    fail(ErrorKind::permission,
         "the account '{}' may do nothing here without a token: put yours into TUTTI_TOKEN; an "
         "admin makes one: tutti admin token --user NAME",
         account());
  }
  if (control::all_users(*database_).empty()) {
    const Machine machine = describe_machine();
    const control::Node node{
        machine.host.empty() ? "localhost" : machine.host, machine.cores, 0, true, false, ""};
    control::create_control_plane(caller(), node, first_site(machine));
  }
}

ControlSession::~ControlSession() {
  try {
    control::export_audit(*database_, posix_file_system(), folder_.audit());
  } catch (const Error& error) {
    print_message(fmt::format("tutti: warning: {}\n", error.what()));
  }
}

control::Caller ControlSession::caller() {
  control::Caller caller = *caller_;
  caller.now_ms = wall_milliseconds();
  return caller;
}

control::Site ControlSession::site() { return control::read_site(*database_); }

std::string current_folder() {
  char* folder = ::getcwd(nullptr, 0);
  std::string path = folder == nullptr ? "." : folder;
  std::free(folder);
  return path;
}

std::string absolute(const std::string& path) {
  return !path.empty() && path.front() == '/' ? path : join_path(current_folder(), path);
}

std::string output_path_of(const control::ControlFolder& folder, const control::Job& job) {
  return control::LaunchFolder(posix_file_system(),
                               control::job_folder(folder.jobs(), job.id, job.submitted_ms))
      .output_path();
}

int64_t parse_milliseconds(const std::string& text, const char* key) {
  constexpr double kMostSeconds = 100 * 365.25 * 86'400;
  const double seconds = parse_seconds(text, key);
  // Beside it 0 stands for none.
  if (!(seconds >= 1e-3)) {
    fail(ErrorKind::usage, "{}: '{}' is not a time above 0", key, text);
  }
  if (!(seconds <= kMostSeconds)) {
    fail(ErrorKind::usage, "{}: '{}' is more than a hundred years", key, text);
  }
  return std::llround(seconds * 1000);
}

int64_t parse_deadline(const std::string& text) {
  if (text.empty()) return 0;
  std::tm parts{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end != nullptr && *end == '\0') {
    // timegm takes the 31st of February for the third of March.
    const std::time_t seconds = ::timegm(&parts);
    if (format_utc(static_cast<double>(seconds)) != text) {
      fail(ErrorKind::usage, "--deadline: '{}' is not a calendar date", text);
    }
    return int64_t{seconds} * 1000;
  }
  return wall_milliseconds() + parse_milliseconds(text, "--deadline");
}

bool controller_runs(const control::ControlFolder& folder) {
  return !ProcessLock(folder.lock()).held();
}

bool ensure_controller(const control::ControlFolder& folder) {
  if (controller_runs(folder)) return false;
  start_detached(kThisExecutable,
                 {"tutti", "controller", "run", "--until-idle", "--control", folder.path},
                 folder.log());
  return true;
}

bool follow_slurm(ControlSession& session) {
  const control::Site site = session.site();
  const auto nodes = control::slurm_nodes({site.slurm_partition, site.slurm_account});
  if (!nodes) return false;
  control::follow_cluster(session.database(), *nodes, wall_milliseconds());
  return true;
}

std::string time_text(int64_t wall_ms) {
  return wall_ms == 0 ? "-" : format_utc(static_cast<double>(wall_ms) / 1000);
}

std::string duration_text(int64_t milliseconds) {
  return milliseconds == 0 ? "-" : format_seconds(static_cast<double>(milliseconds) / 1000);
}

std::string site_text(const control::Site& site) {
  std::string scheduler = site.slurm ? "Slurm" : "this machine";
  if (!site.slurm_partition.empty()) scheduler += ", partition " + site.slurm_partition;
  if (!site.slurm_account.empty()) scheduler += ", account " + site.slurm_account;
  const double watts = static_cast<double>(site.milliwatts_per_node) / 1000;
  const control::SitePolicy& policy = site.policy;
  const std::string unlabelled =
      policy.unlabelled ? control::data_class_name(*policy.unlabelled)
      : policy.declares_classes
          ? std::string(control::data_class_name(policy.highest)) + ", the strictest"
          : "what the recipe says";
  return format_pairs(
      {{"site", fmt::format("{} in region {}", site.policy.name, site.policy.region)},
       {"jobs go to", scheduler},
       {"node check", site.node_check.empty() ? "none" : site.node_check},
       {"data up to", control::data_class_name(site.policy.highest)},
       {"data without class", unlabelled},
       {"recipe keys", site.allowed_keys.empty()
                           ? "guarded ones for operators only"
                           : "for everybody: " + join(site.allowed_keys, ", ")},
       {"node-hour", control::format_micro(site.micro_usd_per_node_hour) + " USD"},
       {"node under load", fmt::format("{} W, estimated", watts)},
       {"PUE", fmt::format("{}", site.pue)},
       {"grid", control::format_micro(site.micro_kg_per_kwh) + " kg CO2e per kWh"},
       {"water", control::format_micro(site.micro_liters_per_kwh) + " litres per kWh"}});
}

std::string money_text(int64_t micro_usd) {
  return fmt::format("{:.2f} USD", static_cast<double>(micro_usd) / 1e6);
}

std::string energy_text(int64_t micro_kwh) {
  return fmt::format("{:.4g} kWh", static_cast<double>(micro_kwh) / 1e6);
}

Json job_json(const control::Job& job) {
  const control::JobRequest& request = job.request;
  Json json = {
      {"job", job.id},
      {"name", request.name},
      {"user", job.user},
      {"project", request.project},
      {"state", control::state_name(job.state)},
      {"reason", control::reason_name(job.reason)},
      {"detail", job.detail},
      {"priority", job.priority},
      {"held", job.held},
      {"nodes", request.nodes},
      {"cores", request.cores},
      {"submitted", time_text(job.submitted_ms)},
      {"started", job.started_ms == 0 ? Json() : Json(time_text(job.started_ms))},
      {"ended", job.ended_ms == 0 ? Json() : Json(time_text(job.ended_ms))},
      {"generation", job.generation},
      {"requeues", job.requeues},
      {"run_seconds",
       static_cast<double>(job.run_ms + (control::owns_nodes(job.state) ? job.elapsed_ms : 0)) /
           1000},
      {"exit_code", job.exit_code ? Json(*job.exit_code) : Json()},
      {"run", request.run_folder},
      {"peer_copies", copies_of_words(request.command)},
      {"command", request.command}};
  if (request.deployment) json["deployment"] = control::to_json(*request.deployment);
  if (request.deadline_ms != 0) json["deadline"] = time_text(request.deadline_ms);
  if (request.time_limit_ms != 0) json["time_limit_seconds"] = request.time_limit_ms / 1000;
  return json;
}

Json forecast_json(const control::Forecast& forecast) {
  return {{"seconds", static_cast<double>(forecast.milliseconds) / 1000},
          {"usd", static_cast<double>(forecast.micro_usd) / 1e6},
          {"kwh", static_cast<double>(forecast.micro_kwh) / 1e6},
          {"basis", forecast.basis}};
}

}  // namespace tutti::cli
