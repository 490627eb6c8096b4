// What a measurement leaves open, as the recipes that it may have been: sizes of the micro-batch,
// virtual stages, whole layouts (Measurement::free), and what it recomputed or kept on the host
// where neither the row nor its source says so (Measurement::recompute_stated).
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/measurement.h"

namespace tutti::plan {

// By Measurement::free: only possible ones; the recipe alone when nothing is open.
std::vector<spec::Recipe> unpublished_choices(const Measurement& row);

struct FittingChoices {
  std::vector<spec::Recipe> recipes;
  std::string assumed;  // of recomputation and offloading, for people; empty: nothing
  bool fits = true;     // false: nothing does, and `recipes` need least
};

// Those of unpublished_choices that fit into the memory of `system`. It ran: where none fits and
// nothing is said of recomputation, of every choice the one with the least work repeated that fits,
// in this order: activations, norms, the attention (of latent attention the projections up), the
// first projection, whole layers; and without pipeline stages also as few layers as suffice whose
// activations leave for the host (NVIDIA/Megatron-LM, megatron/training/arguments.py: CPU
// offloading does not work with pipeline parallelism or recomputation).
FittingChoices fitting_choices(const Measurement& row, const catalog::System& system);

}  // namespace tutti::plan
