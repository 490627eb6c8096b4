// Offload plan: where the activations of a rank's covered layers (spec/recipe/offload.h,
// activations) are during a step: in which slot of the device, and when they are copied. The memory
// map takes its counts from it, the trainer executes it.
//
// Layers of one kind share the device slots, across chunks and micro-batches: two if one
// micro-batch is in flight at a time, three if several are, or fewer if that holds all. In the
// order of the schedule's passes, a layer without a slot takes one. For its forward pass it takes a
// slot whose contents are no longer needed, else the least recently used one; for a later pass
// likewise, but not the slot used just before it, so that a pass can hide the copy. (So with two
// slots and one micro-batch, the last two layers stay where they are, and the others alternate.)
// Activations that are ever fetched were copied to the host once, right after their forward pass.
//
// A copy to the host begins when the forward pass is done, a copy from the host as soon as the slot
// is free: the next layer's forward pass reads the output that a layer keeps.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::spec {

// With several in-flight micro-batches: one layer is active, its input is the output of another,
// and the activations of the next pass, of another micro-batch, are being copied.
inline constexpr int64_t kOffloadSlotsInFlight = 3;

// One pass of one layer.
struct OffloadUse {
  ActionKind pass = ActionKind::forward;  // backward, weight_gradient (if it runs separately)
  int64_t micro = 0;
  int64_t chunk = 0;
  int64_t layer = 0;      // of the chunk
  int64_t slot = 0;       // of the device
  int64_t host = -1;      // slot of the host, if it leaves or arrives
  bool leaves = false;    // copied to the host after the pass
  bool arrives = false;   // copied from the host before the pass
  bool outgoing = false;  // the slot is still being copied out: the pass, or the copy in, waits
};

// A copy from the host for `use` begins when use `after` is done; if that is `use` itself, right
// before it.
struct OffloadArrival {
  int64_t use = 0;
  int64_t after = 0;
};

struct OffloadPlan {
  int64_t device_slots = 0;  // on the device
  int64_t host_slots = 0;    // on the host
  int64_t leaving = 0;       // copies to the host per step
  int64_t arriving = 0;
  std::vector<OffloadUse> uses;          // in order
  std::vector<OffloadArrival> arrivals;  // by use
};

// Of the covered layers of pipeline rank `stage` that are routed or not, recompute or not. Empty if
// there are none.
OffloadPlan offload_plan(const Recipe& recipe, int64_t stage, bool routed, bool recomputes);

}  // namespace tutti::spec
