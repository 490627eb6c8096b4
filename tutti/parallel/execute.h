// Runs the actions of spec::Schedule over the stage of one rank.
#pragma once

#include <functional>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/model/stage.h"
#include "tutti/spec/schedule.h"

namespace tutti::parallel {

struct StepHooks {
  // The tokens of micro-batch `micro`, in the batch arena; asked for once per micro-batch, in
  // order.
  std::function<model::MicroBatch(int64_t micro)> load;
  // After the loss of a micro-batch: stage.row_losses() holds its rows until the next one.
  std::function<void(int64_t micro)> loss_done;
  // In the last backward pass: the gradients of this layer and of all above it are final; with
  // every_layer in every backward pass.
  std::function<void(int64_t layer)> layer_done;
  bool every_layer = false;
  // After a backward pass whose gradients are to be summed over the ranks that hold the same
  // parameters.
  std::function<void()> reduce;
  // Before every action, where somebody wants to know.
  std::function<void(const spec::Action& action)> enter = {};
};

// Executes load, forward (with the loss and its gradient), backward and weight_gradient actions in
// their order; gradients end in the gradients arena, overwritten by the first micro-batch and added
// to by the others. A backward and the weight_gradient that follows it are run layer by layer, so
// one layer's workspace serves all. update, evaluate and save are their caller's; gathering is the
// stage's (model::LayerNeeds); actions of
// pipelines abort: spec::check_executable refuses such recipes before.
void execute_passes(const std::vector<spec::Action>& actions, model::Stage& stage,
                    engine::Stream& stream, float gradient_scale, const StepHooks& hooks);

}  // namespace tutti::parallel
