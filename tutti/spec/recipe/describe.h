// A recipe described in full: what the trainer executes and the planner prices, as plain values.
// Factored (layer kinds x repeats, classes of equal ranks, actions on demand), so the cost does not
// grow with ranks or layers.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/model/flops.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/program/program.h"
#include "tutti/spec/recipe/batch.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::spec {

// Pipeline ranks [first_stage, last_stage] whose ranks hold equally much; `ranks` in all.
struct RankClass {
  int64_t first_stage = 0;
  int64_t last_stage = 0;
  int64_t ranks = 0;
  MemoryMap memory;
};

struct Run {
  ModelConfig model;
  Mesh mesh;
  ParamTable params;
  BatchPlan batch;
  Program program;
  Schedule schedule;
  std::vector<RankClass> memory;  // in the order of stages

  const RankClass& rank_class(int64_t rank) const;
  int64_t peak_bytes() const;  // of the fullest rank
};

Run describe(const Recipe& recipe, const Profile& profile);
Run describe(const Recipe& recipe);  // profile tutti

}  // namespace tutti::spec
