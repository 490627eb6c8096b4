#include "tutti/train/session/mlperf_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/machine.h"
#include "tutti/base/page_cache.h"
#include "tutti/data/corpus/format.h"
#include "tutti/spec/recipe/mlperf_settings.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::train {
namespace {

std::vector<std::string> corpus_files(const spec::Recipe& recipe) {
  std::vector<std::string> paths;
  for (const auto* blend : {&recipe.data.train, &recipe.data.validation}) {
    for (const spec::CorpusShare& share : blend->corpora) {
      const data::CorpusPaths corpus = data::corpus_paths(share.prefix);
      for (const std::string& path : {corpus.bin, corpus.idx}) paths.push_back(path);
    }
  }
  return paths;
}

std::string machine_text() {
  const Machine machine = describe_machine();
  return fmt::format("{}, {} core{}", machine.cpu, machine.cores, machine.cores == 1 ? "" : "s");
}

}  // namespace

MlperfRun::MlperfRun(const spec::Recipe& recipe, telemetry::Telemetry& telemetry)
    : recipe_(recipe), telemetry_(telemetry) {
  if (!enabled()) return;
  clear_caches();
  line(Type::start, "init_start");
  for (const auto& [key, value] : spec::mlperf_submission(recipe, machine_text())) {
    line(Type::point, key, value);
  }
  for (const auto& [key, value] : spec::mlperf_settings(recipe)) line(Type::point, key, value);
}

MlperfRun::~MlperfRun() {
  if (running_) stops(last_step_, false);
}

void MlperfRun::line(Type type, const std::string& key, const Json& value, const Json& metadata,
                     const char* file, int at_line) {
  telemetry_.emit(
      telemetry::MlperfLine{type, key, value, metadata, base_name(file), int64_t{at_line}});
}

// The log says what was done: value false where the corpora may still be in memory.
void MlperfRun::clear_caches() {
  bool done = false;
  std::string how = "drop_caches";
  if (recipe_.mlperf.clear_all) done = drop_page_cache();
  if (!done) {
    how = "fadvise of the corpora";
    const std::vector<std::string> paths = corpus_files(recipe_);
    done = !paths.empty();
    for (const std::string& path : paths) done = drop_cached_file(path) && done;
  }
  if (!done) {
    how = "not possible";
    telemetry_.warn("MLPerf: the caches of the file system could not be cleared; the log says so");
  }
  line(Type::point, "cache_clear", done, Json{{"how", how}});
}

void MlperfRun::refuse_resume(const std::string& run_folder) const {
  if (!enabled()) return;
  fail(ErrorKind::usage,
       "'{}' holds an interrupted run; an MLPerf run (mlperf.benchmark: {}) cannot be resumed, "
       "since its time is one stretch: start it again in another folder (--run or run.name)",
       run_folder, recipe_.mlperf.benchmark);
}

void MlperfRun::starts() {
  if (!enabled()) return;
  line(Type::end, "init_stop");
  line(Type::start, "run_start");
  running_ = true;
  line(Type::start, "epoch_start", nullptr, spec::mlperf_progress(recipe_, 0));
  block_starts(0);
}

void MlperfRun::counts(const data::Dataset& training, const data::Dataset& validation) {
  if (!enabled()) return;
  line(Type::point, "train_samples", training.evaluation_samples(0));
  line(Type::point, "eval_samples", validation.evaluation_samples(recipe_.evaluate.samples));
}

void MlperfRun::block_starts(int64_t step) {
  const int64_t every = std::max<int64_t>(1, spec::evaluation_interval(recipe_));
  int64_t next = (step / every + 1) * every;
  while (!spec::evaluation_due(recipe_, next) && next < recipe_.train.steps) next += every;
  next = std::min(next, std::max(recipe_.train.steps, step + 1));
  const Json from = spec::mlperf_progress(recipe_, samples(step));
  const Json length = spec::mlperf_progress(recipe_, samples(next - step));
  line(Type::start, "block_start", nullptr,
       Json{{"samples_count", from["samples_count"]},
            {"first_epoch_num", from["epoch_num"]},
            {"epoch_count", length["epoch_num"]}});
  block_step_ = step;
  block_started_ = monotonic_seconds();
}

void MlperfRun::block_stops(int64_t step) {
  if (block_step_ < 0) return;
  const double seconds = monotonic_seconds() - block_started_;
  const Json now = spec::mlperf_progress(recipe_, samples(step));
  if (step > block_step_ && seconds > 0) {
    const auto trained = static_cast<double>(samples(step - block_step_));
    line(Type::point, "tracked_stats", Json{{"throughput", trained / seconds}},
         Json{{"step", samples(step)}});
  }
  line(
      Type::end, "block_stop", nullptr,
      Json{{"samples_count", now["samples_count"]},
           {"first_epoch_num", spec::mlperf_progress(recipe_, samples(block_step_))["epoch_num"]}});
  block_step_ = -1;
}

void MlperfRun::evaluation_starts(int64_t step) {
  if (!enabled()) return;
  last_step_ = step;
  block_stops(step);
  line(Type::start, "eval_start", nullptr, spec::mlperf_progress(recipe_, samples(step)));
}

void MlperfRun::evaluated(int64_t step, double loss) {
  if (!enabled()) return;
  const Json progress = spec::mlperf_progress(recipe_, samples(step));
  line(Type::point, "eval_accuracy", loss, progress);
  line(Type::end, "eval_stop", nullptr, progress);
  const auto& target = recipe_.train.target_validation_loss;
  const bool reached = target && loss <= *target;
  if (!reached && step < recipe_.train.steps) block_starts(step);
}

void MlperfRun::stops(int64_t step, bool reached_target) {
  if (!running_) return;
  running_ = false;
  block_stops(step);
  Json metadata = spec::mlperf_progress(recipe_, samples(step));
  line(Type::end, "epoch_stop", nullptr, metadata);
  metadata["status"] = reached_target ? "success" : "aborted";
  line(Type::end, "run_stop", nullptr, metadata);
}

void MlperfRun::log_corpora(FileSystem& files) {
  if (!enabled()) return;
  constexpr int64_t kMostBytes = int64_t{1} << 30U;
  const auto log_hash = [&](const char* key, const spec::CorpusBlend& blend) {
    for (const spec::CorpusShare& share : blend.corpora) {
      const std::string path = data::corpus_paths(share.prefix).bin;
      if (files.size_bytes(path) > kMostBytes) continue;
      line(Type::point, key, hash_hex(hash_text(files.map(path)->bytes())));
    }
  };
  log_hash("train_corpus_xxh3", recipe_.data.train);
  log_hash("validation_corpus_xxh3", recipe_.data.validation);
}

}  // namespace tutti::train
