#include "tutti/mlperf/repeats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/mlperf/folder.h"
#include "tutti/mlperf/log.h"
#include "tutti/mlperf/ruleset.h"
#include "tutti/mlperf/statistics.h"
#include "tutti/mlperf/system_description.h"
#include "tutti/report/run_data.h"

namespace tutti::mlperf {
namespace {

constexpr int kDeepest = 8;
// A stretch at the beginning that is this much slower than the median belongs to the start.
constexpr double kSlow = 1.1;

// Hyperparameters among what a log states before run_start; the rest is how it was computed.
bool is_hyperparameter(std::string_view key) {
  for (const char* prefix : {"opt_", "lora_", "lowest_numerical_precision_"}) {
    if (starts_with(key, prefix)) return true;
  }
  constexpr std::array<std::string_view, 6> kKeys = {"global_batch_size", "max_sequence_length",
                                                     "max_steps",         "init_checkpoint_step",
                                                     "eval_samples",      "target_accuracy"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

// Of a recipe: what must agree for two runs to do the same work. Threads, recomputation and
// micro-batches are tuning, seeds and names are each run's own, and paths of data differ between
// machines.
bool is_recipe_setting(std::string_view key) {
  for (const char* prefix : {"model.", "lora.", "optimizer.", "schedule.", "evaluate."}) {
    if (starts_with(key, prefix)) return true;
  }
  constexpr std::array<std::string_view, 7> kKeys = {
      "model",          "precision",   "data.packing",     "batch.global",
      "batch.sequence", "train.steps", "train.target_loss"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

bool has_non_finite(const Json& value) {
  if (value.is_number_float()) return !std::isfinite(value.get<double>());
  if (!value.is_structured()) return false;
  return std::any_of(value.begin(), value.end(), [](const Json& v) { return has_non_finite(v); });
}

void set_time(Repeat& repeat, const std::vector<Stretch>& stretches, double total_seconds,
              double steady_seconds_per_sample = 0) {
  for (const Stretch& stretch : stretches) repeat.samples += stretch.samples;
  repeat.seconds = split_time(stretches, total_seconds, steady_seconds_per_sample);
  if (repeat.seconds.steady > 0) repeat.steady_rate = repeat.samples / repeat.seconds.steady;
  if (!(repeat.steady_rate > 0) && repeat.invalid.empty()) {
    repeat.invalid = "no stretch of training with samples and time";
  }
}

void add_repeat(std::vector<Workload>& workloads, Workload found, Repeat repeat) {
  for (Workload& workload : workloads) {
    if (workload.benchmark == found.benchmark && workload.system == found.system &&
        workload.accelerators == found.accelerators && workload.settings == found.settings) {
      workload.repeats.push_back(std::move(repeat));
      return;
    }
  }
  found.repeats.push_back(std::move(repeat));
  workloads.push_back(std::move(found));
}

// --- MLPerf logs ---

// Machines of runs. Results of one machine in several folders are repeats of one workload; without
// a description a folder is a system of its own.
std::string system_name(const SystemDescription& system, const Run& run, const std::string& log) {
  if (!system.system_name.empty()) {
    return system.submitter.empty() ? system.system_name
                                    : system.submitter + ", " + system.system_name;
  }
  if (!run.platform.empty()) return run.platform;
  return parent_path(log);
}

void read_log_repeat(FileSystem& files, const std::string& path, const SystemDescription& system,
                     const std::vector<catalog::Benchmark>& benchmarks,
                     std::vector<Workload>& workloads) {
  RunReader reader;
  Repeat repeat;
  repeat.name = path;
  bool started = false;
  read_log(files, path,
           {[&](const Record& record) {
              started = started || record.key == "run_start";
              if (started && repeat.invalid.empty() && has_non_finite(record.value)) {
                repeat.invalid = fmt::format("line {}: {} is not finite", record.line, record.key);
              }
              reader.record(record);
              return true;
            },
            {}});
  const Run run = reader.take();
  Workload workload;
  const catalog::Benchmark* known = catalog::find_benchmark(benchmarks, run.benchmark);
  workload.benchmark = known != nullptr ? known->title : run.benchmark;
  workload.system = system_name(system, run, path);
  workload.accelerators = system.accelerators();
  workload.unit = "samples";
  for (const auto& [key, value] : run.settings) {
    if (is_hyperparameter(key)) workload.settings[key] = dump_json(value);
  }
  if (!run.run_start_ms || !run.run_stop_ms || run.evaluations.empty()) {
    if (repeat.invalid.empty()) repeat.invalid = "it did not end: no run_stop, or no evaluation";
  } else {
    if (run.status != "success" && repeat.invalid.empty()) {
      repeat.invalid = fmt::format("the target was not reached (run_stop: {})", run.status);
    }
    const bool tokens = known != nullptr && known->logged_progress == catalog::Progress::tokens;
    const Timeline line =
        timeline_of(run, tokens ? static_cast<double>(known->sequence_tokens) : 1.0);
    set_time(repeat, line.stretches, line.total_seconds,
             line.steps_timed ? 1 / line.steady_samples_per_second : 0);
  }
  add_repeat(workloads, std::move(workload), std::move(repeat));
}

// --- folders of runs ---

void find_runs(FileSystem& files, const std::string& path, int depth,
               std::vector<std::string>& runs) {
  if (files.exists(join_path(path, "events.jsonl"))) {
    runs.push_back(path);
    return;
  }
  if (depth == kDeepest) return;
  // A set of runs (run_set.h) also keeps what was interrupted; that is not a repeat.
  const bool set = files.exists(join_path(path, "runs.json"));
  for (const DirectoryEntry& entry : files.list(path)) {
    if (set && entry.name != "runs") continue;
    if (entry.is_directory) find_runs(files, join_path(path, entry.name), depth + 1, runs);
  }
}

std::string why_invalid(const report::RunData& run) {
  if (!run.non_finite.empty() || run.skipped_steps > 0) {
    return run.non_finite.empty()
               ? fmt::format("{} skipped steps", run.skipped_steps)
               : fmt::format("non-finite gradients at step {}", run.non_finite.front().body.step);
  }
  for (size_t i = 0; i < run.steps.size(); ++i) {
    if (!std::isfinite(run.steps.loss[i]) || !std::isfinite(run.steps.gradient_norm[i])) {
      return fmt::format("non-finite loss or gradient norm at step {}", run.steps.step[i]);
    }
  }
  for (const auto& evaluation : run.evaluations) {
    if (!std::isfinite(evaluation.body.loss)) {
      return fmt::format("non-finite validation loss after step {}", evaluation.body.step);
    }
  }
  // What a run says before it starts to train is a part of its own.
  const bool resumed = std::any_of(run.parts.begin(), run.parts.end(),
                                   [](const auto& part) { return part.first_step > 0; });
  if (resumed || run.repeated_steps > 0) return "it was interrupted and resumed";
  if (!run.finished) return "it ended without a word";
  return run.steps.size() == 0 ? "no steps" : "";
}

// The machine as the run describes it: "node1 (AMD EPYC 9654, 96 cores, 8 x NVIDIA H100)". Repeats
// on two machines are not repeats of each other.
std::string machine_name(const report::RunData& run) {
  std::map<std::string, std::string> names;  // by address
  for (const auto& gpu : run.gpus) names[gpu.body.gpu] = gpu.body.name;
  std::map<std::string, int64_t> gpus;
  for (const auto& [address, name] : names) ++gpus[name];
  std::vector<std::string> parts;
  if (run.machine && !run.machine->cpu.empty()) parts.push_back(run.machine->cpu);
  if (run.machine && run.machine->cores > 0) {
    parts.push_back(fmt::format("{} cores", run.machine->cores));
  }
  for (const auto& [name, count] : gpus) parts.push_back(fmt::format("{} x {}", count, name));
  std::string host = run.machine ? run.machine->host : "";
  if (parts.empty()) return host;
  return host.empty() ? join(parts, ", ") : fmt::format("{} ({})", host, join(parts, ", "));
}

void read_run_repeat(FileSystem& files, const std::string& folder,
                     std::vector<Workload>& workloads) {
  const report::RunData run = report::read_run(files, folder);
  Repeat repeat;
  repeat.name = folder;
  repeat.invalid = why_invalid(run);
  Workload workload;
  const double parameters = run.started ? static_cast<double>(run.started->parameters) : 0;
  workload.benchmark = format_count(parameters) + " parameters";
  workload.system = machine_name(run);
  workload.accelerators = 1;
  workload.unit = "tokens";
  for (const auto& [key, value] : run.recipe) {
    if (is_recipe_setting(key)) workload.settings[key] = value;
  }
  for (const telemetry::CorpusDescribed& corpus : run.corpora) {
    if (!corpus.hash.empty()) workload.settings[corpus.role + " corpus"] = corpus.hash;
  }
  if (!run.parts.empty() && run.started) {
    const double begin = run.parts.back().begin_wall;
    const auto tokens = static_cast<double>(run.started->tokens_per_step);
    std::vector<Stretch> stretches;
    double end = begin;
    for (size_t i = 0; i < run.steps.size(); ++i) {
      const double stop = run.steps.wall[i];
      stretches.push_back({false, stop - run.steps.step_seconds[i] - begin, stop - begin, tokens});
      end = std::max(end, stop);
      if (std::isfinite(run.steps.data_wait_seconds[i])) {
        repeat.data_wait_seconds += run.steps.data_wait_seconds[i];
      }
    }
    for (const auto& evaluation : run.evaluations) {
      stretches.push_back(
          {true, evaluation.wall - evaluation.body.seconds - begin, evaluation.wall - begin, 0});
      end = std::max(end, evaluation.wall);
    }
    std::stable_sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) {
      return a.start_seconds < b.start_seconds;
    });
    set_time(repeat, stretches, end - begin);
  }
  add_repeat(workloads, std::move(workload), std::move(repeat));
}

}  // namespace

TimeParts split_time(const std::vector<Stretch>& stretches, double total_seconds,
                     double steady_seconds_per_sample) {
  TimeParts parts;
  double covered = 0;
  for (const Stretch& stretch : stretches) {
    const double seconds = stretch.stop_seconds - stretch.start_seconds;
    covered += seconds;
    if (stretch.evaluation) parts.evaluation += seconds;
  }
  parts.stalls = total_seconds - covered;
  const double usual = steady_seconds_per_sample > 0 ? steady_seconds_per_sample
                                                     : mlperf::steady_seconds_per_sample(stretches);
  if (!(usual > 0)) {
    parts.stalls += covered - parts.evaluation;
    return parts;
  }
  bool starting = true;
  for (const Stretch& stretch : stretches) {
    if (stretch.evaluation) continue;
    const double seconds = stretch.stop_seconds - stretch.start_seconds;
    const double steady = usual * stretch.samples;
    starting = starting && seconds > kSlow * steady;
    parts.steady += steady;
    (starting ? parts.start : parts.tail) += seconds - steady;
  }
  return parts;
}

std::string Workload::name() const {
  return accelerators ? fmt::format("{} x {}", benchmark, *accelerators)
                      : benchmark + " (size unknown)";
}

std::vector<Workload> read_workloads(FileSystem& files, const std::string& path,
                                     const std::vector<catalog::Benchmark>& benchmarks,
                                     const std::function<void(int64_t, int64_t)>& on_progress) {
  if (!files.is_directory(path)) {
    fail(ErrorKind::not_found, "no folder '{}'; give a folder of runs or of MLPerf results", path);
  }
  std::vector<Workload> workloads;
  std::vector<std::string> runs;
  find_runs(files, path, 0, runs);
  int64_t done = 0;
  const auto report_progress = [&](size_t total) {
    if (on_progress) on_progress(++done, static_cast<int64_t>(total));
  };
  for (const std::string& run : runs) {
    read_run_repeat(files, run, workloads);
    report_progress(runs.size());
  }
  if (!runs.empty()) return workloads;
  const auto folders = find_results(files, path);
  if (folders.empty()) {
    fail(ErrorKind::not_found,
         "no run (events.jsonl) and no result_N.txt at or below '{}'; give a folder of runs or of "
         "MLPerf results",
         path);
  }
  const Ruleset& newest = find_ruleset(ruleset_versions().back());
  for (const ResultFolder& folder : folders) {
    SystemDescription system;
    if (!folder.system_file.empty()) {
      system = check_system(files, folder.system_file, newest).description;
    }
    for (const std::string& log : folder.logs) {
      read_log_repeat(files, log, system, benchmarks, workloads);
    }
    report_progress(folders.size());
  }
  return workloads;
}

}  // namespace tutti::mlperf
