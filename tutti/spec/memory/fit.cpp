#include "tutti/spec/memory/fit.h"

#include <algorithm>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/spec/memory/arenas.h"
#include "tutti/spec/recipe/distill.h"
#include "tutti/spec/recipe/names.h"

namespace tutti::spec {
namespace {

const char* meaning(const std::string& arena) {
  return arena.starts_with(kTeacherPrefix) ? "the teacher" : arena_kind(arena).what;
}

struct Candidate {
  Recipe recipe;
  MemoryChange change;
  int cost = 0;  // sum over the changed settings, slower ones count more
};

// The recipe and its variants, one setting at a time.
std::vector<std::pair<RecomputeMode, int>> more_recompute(const Recipe& recipe) {
  std::vector<std::pair<RecomputeMode, int>> out = {{recipe.recompute.mode, 0}};
  if (recipe.recompute.mode == RecomputeMode::none) out.emplace_back(RecomputeMode::selective, 2);
  if (recipe.recompute.mode != RecomputeMode::full) out.emplace_back(RecomputeMode::full, 6);
  return out;
}

std::vector<std::pair<int64_t, int>> smaller_micro(const Recipe& recipe) {
  std::vector<std::pair<int64_t, int>> out = {{recipe.batch.micro, 0}};
  int cost = 3;
  for (int64_t micro = recipe.batch.micro / 2; micro >= 1; --micro) {
    if (recipe.batch.micro % micro != 0 || micro * 2 > out.back().first) continue;
    out.emplace_back(micro, cost);
    cost += 2;
  }
  return out;
}

std::vector<std::pair<int64_t, int>> higher_zero(const Recipe& recipe) {
  std::vector<std::pair<int64_t, int>> out = {{recipe.parallel.zero, 0}};
  if (replicas(recipe.parallel) == 1) return out;
  for (int64_t zero = recipe.parallel.zero + 1; zero <= 3; ++zero) {
    out.emplace_back(zero, zero == 1 ? 1 : static_cast<int>(2 * zero));
  }
  return out;
}

// The optimizer's state crosses the link once per step, activations once per micro-batch.
std::vector<std::pair<Offload, int>> more_offload(const Recipe& recipe) {
  std::vector<std::pair<Offload, int>> out = {{recipe.offload, 0}};
  if (recipe.device == "cpu") return out;
  Offload more = recipe.offload;
  more.optimizer = true;
  if (more != recipe.offload) out.emplace_back(more, 4);
  more.activations = kEveryLayer;
  if (recipe.offload.activations == 0) out.emplace_back(more, 8);
  return out;
}

bool is_accepted(const Recipe& recipe) {
  try {
    validate(recipe);
    check_executable(recipe, recipe.parallel.world());
  } catch (const Error&) {
    return false;
  }
  return true;
}

bool contains(const MemoryChange& all, const MemoryChange& part) {
  return std::all_of(part.settings.begin(), part.settings.end(), [&](const std::string& setting) {
    return std::find(all.settings.begin(), all.settings.end(), setting) != all.settings.end();
  });
}

}  // namespace

MemoryMap fullest_memory_map(const Recipe& recipe, int64_t device_bytes) {
  const Profile profile = tutti_profile_on(recipe, device_bytes);
  MemoryMap fullest = memory_map(recipe, profile);
  for (int64_t stage = 1; stage < recipe.parallel.pp; ++stage) {
    MemoryMap map = memory_map(recipe, profile, stage);
    if (map.total_bytes() > fullest.total_bytes()) fullest = std::move(map);
  }
  return fullest;
}

std::vector<MemoryUse> memory_uses(const Recipe& recipe, int64_t device_bytes) {
  std::vector<MemoryUse> out;
  for (const ArenaPlan& arena : fullest_memory_map(recipe, device_bytes).arenas) {
    if (arena.bytes > 0)
      out.push_back({arena.name, meaning(arena.name), arena.bytes, arena.on_host});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const MemoryUse& a, const MemoryUse& b) { return a.bytes > b.bytes; });
  return out;
}

std::vector<MemoryChange> changes_that_fit(const Recipe& recipe, int64_t most_bytes, size_t count,
                                           MemoryChange* smallest, int64_t device_bytes) {
  std::vector<Candidate> candidates;
  for (const auto& [zero, zero_cost] : higher_zero(recipe)) {
    for (const auto& [micro, micro_cost] : smaller_micro(recipe)) {
      for (const auto& [mode, mode_cost] : more_recompute(recipe)) {
        for (const auto& [offload, offload_cost] : more_offload(recipe)) {
          Candidate one = {recipe, {}, zero_cost + micro_cost + mode_cost + offload_cost};
          if (zero_cost > 0) {
            one.recipe.parallel.zero = zero;
            one.change.settings.push_back(fmt::format("parallel.zero={}", zero));
          }
          if (micro_cost > 0) {
            one.recipe.batch.micro = micro;
            one.change.settings.push_back(fmt::format("batch.micro={}", micro));
          }
          if (mode_cost > 0) {
            one.recipe.recompute = {mode, 0, 0};
            one.change.settings.push_back(
                fmt::format("recompute={}", name_of(kRecomputeNames, mode)));
          }
          if (offload.optimizer != recipe.offload.optimizer) {
            one.recipe.offload.optimizer = true;
            one.change.settings.emplace_back("offload.optimizer=true");
          }
          if (offload.activations != recipe.offload.activations) {
            one.recipe.offload.activations = offload.activations;
            one.change.settings.emplace_back("offload.activations=all");
          }
          if (one.cost > 0) candidates.push_back(std::move(one));
        }
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
  std::vector<MemoryChange> out;
  bool any = false;
  for (Candidate& one : candidates) {
    if (out.size() == count && smallest == nullptr) break;
    if (!is_accepted(one.recipe)) continue;
    const MemoryMap map = fullest_memory_map(one.recipe, device_bytes);
    one.change.bytes = map.total_bytes();
    one.change.host_bytes = map.host_bytes();
    if (smallest != nullptr && (!any || one.change.bytes < smallest->bytes)) {
      *smallest = one.change;
    }
    any = true;
    if (one.change.bytes > most_bytes || out.size() == count) continue;
    if (std::none_of(out.begin(), out.end(),
                     [&](const MemoryChange& had) { return contains(one.change, had); })) {
      out.push_back(one.change);
    }
  }
  return out;
}

}  // namespace tutti::spec
