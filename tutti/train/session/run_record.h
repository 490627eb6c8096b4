// What a run's events record about the origin of its numbers, and the numbers themselves.
//
// Numbers are exact: events.jsonl holds the shortest text that reads back as the same double. What
// was not finite is NaN here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/telemetry/events.h"

namespace tutti::train {

// One process of the run.
struct RunPartRecord {
  int64_t first_step = 0;  // steps that were done before it
  std::optional<telemetry::MachineDescribed> machine;
  std::vector<telemetry::CorpusDescribed> corpora;
  std::string recipe_yaml;  // resolved; empty where an older version did not record it
  std::optional<checkpoint::Base> initial_weights;
  std::optional<checkpoint::Base> teacher;
};

struct StepNumbers {
  double loss = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  bool skipped = false;
};
// To the bit; NaN equals NaN.
bool same_bits(double a, double b);

struct RunRecord {
  std::vector<RunPartRecord> parts;
  std::map<int64_t, StepNumbers> steps;   // by number, 1 for the first, up to last_step
  std::map<int64_t, double> evaluations;  // validation loss by the step that it followed
  int64_t last_step = 0;                  // of the run as it stands
  // Steps that were taken twice, because the run went back to a checkpoint, and the first of them
  // whose numbers were others the second time.
  int64_t repeated_steps = 0;
  std::optional<int64_t> unequal_repeat;
};

// Reads RUN/events.jsonl. Throws not_found when there is none, corrupt when it holds no step.
RunRecord read_run_record(FileSystem& files, const std::string& run_folder);

}  // namespace tutti::train
