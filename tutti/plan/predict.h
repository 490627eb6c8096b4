// The duration of a step and what limits it, for one recipe on one system: prices the same spec
// values that the trainer executes.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tutti/plan/cost.h"
#include "tutti/plan/simulate.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::plan {

// The time of a step by cause, on its busiest pipeline rank; the parts sum to the step.
struct Split {
  double products = 0;  // GEMM and attention
  double memory = 0;    // bandwidth-bound operations
  double recompute = 0;
  double tp = 0;  // exposed communication
  double cp = 0;
  double ep = 0;
  double pp = 0;
  double dp = 0;
  double bubble = 0;
  double optimizer = 0;
  double offload = 0;  // exposed copies from and to memory of the host
  double host = 0;     // overhead and stragglers
  double total() const {
    return products + memory + recompute + tp + cp + ep + pp + dp + bubble + optimizer + offload +
           host;
  }
};

// The share of products in a step, including recomputed ones; 1 for an empty step.
double products_share(const Split& split);

// The parts by name: `key` for scripts, `label` for display.
struct SplitPart {
  const char* key;
  const char* label;
  double Split::*seconds;
};
const std::array<SplitPart, 12>& split_parts();

struct StepPrediction {
  double step_seconds = 0;
  double forward_seconds = 0;  // of its pipeline: the time to evaluate as many samples
  Split split;
  double tokens_per_second_per_chip = 0;
  double model_flops_per_second_per_chip = 0;  // convention causal
  // Of the chip's dense peak in the recipe's precision, by the three conventions of
  // spec/model/flops.h; the last counts a second forward pass if the recipe recomputes it.
  double mfu_causal = 0;
  double mfu_square = 0;
  double hardware_utilisation = 0;
  const char* bottleneck = "";  // the largest part of `split`
  // The parts of split.dp and split.pp before and after the pipeline's passes.
  double forward_seconds_per_micro_batch = 0;  // of the slowest pipeline rank
  double gather_seconds = 0;                   // weights
  double reduce_seconds = 0;                   // gradients, tied embeddings included
};

class Predictor {
 public:
  // Predictors may share a `simulator`, but not at the same time.
  Predictor(const catalog::System& system, const Constants& constants, PipelineSimulator& simulator)
      : system_(system), constants_(constants), simulator_(simulator) {}

  // `recipe` is resolved and valid. Throws unsupported if the chip lacks its precision.
  StepPrediction step(const spec::Recipe& recipe, const spec::Profile& profile);
  // `program` was built from `recipe`.
  StepPrediction step(const spec::Recipe& recipe, const spec::Program& program);

  const catalog::System& system() const { return system_; }
  const Constants& constants() const { return constants_; }

 private:
  const catalog::System& system_;
  const Constants& constants_;
  PipelineSimulator& simulator_;
};

// The part of traffic of `alone` seconds that `window` seconds of work do not hide, of which the
// share `usable` can.
inline double exposed_seconds(double alone, double window, double usable) {
  return alone > window * usable ? alone - window * usable : 0;
}

// For a rank's weights or gradients: `alone` seconds over all its chunks, during the passes of one
// micro-batch through them, `window` seconds. Without virtual stages only these can hide it. With
// them a chunk ends (begins) pp micro-batches before the next, and only the last one's share has
// just its own pass to hide behind.
inline double exposed_traffic(const spec::Mesh& mesh, double alone, double window, double usable) {
  if (mesh.vpp == 1) return exposed_seconds(alone, window, usable);
  const auto chunks = static_cast<double>(mesh.vpp);
  const double longer = window * (static_cast<double>(mesh.pp) * (chunks - 1) + 1) / chunks;
  return std::max(exposed_seconds(alone, longer, usable),
                  exposed_seconds(alone, window, usable) / chunks);
}

// The exposed part of reducing a rank's gradients, `alone` seconds over all its chunks, if they are
// not reduced in every micro-batch: the last reduction of a step, and of spec::reduces_rounds the
// earlier ones, which the passes of a whole round hide.
inline double exposed_reduce(const spec::Mesh& mesh, const spec::Profile& profile,
                             int64_t micro_batches, double alone, double window, double usable) {
  const double last = exposed_traffic(mesh, alone, window, usable);
  if (!spec::reduces_rounds(mesh, profile)) return last;
  const int64_t rounds = micro_batches / mesh.pp;
  return last + static_cast<double>(std::max<int64_t>(0, rounds - 1)) *
                    exposed_seconds(alone, window * static_cast<double>(mesh.pp), usable);
}

// `pass` plus the exposed weight traffic of its chunk: stage 3 of spec::held_zero gathers weights
// for every pass, stages 2 and 3 reduce gradients after every micro-batch.
PassSeconds with_weight_traffic(PassSeconds pass, int64_t zero, double chunk_gather,
                                double chunk_reduce, const Constants& constants);

// The time that the host and stragglers add to `work` seconds of a step on `ranks`.
double host_seconds(double work, int64_t ranks, const Constants& constants);

// The passes for the simulator, including exposed ZeRO-3 traffic.
std::vector<PassSeconds> pass_seconds(const Pricing& pricing, const spec::Recipe& recipe,
                                      const spec::Profile& profile, const Constants& constants);

// `profile`; if it is Tutti's own, the one that the trainer uses on the recipe's device
// (spec::tutti_profile_on) with the memory of `chip`.
spec::Profile profile_on(const spec::Profile& profile, const spec::Recipe& recipe,
                         const catalog::Chip& chip);

// The memory of the fullest rank: MemoryMap under the profile times the allocator's reserve, plus
// the memory of its process.
struct MemoryPrediction {
  double bytes = 0;            // of the fullest rank, with reserve and process
  double allocated_bytes = 0;  // without them
  int64_t stage = 0;
  std::vector<std::pair<std::string, double>> kinds;  // arena name, bytes
  bool fits = false;
};
// The pipeline ranks that include the fullest one: among neighbours with equal kinds and numbers of
// layers the first holds most, because later ones have fewer in-flight micro-batches.
std::vector<int64_t> memory_stages(const spec::Recipe& recipe);

MemoryPrediction predict_memory(const spec::Recipe& recipe, const spec::Profile& profile,
                                const catalog::System& system, const Constants& constants);

}  // namespace tutti::plan
