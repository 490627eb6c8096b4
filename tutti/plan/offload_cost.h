// The cost of offloading (spec/recipe/offload.h): copies over the link between a chip and its host
// that no work hides. With L the link's bandwidth per direction and r the share of a micro-batch's
// layers whose activations are copied out, or in:
//
//   state        n bytes in and as many out. Two buffers alternate, each copied in, updated and
//                copied out: max(update, n / L + update / 2), of which `update` is already counted
//   activations  a bytes out per micro-batch, during the forward passes of the layers that follow,
//                and in again during their backward passes: max(0, a / L - r forward) and
//                max(0, a / L - r backward); with delayed weight gradients twice in, and r at most
//                1
#pragma once

#include "tutti/catalog/systems.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::plan {

// Seconds of a rank's work that can hide copies.
struct OffloadWork {
  double forward = 0;   // per micro-batch
  double backward = 0;  // likewise, with recomputation and weight gradients
  double update = 0;
};

struct OffloadSeconds {    // exposed
  double state = 0;        // once per step
  double activations = 0;  // once per micro-batch
};

// For a rank on pipeline rank `stage` with the memory map `map`. Throws unsupported if the catalog
// lacks the bandwidth of the chip's link to its host (host_link_gigabytes_per_second of the chip).
OffloadSeconds price_offload(const spec::Recipe& recipe, int64_t stage, const spec::MemoryMap& map,
                             const catalog::Chip& chip, const OffloadWork& work);

}  // namespace tutti::plan
