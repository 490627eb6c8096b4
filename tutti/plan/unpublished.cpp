#include "tutti/plan/unpublished.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/plan/predict.h"
#include "tutti/spec/program/recompute.h"
#include "tutti/spec/recipe/offload.h"

namespace tutti::plan {
namespace {

// Layouts over all GPUs of `recipe`: tensor and context parallelism within eight GPUs.
std::vector<spec::Recipe> all_layouts(const spec::Recipe& recipe) {
  std::vector<spec::Recipe> out;
  const int64_t gpus = recipe.parallel.world();
  for (const int64_t tp : {1, 2, 4, 8}) {
    for (const int64_t cp : {1, 2, 4, 8}) {
      for (const int64_t pp : {1, 2, 4, 8, 16}) {
        if (tp * cp > 8 || gpus % (tp * cp * pp) != 0) continue;
        spec::Recipe next = recipe;
        next.parallel.tp = tp;
        next.parallel.cp = cp;
        next.parallel.pp = pp;
        next.parallel.dp = gpus / (tp * cp * pp);
        try {
          spec::resolve(next);
          spec::validate(next);
        } catch (const Error&) {
          continue;
        }
        out.push_back(std::move(next));
      }
    }
  }
  return out;
}

}  // namespace

std::vector<spec::Recipe> unpublished_choices(const Measurement& row) {
  std::vector<spec::Recipe> out = {row.recipe};
  for (const std::string& name : row.free) {
    if (name == "layout") {
      out = all_layouts(row.recipe);
      continue;
    }
    std::vector<spec::Recipe> grown;
    for (const spec::Recipe& recipe : out) {
      for (const int64_t value : {1, 2, 3, 4, 6, 8, 12, 16}) {
        spec::Recipe next = recipe;
        if (name == "micro_batch") {
          next.batch.micro = value;
        } else {
          next.parallel.vpp = value;
        }
        try {
          spec::validate(next);
        } catch (const Error&) {
          continue;
        }
        grown.push_back(std::move(next));
      }
    }
    out = std::move(grown);
  }
  return out;
}

namespace {

// Parts of a layer in the order of the work that they recompute.
constexpr spec::Parts kRepeated[] = {
    spec::kPartActivation,
    spec::kPartActivation | spec::kPartNorms,
    spec::kPartActivation | spec::kPartNorms | spec::kPartAttention,
    spec::kPartActivation | spec::kPartNorms | spec::kPartMlp,
    spec::kPartActivation | spec::kPartNorms | spec::kPartMlp | spec::kPartAttention,
};

class Memory {
 public:
  Memory(const Measurement& row, const catalog::System& system)
      : row_(row), system_(system), constants_(assumed_constants()) {}

  MemoryPrediction of(const spec::Recipe& recipe) const {
    return predict_memory(recipe, row_.profile, system_, constants_);
  }

 private:
  const Measurement& row_;
  const catalog::System& system_;
  Constants constants_;
};

std::optional<spec::Recipe> with_recomputation(const spec::Recipe& recipe, const Memory& memory) {
  spec::Recipe next = recipe;
  for (const spec::Parts parts : kRepeated) {
    next.recompute = {spec::RecomputeMode::selective, parts, 0};
    if (memory.of(next).fits) return next;
  }
  next.recompute = {spec::RecomputeMode::full, 0, 0};
  if (memory.of(next).fits) return next;
  return std::nullopt;
}

std::optional<spec::Recipe> with_offloading(const spec::Recipe& recipe, const Memory& memory) {
  if (recipe.parallel.pp > 1) return std::nullopt;
  spec::Recipe next = recipe;
  const auto fits = [&](int64_t layers) {
    next.offload.activations = layers;
    return memory.of(next).fits;
  };
  int64_t too_few = 0;
  int64_t enough = recipe.model.layers;
  if (!fits(enough)) return std::nullopt;
  while (enough - too_few > 1) {
    const int64_t middle = (enough + too_few) / 2;
    (fits(middle) ? enough : too_few) = middle;
  }
  next.offload.activations = enough;
  return next;
}

std::string assumed_text(const spec::Recipe& recipe) {
  if (recipe.offload.enabled()) {
    return fmt::format("{} of {} layers on the host", recipe.offload.activations,
                       recipe.model.layers);
  }
  return spec::recompute_text(recipe.recompute);
}

}  // namespace

FittingChoices fitting_choices(const Measurement& row, const catalog::System& system) {
  const Memory memory(row, system);
  const std::vector<spec::Recipe> recipes = unpublished_choices(row);
  FittingChoices out;
  std::vector<double> bytes;
  for (const spec::Recipe& recipe : recipes) {
    const MemoryPrediction held = memory.of(recipe);
    bytes.push_back(held.bytes);
    if (held.fits) out.recipes.push_back(recipe);
  }
  if (!out.recipes.empty() || recipes.empty()) return out;
  if (!row.recompute_stated) {
    const bool has_link = system.chip.entry.number_or("host_link_gigabytes_per_second", 0) > 0;
    std::vector<std::string> texts;
    for (const spec::Recipe& recipe : recipes) {
      std::vector<std::optional<spec::Recipe>> found = {with_recomputation(recipe, memory)};
      if (has_link) found.push_back(with_offloading(recipe, memory));
      for (std::optional<spec::Recipe>& one : found) {
        if (!one) continue;
        texts.push_back(assumed_text(*one));
        out.recipes.push_back(std::move(*one));
      }
    }
    if (!out.recipes.empty()) {
      texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
      out.assumed = "recomputation not stated: assumed " + join(texts, ", or ");
      return out;
    }
  }
  // To the accuracy of the memory model.
  constexpr double kDescribed = 1.1;
  out.fits = false;
  const double least = *std::min_element(bytes.begin(), bytes.end());
  for (size_t i = 0; i < recipes.size(); ++i) {
    if (bytes[i] <= kDescribed * least) out.recipes.push_back(recipes[i]);
  }
  return out;
}

}  // namespace tutti::plan
