// The recipes that a measurement may describe, if it leaves settings open: micro-batch sizes,
// virtual stages, whole layouts (Measurement::free), and recomputation or offloading if neither the
// row nor its source states them (Measurement::recompute_stated).
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/measurement.h"

namespace tutti::plan {

// By Measurement::free: only valid recipes; a single one if nothing is open.
std::vector<spec::Recipe> unpublished_choices(const Measurement& row);

struct FittingChoices {
  std::vector<spec::Recipe> recipes;
  std::string assumed;  // recomputation and offloading, for display; empty: nothing
  bool fits = true;     // false: nothing fits, and `recipes` need least memory
};

// Those of unpublished_choices that fit into the memory of `system`. The run did fit: if none does
// and recomputation is not stated, for every choice the one with the least recomputation that fits,
// in this order: activations, norms, the attention (of latent attention the up-projections), the
// first projection, whole layers; and without pipeline stages also the fewest offloaded layers that
// suffice (NVIDIA/Megatron-LM, megatron/training/arguments.py: CPU offloading does not work with
// pipeline parallelism or recomputation).
FittingChoices fitting_choices(const Measurement& row, const catalog::System& system);

}  // namespace tutti::plan
