// What the routers of a step did, and the update of their selection biases. Both read the memory
// map's arena "routing", which the backward passes of a step fill.
#pragma once

#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/model/memory.h"
#include "tutti/spec/params.h"
#include "tutti/spec/recipe.h"
#include "tutti/telemetry/events.h"

namespace tutti::train {

// Means over the step's sequences (or tokens) and routed layers; the model must have experts.
telemetry::Routing routing_of_step(const spec::Recipe& recipe, const model::Memory& memory);

// Views of one routed layer's selection bias (model.moe.router_bias) and its load.
struct SelectionBias {
  engine::Vector load;     // [E] f32, of the step
  engine::Vector bias;     // [E] f32, of the flat parameters
  engine::Vector weights;  // [E] bf16, or empty
};

// Of every routed layer; none without selection biases. `master` are the flat f32 parameters,
// `weights` their bf16 copy or empty.
std::vector<SelectionBias> bind_selection_biases(const spec::ModelConfig& model,
                                                 const spec::ParamLayout& layout,
                                                 const model::Memory& memory, engine::Vector master,
                                                 engine::Vector weights);

// Moves the biases towards the mean load of the step.
void update_selection_biases(engine::Stream& stream, const std::vector<SelectionBias>& biases,
                             double rate);

}  // namespace tutti::train
