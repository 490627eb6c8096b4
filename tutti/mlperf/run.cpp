#include "tutti/mlperf/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "tutti/base/text.h"

namespace tutti::mlperf {
namespace {

constexpr size_t kMostEvaluations = 100'000;
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

// An integer, also one written as text or as 17.0.
std::optional<int64_t> integer_of(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = std::trunc(value.get<double>());
    if (!(std::abs(number) < 0x1p62)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (!value.is_string()) return std::nullopt;
  const std::string_view text = trim(value.get_ref<const std::string&>());
  int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Seed seed_of(const Record& record) {
  const auto member = [&](const char* key) {
    const auto found = record.metadata.find(key);
    return found == record.metadata.end() ? std::string("?") : dump_json(*found);
  };
  return {record.line, member("file") + ":" + member("lineno"), integer_of(record.value)};
}

}  // namespace

std::optional<double> Run::minutes() const {
  if (!run_start_ms || !run_stop_ms) return std::nullopt;
  return (*run_stop_ms - *run_start_ms) / 60e3;
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
