// The factors that decide the results of a run, and which of them differ between two machines:
// recipe, data, initial weights, teacher, threads, machine, program. With all of them the same, a
// run gives the same bits again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/session/run_record.h"

namespace tutti::train {

// Keys of a recipe that leave the arithmetic of training steps alone: when to stop, evaluate, save
// and report, recomputation (same bits).
bool free_of_arithmetic(const std::string& key);

// `unknown`: the run did not record it, or not all of it.
enum class FactorState { same, differs, unknown };
const char* factor_state_name(FactorState state);

struct Factor {
  std::string
      name;  // "recipe", "data", "initial weights", "teacher", "threads", "machine", "program"
  FactorState state = FactorState::same;
  std::vector<std::string> details;  // what differs or is unknown, one line each
};

// How the recipe would be run here and now. Every corpus is read through, and its hash is that of
// the bytes that are there; on_progress(done_bytes, total_bytes) counts them. Throws not_found
// naming a corpus, weights or a teacher that are gone.
RunPartRecord describe_now(FileSystem& files, const spec::Recipe& recipe,
                           const std::function<void(int64_t, int64_t)>& on_progress = {});

// All factors, in the order above; "initial weights" and "teacher" only where there are any. Each
// process of the recorded run is compared, and a difference that only some of them have is named
// with their steps.
std::vector<Factor> compare_factors(const RunRecord& record, const RunPartRecord& now);

}  // namespace tutti::train
