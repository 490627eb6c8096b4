// Everything a run folder records about its run, in the form in which it is plotted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/telemetry/event_reader.h"

namespace tutti::report {

// Values per step, all of one length, in order of steps. NaN where a step does not say.
struct StepSeries {
  std::vector<double> step, loss, gradient_norm, learning_rate, step_seconds, tokens_per_second,
      mfu, data_wait_seconds;
  std::vector<double> cross_entropy, divergence;  // parts of the loss, with a teacher
  std::vector<double> wall;                       // when the step ended, seconds since 1970
  std::vector<double> train_seconds;              // the same on the run's own clock, without pauses
  size_t size() const { return step.size(); }
};

// An event with the time when it was emitted.
template <typename Body>
struct Timed {
  double wall = 0;
  double train_seconds = 0;  // on the run's own clock
  Body body;
};

// One process of the run, from its start to its last word.
struct RunPart {
  double begin_wall = 0;
  double end_wall = 0;
  int64_t first_step = 0;  // steps that were done before it
  int64_t last_step = 0;
  std::string outcome;  // empty: it ended without a word
};

struct RunData {
  std::string folder;
  telemetry::ReadCount lines;
  std::optional<telemetry::RunStarted> started;  // of the last part, like the next ones
  std::optional<telemetry::MachineDescribed> machine;
  std::vector<telemetry::CorpusDescribed> corpora;
  std::vector<telemetry::MemoryByKind> memory;
  int64_t peak_resident_bytes = 0;  // of all parts
  std::optional<telemetry::RunFinished> finished;
  std::vector<RunPart> parts;
  StepSeries steps;
  int64_t repeated_steps = 0;  // done again after a resume; the later ones are in `steps`
  int64_t skipped_steps = 0;
  int64_t tokens = 0;
  std::vector<Timed<telemetry::EvaluationDone>> evaluations;
  std::vector<Timed<telemetry::CheckpointSaved>> checkpoints;
  std::vector<Timed<telemetry::CheckpointFailed>> failed_checkpoints;
  std::vector<Timed<telemetry::TextGenerated>> samples;
  std::vector<Timed<telemetry::NonFinite>> non_finite;
  std::vector<Timed<telemetry::BudgetExceeded>> over_budget;
  std::vector<Timed<telemetry::Message>> warnings;
  std::vector<Timed<telemetry::GpuMeasured>> gpus;
  std::string recipe_yaml;                                  // empty when the folder has none
  std::vector<std::pair<std::string, std::string>> recipe;  // by key: "optimizer.beta1"

  std::string recipe_value(const std::string& key) const;  // empty when absent; without quotes
};

// Reads FOLDER/events.jsonl and FOLDER/recipe.yaml, whatever state the run is in. Throws not_found
// when there are no events to read, and corrupt when none of the lines is one.
RunData read_run(FileSystem& files, const std::string& folder,
                 const std::function<void(int64_t, int64_t)>& on_progress = {});

}  // namespace tutti::report
