// Routing statistics of a step, and the update of the selection biases. Both read the memory map's
// arena "routing", which the backward passes of a step fill.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tutti/engine/arena.h"
#include "tutti/engine/stream.h"
#include "tutti/model/memory.h"
#include "tutti/parallel/ranks.h"
#include "tutti/parallel/sharded_adamw.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/telemetry/events.h"

namespace tutti::train {

// Enqueued: adds up what all ranks with other tokens have counted; once per step.
void sum_routing(engine::Stream& stream, const parallel::Ranks& ranks, const model::Memory& memory);

// Means over the step's sequences (or tokens) and all routed layers, of this rank's part of them;
// the model must have experts.
// Waits for the stream.
telemetry::Routing routing_of_step(engine::Stream& stream, const spec::Recipe& recipe,
                                   const model::Memory& memory);

// The same of steps that are enqueued: what each has counted lies on the host, in a slot of its own
// for each of those that may be under way. What hosts then exchange goes through the group that
// carries that (comm::World::all), so none waits for what a device still computes.
class FetchedRouting {
 public:
  FetchedRouting(const engine::Stream& stream, const model::Memory& memory);
  // Enqueued, behind all that counts.
  void fetch(engine::Stream& stream, int64_t step_slot) const;
  // Of all pipeline stages. The stream must have come past fetch(). Collective.
  telemetry::Routing result(const spec::Recipe& recipe, const parallel::Ranks& ranks,
                            int64_t step_slot) const;

 private:
  engine::Matrix at(int64_t step_slot) const;

  engine::Matrix there_;  // where the passes count; empty without a routed layer
  std::optional<engine::Arena> arena_;
  engine::Matrix here_;                     // on the host: one slot per step, one below the other
  std::unique_ptr<engine::Stream> stream_;  // of the host
};

// Of the parts of all pipeline stages the whole.
void join_stages(engine::Stream& stream, const parallel::Ranks& ranks, telemetry::Routing& routing);

// Views of what this rank owns of one routed layer's selection bias (model.moe.router_bias), and
// the layer's load.
struct SelectionBias {
  engine::Vector load;     // [E] f32, of the step
  int64_t first = 0;       // the first expert of these biases
  engine::Vector bias;     // f32, in the master parameters
  engine::Vector weights;  // as many bf16, or empty
};

// Of every routed layer of rank `at`; none without selection biases.
std::vector<SelectionBias> bind_selection_biases(const spec::Recipe& recipe,
                                                 const spec::Coordinates& at,
                                                 const spec::ParamLayout& layout,
                                                 const model::Memory& memory,
                                                 const std::vector<parallel::OwnedSlice>& slices);

// Moves the biases towards the mean load of the step. Before the optimizer's update, which leaves
// them alone (they have no gradient) but hands weights on to other ranks; only where that update,
// which `scalars` describe, applies.
void update_selection_biases(engine::Stream& stream, const std::vector<SelectionBias>& biases,
                             double rate, const engine::UpdateScalars* scalars);

}  // namespace tutti::train
