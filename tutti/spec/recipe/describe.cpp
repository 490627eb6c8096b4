#include "tutti/spec/recipe/describe.h"

#include <algorithm>
#include <utility>

#include "tutti/base/check.h"

namespace tutti::spec {
namespace {

bool same_memory(const MemoryMap& a, const MemoryMap& b) {
  return std::equal(a.arenas.begin(), a.arenas.end(), b.arenas.begin(), b.arenas.end(),
                    [](const ArenaPlan& x, const ArenaPlan& y) {
                      return x.name == y.name && x.bytes == y.bytes &&
                             x.slots.size() == y.slots.size();
                    });
}

}  // namespace

const RankClass& Run::rank_class(int64_t rank) const {
  const int64_t stage = coordinates(mesh, rank).pp;
  const auto found = std::find_if(memory.begin(), memory.end(), [&](const RankClass& one) {
    return stage >= one.first_stage && stage <= one.last_stage;
  });
  TUTTI_CHECK(found != memory.end(), "stage {} has no class", stage);
  return *found;
}

int64_t Run::peak_bytes() const {
  int64_t most = 0;
  for (const RankClass& one : memory) most = std::max(most, one.memory.total_bytes());
  return most;
}

Run describe(const Recipe& recipe, const Profile& profile) {
  Run run;
  run.model = recipe.model;
  run.mesh = recipe.parallel;
  run.params =
      param_table(recipe.model, recipe.lora, profile.vocabulary_multiple * recipe.parallel.tp);
  run.batch = make_batch_plan(recipe);
  run.program = make_program(recipe, profile);
  run.schedule = make_schedule(recipe);
  const int64_t stage_ranks = recipe.parallel.world() / recipe.parallel.pp;
  for (int64_t stage = 0; stage < recipe.parallel.pp; ++stage) {
    MemoryMap map = memory_map(recipe, profile, stage);
    if (run.memory.empty() || !same_memory(run.memory.back().memory, map)) {
      run.memory.push_back({stage, stage, 0, std::move(map)});
    }
    run.memory.back().last_stage = stage;
    run.memory.back().ranks += stage_ranks;
  }
  return run;
}

Run describe(const Recipe& recipe) { return describe(recipe, tutti_profile_on(recipe)); }

}  // namespace tutti::spec
