#include "tutti/mlperf/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "tutti/base/text.h"
#include "tutti/mlperf/value_rule.h"

namespace tutti::mlperf {
namespace {

constexpr size_t kMostEvaluations = 100'000;
constexpr size_t kMostSteps = 1'000'000;
constexpr size_t kMostSeeds = 1000;
constexpr size_t kMostSettings = 500;

// Keys that say what happened or who ran it, not how.
constexpr std::array<std::string_view, 14> kEvents = {
    "cache_clear", "init_start",    "init_stop",   "run_start",    "run_stop",
    "block_start", "block_stop",    "epoch_start", "epoch_stop",   "eval_start",
    "eval_stop",   "eval_accuracy", "seed",        "tracked_stats"};

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::optional<double> number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

Seed seed_of(const Record& record) {
  const auto file = record.metadata.find("file");
  const auto line = record.metadata.find("lineno");
  const bool placed = file != record.metadata.end() && line != record.metadata.end();
  return {record.line, placed ? dump_json(*file) + ":" + dump_json(*line) : std::string(),
          as_integer(record.value)};
}

}  // namespace

std::optional<double> Run::minutes() const {
  if (!run_start_ms || !run_stop_ms) return std::nullopt;
  return (*run_stop_ms - *run_start_ms) / 60e3;
}

std::optional<double> Run::initialisation_seconds() const {
  if (!init_start_ms || !run_start_ms) return std::nullopt;
  return (*run_start_ms - *init_start_ms) / 1e3;
}

void RunReader::record(const Record& record) {
  const std::string& key = record.key;
  const auto first = [](std::string& to, const Json& value) {
    if (to.empty()) to = text_of(value);
  };
  if (key == "submission_benchmark") first(run_.benchmark, record.value);
  else if (key == "submission_division") first(run_.division, record.value);
  else if (key == "submission_org") first(run_.organisation, record.value);
  else if (key == "submission_platform") first(run_.platform, record.value);
  else if (key == "submission_status") first(run_.availability, record.value);
  else if (key == "tracked_stats") step_time(record);
  else if (key == "init_start" && !run_.init_start_ms) run_.init_start_ms = record.time_ms;
  else if (key == "run_start" && !run_.run_start_ms) run_.run_start_ms = record.time_ms;
  else if (key == "eval_start") eval_start_ms_ = record.time_ms;
  else if (key == "eval_accuracy" || key == "eval_error") evaluation(record);
  else if (key == "eval_stop" && stop_pending_) {
    // A run may stop as soon as the target is seen; what is tidied up after that is not its time.
    Evaluation& last = run_.evaluations.back();
    last.stop_ms =
        std::max(last.stop_ms, std::min(record.time_ms, run_.run_stop_ms.value_or(record.time_ms)));
    stop_pending_ = false;
  } else if (key == "run_stop" && !run_.run_stop_ms) {
    run_.run_stop_ms = record.time_ms;
    const auto status = record.metadata.find("status");
    if (status != record.metadata.end()) run_.status = text_of(*status);
    if (!run_.evaluations.empty()) run_.progress_to_target = run_.evaluations.back().progress;
  } else if (key == "seed" && run_.seeds.size() < kMostSeeds) {
    run_.seeds.push_back(seed_of(record));
  }
  if (key == "global_batch_size" && record.value.is_number()) {
    run_.global_batch_samples = record.value.get<double>();
  }
  setting(record);
}

void RunReader::evaluation(const Record& record) {
  auto progress = number_of(record.metadata, "samples_count");
  // GPT-3 counts tokens in epoch_num, and that is what its rules read.
  if (run_.benchmark == "gpt3" || !progress) {
    if (const auto epoch = number_of(record.metadata, "epoch_num")) progress = epoch;
  }
  if (!progress || run_.evaluations.size() >= kMostEvaluations) return;
  Evaluation evaluation;
  evaluation.timed = eval_start_ms_.has_value();
  evaluation.start_ms = eval_start_ms_.value_or(record.time_ms);
  evaluation.stop_ms = record.time_ms;
  evaluation.progress = *progress;
  evaluation.value = record.value.is_number() ? record.value.get<double>()
                                              : std::numeric_limits<double>::quiet_NaN();
  run_.evaluations.push_back(evaluation);
  stop_pending_ = true;
  eval_start_ms_.reset();
}

// A step states which one it is; the mean of a block only how long the block was.
void RunReader::step_time(const Record& record) {
  if (!run_.run_start_ms || run_.run_stop_ms || !record.value.is_object()) return;
  auto seconds = number_of(record.value, "train_step_time");
  if (!seconds) seconds = number_of(record.value, "train_step_timing");
  if (!seconds || !(*seconds > 0) || std::isinf(*seconds)) return;
  const auto step = number_of(record.metadata, "step");
  const auto samples = number_of(record.metadata, "samples_count");
  const auto progress = samples ? samples : step;
  if (!progress || !(*progress > 0) || std::isinf(*progress)) return;
  std::vector<StepTime>& to = step ? run_.steps : run_.blocks;
  if (to.size() >= kMostSteps) return;
  if (step && !to.empty() && *progress <= to.back().progress) return;
  to.push_back({*progress, *seconds});
}

void RunReader::setting(const Record& record) {
  if (run_.run_start_ms || record.value.is_structured() || record.value.is_null() ||
      run_.settings.size() >= kMostSettings || starts_with(record.key, "submission_") ||
      std::find(kEvents.begin(), kEvents.end(), record.key) != kEvents.end()) {
    return;
  }
  const auto same = [&](const auto& entry) { return entry.first == record.key; };
  if (std::none_of(run_.settings.begin(), run_.settings.end(), same)) {
    run_.settings.emplace_back(record.key, record.value);
  }
}

}  // namespace tutti::mlperf
