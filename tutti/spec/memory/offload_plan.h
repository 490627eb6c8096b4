// Where what a rank's covered layers keep (spec/recipe/offload.h, activations) lies from pass to
// pass of a step: in which place of the device, and when it travels. The memory map counts from it,
// the trainer executes it.
//
// Layers of one kind have the places together, whatever chunk and micro-batch they are of: two
// where one micro-batch is under way at a time, three where several are, or fewer where that holds
// all. In the order of the schedule's passes, a layer that is not in a place takes one: for its
// forward pass one whose contents nobody needs any more, else the one used longest ago; for a later
// pass the same, but not the one used just before it, so that there is a pass to hide the copy
// behind. (So with two places and one micro-batch, the last two layers stay where they are, and the
// others take turns.) What is ever brought back has gone to the host right after its forward pass,
// once.
//
// A copy to the host begins when the forward pass is done, one from the host as soon as the place
// is not needed any more: the next layer's forward pass reads the output that a layer keeps.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::spec {

// Where several are under way: one layer is at work, its input is the output of another, and what
// the next pass needs, of another micro-batch, is on its way.
inline constexpr int64_t kOffloadPlacesInFlight = 3;

// One pass of one layer.
struct OffloadUse {
  ActionKind pass = ActionKind::forward;  // backward, weight_gradient (where it runs apart)
  int64_t micro = 0;
  int64_t chunk = 0;
  int64_t layer = 0;      // of the chunk
  int64_t place = 0;      // on the device
  int64_t host = -1;      // its slot on the host, where it leaves or arrives
  bool leaves = false;    // to the host, when the pass is done
  bool arrives = false;   // from the host, before it
  bool outgoing = false;  // what had the place leaves it still: the pass, or the copy in, waits
};

// A copy from the host, for `use`, begins when use `after` is done; where that is `use` itself,
// right before it.
struct OffloadArrival {
  int64_t use = 0;
  int64_t after = 0;
};

struct OffloadPlan {
  int64_t places = 0;      // on the device
  int64_t host_slots = 0;  // on the host
  int64_t leaving = 0;     // uses of a step
  int64_t arriving = 0;
  std::vector<OffloadUse> uses;          // in order
  std::vector<OffloadArrival> arrivals;  // by use
};

// Of the covered layers of pipeline rank `stage` that are routed or not, recompute or not. Empty
// where there are none.
OffloadPlan offload_plan(const Recipe& recipe, int64_t stage, bool routed, bool recomputes);

}  // namespace tutti::spec
