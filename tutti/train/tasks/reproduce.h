// Repeats a recorded run, and compares the results bit for bit: losses, gradient norms and learning
// rates of every step, validation losses, and every tensor of the checkpoints that both have. When
// it is not, the factors that differ are the suspects.
//
// plan_reproduction -> run_session with plan.recipe and plan.options, on as many ranks as the
// recipe has -> compare_reproduction.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/session/run_factors.h"
#include "tutti/train/session/run_record.h"
#include "tutti/train/session/session.h"

namespace tutti::train {

struct ReproduceOptions {
  std::string run;
  std::string out;                          // a folder that holds no run yet
  int64_t steps = 0;                        // so many only; 0: as many as the run
  std::vector<std::string> overrides = {};  // "data.train=copy", as of a recipe
};

struct ReproductionPlan {
  std::string run;
  spec::Recipe recipe;
  SessionOptions options;  // of the session to run: fresh folder, up to the run's last step
  RunRecord record;        // of the run
  std::vector<Factor> factors;
  int64_t steps = 0;
};

// The folder of the set that `run` belongs to (runs.json beside runs/RUN, `tutti mlperf run`); ""
// when it belongs to none. A set holds what was planned before its first run, and nothing else.
std::string set_of_run(FileSystem& files, const std::string& run);

// Reads RUN/recipe.yaml and RUN/events.jsonl and compares all factors with the present. Throws
// usage when `out` holds a run or is inside a set of runs, or `steps` exceeds the run's;
// not_found when the run, a corpus or initial weights are gone. on_progress counts bytes of
// corpora.
ReproductionPlan plan_reproduction(FileSystem& files, const ReproduceOptions& options,
                                   const std::function<void(int64_t, int64_t)>& on_progress = {});

// The first number that is not the same.
struct NumberDifference {
  int64_t step = 0;
  std::string what;  // "loss", "gradient norm", "learning rate", "validation loss"
  double was = 0;
  double is = 0;
};

struct CheckpointComparison {
  int64_t step = 0;
  int64_t tensors = 0;               // of both
  std::vector<std::string> unequal;  // names; a tensor that only one has is one of them
};

struct Reproduction {
  std::string run;
  std::string out;
  std::vector<Factor> factors;
  int64_t wanted_steps = 0;
  int64_t steps = 0;  // compared
  int64_t unequal_steps = 0;
  int64_t evaluations = 0;  // compared
  std::optional<NumberDifference> first;
  std::vector<CheckpointComparison> checkpoints;  // by step
  std::vector<std::string> notes;
  bool complete = false;              // every wanted step was compared
  bool equal = false;                 // complete, and nothing compared differs
  std::vector<std::string> suspects;  // factors that differ, then those that are unknown
  std::string verdict;                // one sentence
};

Reproduction compare_reproduction(FileSystem& files, const ReproductionPlan& plan);

Json to_json(const Reproduction& reproduction);
std::string format_factors(const std::vector<Factor>& factors);     // one line each, and details
std::string format_reproduction(const Reproduction& reproduction);  // without the factors

}  // namespace tutti::train
