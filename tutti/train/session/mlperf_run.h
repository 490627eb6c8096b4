// What a run by the rules of MLPerf Training logs, and when.
//
//   MlperfRun log(...)     caches cleared, who submits, init_start, hyperparameters
//   starts()               init_stop, run_start: what follows may touch data
//   counts()               train_samples, eval_samples
//   evaluation_starts()    block_stop, eval_start
//   evaluated()            eval_accuracy, eval_stop, and block_start of what follows
//   stops()                run_stop
//   log_corpora()         what was trained on
//
// Rules: mlcommons/training_policies, training_rules.adoc (timing, caches), mlcommons/logging. The
// times are those at which the calls are made. Without a benchmark in the recipe every call does
// nothing. A run that started and ends in another way than stops(), such as by an exception, is
// logged as aborted; one that is killed leaves a log without run_stop, which no checker accepts.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/base/file.h"
#include "tutti/data/corpus/dataset.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/telemetry/sink.h"

namespace tutti::train {

class MlperfRun {
 public:
  MlperfRun(const spec::Recipe& recipe, telemetry::Telemetry& telemetry);
  ~MlperfRun();
  MlperfRun(const MlperfRun&) = delete;
  MlperfRun& operator=(const MlperfRun&) = delete;

  bool enabled() const { return recipe_.mlperf.enabled(); }

  // Throws usage: the time of a run is one stretch, and a second part would hide the pause.
  void refuse_resume(const std::string& run_folder) const;

  void starts();
  void counts(const data::Dataset& training, const data::Dataset& validation);
  void evaluation_starts(int64_t step);
  void evaluated(int64_t step, double loss);
  void stops(int64_t step, bool reached_target);

  // train_corpus_xxh3, validation_corpus_xxh3: of the tokens that were read, up to 1 GiB of them.
  // After the clock has stopped, since it reads them all.
  void log_corpora(FileSystem& files);

 private:
  using Type = telemetry::MlperfLine::Type;

  void line(Type type, const std::string& key, const Json& value = nullptr,
            const Json& metadata = Json::object(), const char* file = __builtin_FILE(),
            int at_line = __builtin_LINE());  // std::source_location, which clang 14 lacks
  void clear_caches();
  void block_starts(int64_t step);
  void block_stops(int64_t step);
  int64_t samples(int64_t step) const { return step * recipe_.batch.global; }

  const spec::Recipe& recipe_;
  telemetry::Telemetry& telemetry_;
  bool running_ = false;      // between run_start and run_stop
  int64_t last_step_ = 0;     // that a line reported
  int64_t block_step_ = -1;   // at which the open block started; -1: none is open
  double block_started_ = 0;  // monotonic
};

}  // namespace tutti::train
