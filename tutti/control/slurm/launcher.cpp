#include "tutti/control/slurm/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "tutti/base/clock.h"
#include "tutti/base/command.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/control/launches/fault_files.h"

namespace tutti::control {
namespace {

constexpr double kToolSeconds = 20;
constexpr double kAgeSeconds = 0.4;  // of an answer that is asked for by every job of a round
constexpr double kSettleSeconds = 5;
constexpr double kGhostSeconds = 10;  // between the last word of a launch and the end of its job
constexpr int64_t kMinuteMs = 60'000;
constexpr int64_t kSignalSeconds = 120;  // before Slurm's limit; Slurm may be a minute early

bool is_live(const std::string& state) {
  for (const char* ended : {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
                            "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED"}) {
    if (state == ended) return false;
  }
  return true;
}

Stop stop_of(const std::string& state) {
  if (state == "PREEMPTED") return Stop::preempt;
  if (state == "CANCELLED") return Stop::cancel;
  if (state == "TIMEOUT") return Stop::time_limit;
  if (state == "DEADLINE") return Stop::deadline;
  return Stop::none;
}

bool is_suspended(const std::string& state) { return state == "SUSPENDED" || state == "STOPPED"; }

std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

bool was_asked_to_stop(const LaunchFolder& folder, int64_t generation) {
  return folder.is_asked_to_stop(generation) || folder.is_asked_to_die(generation);
}

// "gpu:h200:8(S:0-1)" or "gpu:8": how many.
int64_t gpus_of(std::string_view resources) {
  int64_t count = 0;
  for (const std::string_view each : split(resources, ',')) {
    if (!starts_with(each, "gpu:")) continue;
    const std::string_view plain = each.substr(0, each.find('('));
    count += std::atoll(std::string(plain.substr(plain.rfind(':') + 1)).c_str());
  }
  return count;
}

}  // namespace

std::map<std::string, SlurmJob> parse_squeue(const std::string& text) {
  std::map<std::string, SlurmJob> jobs;
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split(line, '|');
    if (words.size() < 6 || !starts_with(words[1], "tutti-")) continue;
    SlurmJob job;
    job.id = std::atoll(std::string(words[0]).c_str());
    job.state = words[2];
    job.reason = words[3];
    job.nodes = words[4];
    job.head = words[5];
    const auto [at, is_new] = jobs.emplace(words[1], job);
    if (is_new) continue;
    const bool was_live = is_live(at->second.state);
    const bool live = is_live(job.state);
    if (live != was_live ? live : job.id > at->second.id) at->second = job;
  }
  return jobs;
}

void read_slurm_state(const std::string& state, LaunchStatus& status) {
  status.stopped_by = stop_of(state);
  status.suspended = is_suspended(state);
  status.out_of_memory = state == "OUT_OF_MEMORY";
}

bool is_duplicate_launch(const std::string& node_reason) {
  return node_reason.find("Duplicate jobid") != std::string::npos;
}

std::vector<Node> parse_sinfo(const std::string& text) {
  std::map<std::string, Node> nodes;
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split(line, '|');
    if (words.size() < 5 || words[0].empty()) continue;
    Node node;
    node.name = words[0];
    node.cores = std::atoll(std::string(words[1]).c_str());
    node.gpus = gpus_of(words.back());  // what a person wrote as the reason may hold anything
    // "idle", "mixed", "allocated", "completing", with a mark for what is about to happen to it.
    std::string state(words[2]);
    while (!state.empty() && std::isalpha(static_cast<unsigned char>(state.back())) == 0) {
      const bool silent = state.back() == '*';
      state.pop_back();
      if (silent) state = "not responding";
    }
    node.up = state == "idle" || state == "mixed" || state == "allocated" ||
              state == "completing" || state == "planned";
    if (!node.up) {
      node.reason = words[3] == "none" ? state : fmt::format("{}: {}", state, words[3]);
    }
    nodes[node.name] = node;
  }
  std::vector<Node> out;
  out.reserve(nodes.size());
  for (auto& [name, node] : nodes) out.push_back(std::move(node));
  return out;
}

std::optional<std::vector<Node>> slurm_nodes(const SlurmSettings& settings) {
  std::vector<std::string> words = {"sinfo", "--Node", "--noheader", "--format=%N|%c|%T|%E|%G"};
  if (!settings.partition.empty()) words.push_back("--partition=" + settings.partition);
  const CommandResult said = run_command(words, kToolSeconds);
  if (!said.ok()) return std::nullopt;
  return parse_sinfo(said.output);
}

std::string slurm_name(const LaunchKey& key) { return fmt::format("tutti-{}", launch_name(key)); }

std::optional<LaunchKey> launch_of(const std::string& slurm_name) {
  const auto words = split(slurm_name, '-');
  if (words.size() != 4 || words[0] != "tutti") return std::nullopt;
  int64_t numbers[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    const std::string_view word = words[i + 1];
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), numbers[i]);
    if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  }
  return LaunchKey{numbers[0], numbers[1], numbers[2]};
}

std::vector<std::string> sbatch_words(const LaunchOrder& order, const SlurmSettings& settings,
                                      const std::string& output) {
  std::vector<std::string> words = {"sbatch",
                                    "--parsable",
                                    "--job-name=" + slurm_name(order.key),
                                    fmt::format("--nodes={}", order.claims.size()),
                                    "--exclusive",
                                    "--no-requeue",
                                    "--no-kill",
                                    "--export=NIL",
                                    "--open-mode=append",
                                    "--output=" + output,
                                    "--chdir=" + (order.folder.empty() ? "/" : order.folder)};
  if (!settings.partition.empty()) words.push_back("--partition=" + settings.partition);
  if (!settings.account.empty()) words.push_back("--account=" + settings.account);
  if (order.stop_after_ms > 0) {
    // A backstop: the supervisor's own limit comes first.
    const int64_t minutes = (order.stop_after_ms + kMinuteMs - 1) / kMinuteMs;
    words.push_back(fmt::format("--time={}", minutes + 2 * kSignalSeconds / 60));
  }
  words.push_back(fmt::format("--signal=B:USR2@{}", kSignalSeconds));
  if (!order.claims.empty() && order.claims.front().gpus > 0) {
    words.push_back(fmt::format("--gpus-per-node={}", order.claims.front().gpus));
  }
  if (!order.avoid.empty()) words.push_back("--exclude=" + join(order.avoid, ","));
  return words;
}

LaunchFolder SlurmLauncher::folder_of(const LaunchKey& key) const {
  return {files_, job_folder(folder_, key.job, key.stamp)};
}

bool SlurmLauncher::ask(double age_seconds) {
  if (monotonic_seconds() - asked_at_ <= age_seconds) return answered_;
  asked_at_ = monotonic_seconds();
  // Anybody may give a job the name of one of ours.
  const CommandResult said = run_command(
      {"squeue", "--noheader", "--me", "--all", "--states=all", "--format=%A|%j|%T|%r|%N|%B"},
      kToolSeconds);
  answered_ = said.ok();
  if (answered_) {
    jobs_ = parse_squeue(said.output);
    end_ghosts();
  }
  return answered_;
}

void SlurmLauncher::end_ghosts() {
  for (const auto& [name, job] : jobs_) {
    const auto key = launch_of(name);
    if (job.state != "RUNNING" || !key || !folder_of(*key).has_ended(key->generation)) {
      ghosts_.erase(job.id);
      continue;
    }
    double& since = ghosts_.emplace(job.id, monotonic_seconds()).first->second;
    if (monotonic_seconds() - since < kGhostSeconds) continue;
    run_command({"scancel", std::to_string(job.id)}, kToolSeconds);
    since = monotonic_seconds();
  }
}

const SlurmJob* SlurmLauncher::find(const LaunchKey& key) const {
  const auto found = jobs_.find(slurm_name(key));
  return found == jobs_.end() ? nullptr : &found->second;
}

bool SlurmLauncher::lost_head(const SlurmJob& job) {
  if (job.state == "PENDING" || job.nodes.empty() || job.head.empty()) return false;
  const std::vector<std::string> nodes = names_of(job.nodes);
  return !nodes.empty() && std::find(nodes.begin(), nodes.end(), job.head) == nodes.end();
}

std::string SlurmLauncher::launched_twice(const SlurmJob& job) {
  if (job.head.empty()) return {};
  const CommandResult said = run_command(
      {"sinfo", "--noheader", "--Node", "--nodes=" + job.head, "--format=%E"}, kToolSeconds);
  if (!said.ok() || !is_duplicate_launch(said.output)) return {};
  return fmt::format(
      "Slurm job {}: slurmctld was restarted, launched it a second time on {}, cancelled it and "
      "drained that node (scontrol update nodename={} state=resume)",
      job.id, job.head, job.head);
}

bool SlurmLauncher::has_settled(const SlurmJob& job) {
  const double first_seen = ended_at_.emplace(job.id, monotonic_seconds()).first->second;
  return monotonic_seconds() - first_seen >= kSettleSeconds;
}

void SlurmLauncher::start(const LaunchOrder& order) {
  LaunchFolder folder = folder_of(order.key);
  const int64_t generation = order.key.generation;
  if (folder.read_begun(generation) || folder.newest() > generation) return;
  if (!ask(0) || find(order.key) != nullptr) return;  // the next round asks again
  files_.create_directories(folder.path());
  folder.write_order(order);
  folder.set_newest(generation);
  std::string command;
  for (const std::string& word : supervisor_) command += quoted(word) + " ";
  command += fmt::format("{} {}", quoted(folder.path()), generation);
  std::string script = "#!/bin/sh\n";
  // Of this process's environment only where Slurm is, what shares an address, and where object
  // stores and the file of their credentials are: a secret itself would lie in the job's script.
  for (const char* name :
       {"SLURM_CONF", "MASTER_ADDR", "TUTTI_NOTICE_FILE", "TUTTI_FAULT", "TUTTI_MEMORY_ROOT",
        "OMP_NUM_THREADS", "TUTTI_CACHE", "TUTTI_S3_ADDRESSING", "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CONFIG_FILE", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"}) {
    const char* value = std::getenv(name);
    if (value != nullptr) script += fmt::format("export {}={}\n", name, quoted(value));
  }
  script += "exec " + command + "\n";
  const std::string path = join_path(folder.path(), fmt::format("script-{}", generation));
  write_file_atomic(files_, path, script);
  std::vector<std::string> words = sbatch_words(order, settings_, folder.output_path());
  words.push_back(path);
  const CommandResult said = run_command(words, kToolSeconds);
  asked_at_ = -1e9;
  if (said.ok()) {
    folder.write_outside(generation, std::string(trim(said.output)));
    return;
  }
  // Logged once per attempt; only Slurm knows whether a later one can succeed.
  if (said.in_time && said.error.find("nable to contact") == std::string::npos) {
    Ended ended;
    ended.detail = fmt::format("sbatch: {}", trim(said.error));
    folder.write_ended(generation, ended);
  }
}

LaunchStatus SlurmLauncher::status(const LaunchKey& key) {
  LaunchStatus status;
  LaunchFolder folder = folder_of(key);
  if (!files_.is_directory(folder.path())) return status;
  const bool answered = ask(kAgeSeconds);
  if (const int64_t newest = folder.newest(); newest > key.generation) {
    if (!folder.take_ended(key.generation, status)) {
      status.elapsed_ms = folder.read_alive(key.generation);
    }
    status.phase = LaunchPhase::superseded;
    status.newer_generation = newest;
    return status;
  }
  const auto begun = folder.read_begun(key.generation);
  const SlurmJob* job = answered ? find(key) : nullptr;
  if (job != nullptr && !job->nodes.empty()) status.nodes = names_of(job->nodes);
  const bool headless = job != nullptr && lost_head(*job);
  if (job != nullptr && !headless) read_slurm_state(job->state, status);
  status.elapsed_ms = folder.read_alive(key.generation);
  const bool is_over = folder.take_ended(key.generation, status);
  if (is_over && status.exit_code == exit_ok) return status;
  if (job != nullptr && !headless && !was_asked_to_stop(folder, key.generation)) {
    // Slurm names who ended it when its processes are gone, and drains the node after that.
    const bool cancelled = status.stopped_by == Stop::cancel;
    const std::string twice = cancelled ? launched_twice(*job) : std::string();
    const bool more_to_come = cancelled ? twice.empty() : is_over && is_live(job->state);
    if (more_to_come && !has_settled(*job)) {
      LaunchStatus until_then;
      until_then.phase = begun ? LaunchPhase::running : LaunchPhase::starting;
      until_then.elapsed_ms = status.elapsed_ms;
      until_then.nodes = status.nodes;
      return until_then;
    }
    if (!twice.empty()) status.stopped_by = Stop::none;
    if (status.detail.empty()) status.detail = twice;
  }
  if (is_over) return status;
  const bool was_submitted = !folder.read_outside(key.generation).empty();
  if (!answered) {
    // Silence: as it was.
    status.phase = begun ? LaunchPhase::running : LaunchPhase::starting;
    if (!begun && !was_submitted) status.phase = LaunchPhase::unknown;
    return status;
  }
  if (job == nullptr) {
    if (begun || was_submitted) {
      status.phase = begun ? LaunchPhase::lost : LaunchPhase::failed;
      status.detail = "Slurm no longer knows its job";
    }
    return status;
  }
  if (is_live(job->state) && headless) {
    // The rest of it holds nodes that nothing uses.
    run_command({"scancel", std::to_string(job->id)}, kToolSeconds);
  } else if (is_live(job->state)) {
    status.phase = begun ? LaunchPhase::running : LaunchPhase::starting;
    status.detail = fmt::format("Slurm job {}: {} ({})", job->id, job->state, job->reason);
    return status;
  }
  if (headless) {
    status.detail = fmt::format("Slurm job {}: its first node {} died", job->id, job->head);
  } else if (status.detail.empty()) {
    status.detail = fmt::format("Slurm job {}: {} ({})", job->id, job->state, job->reason);
  }
  // The supervisor's last words may be on their way through the file system.
  if (begun && !has_settled(*job)) {
    status.phase = LaunchPhase::running;
    return status;
  }
  status.phase = begun ? LaunchPhase::lost : LaunchPhase::failed;
  return status;
}

void SlurmLauncher::stop(const LaunchKey& key) {
  LaunchFolder folder = folder_of(key);
  folder.ask_to_stop(key.generation);
  const SlurmJob* job = ask(kAgeSeconds) ? find(key) : nullptr;
  // It waits, and need not; or it is suspended, and gets no signal: Slurm wakes a job that it ends.
  const bool cannot_hear = job != nullptr && is_suspended(job->state);
  if (!folder.read_begun(key.generation) || cannot_hear) cancel(key);
}

void SlurmLauncher::kill(const LaunchKey& key) {
  LaunchFolder folder = folder_of(key);
  const bool again = folder.is_asked_to_die(key.generation);
  folder.ask_to_die(key.generation);
  if (again || !folder.read_begun(key.generation)) cancel(key);
}

void SlurmLauncher::cancel(const LaunchKey& key) {
  if (!ask(0)) return;
  const SlurmJob* job = find(key);
  if (job == nullptr || !is_live(job->state)) return;
  run_command({"scancel", std::to_string(job->id)}, kToolSeconds);
  asked_at_ = -1e9;
}

std::vector<Fault> SlurmLauncher::faults(const LaunchKey& key, const std::string& run_folder) {
  return read_faults(files_, run_folder, key);
}

std::vector<std::string> SlurmLauncher::names_of(const std::string& hosts) {
  const auto known = host_lists_.find(hosts);
  if (known != host_lists_.end()) return known->second;
  const CommandResult said = run_command({"scontrol", "show", "hostnames", hosts}, kToolSeconds);
  if (!said.ok()) return {};
  std::vector<std::string> names;
  for (const std::string_view name : split(said.output, '\n')) {
    if (!name.empty()) names.emplace_back(name);
  }
  return host_lists_[hosts] = names;
}

}  // namespace tutti::control
