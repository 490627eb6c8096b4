// What one rank does in a training step, action by action: the trainer executes this list, its
// trace records it, `tutti plan explain --profile tutti --json` prices it.
//
// Passes (pass_order, schedule.h) are taken apart into layers, which zero_layers.h numbers. Parts:
//   forward, backward, weight_gradient  a layer. Where weight gradients do not run apart, a layer's
//                                       follows its input gradient. The embedding has no input
//                                       gradient, and its weight gradient is part of the backward
//                                       pass, as is the head's with ZeRO 2 and 3; the head's weight
//                                       itself gets its gradient with the loss.
//   gather, gather_backward             ZeRO 3: a layer, for the next pass over it; it begins
//                                       before the layer before it computes, unless both share a
//                                       buffer. ZeRO 1 and 2: a bucket, after the update of its
//                                       slice.
//   quantize                            a layer, before its forward pass in micro-batch 0, where
//                                       codes of its weights stay (Profile::quantizes_weights_once)
//   reduce                              ZeRO 2 and 3: a layer, after its weight gradient in every
//                                       micro-batch. ZeRO 0 and 1: a bucket, in the last
//                                       micro-batch after the layer that completes it. Then, once:
//                                       kTiedTable, kTensorCopies, kRouterLoads.
//   update                              kSelectionBias; then the rank's slices (zero.h), the last
//                                       one first
//   offload, fetch                      what a layer keeps of a micro-batch (offload_plan.h), after
//                                       its forward pass and before a later one; kOptimizerState,
//                                       of which the first pieces set out with the step
// What waits for a collective is not listed: the action that reads its result does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/spec/mesh/zero.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::spec {

// The layers of virtual stage `stage` in the order of its forward pass: the embedding on the first,
// blocks, the head on the last.
std::vector<int64_t> forward_layers(const Mesh& mesh, int64_t layers, int64_t stage);

// What of a step an action's part is, for people: "layer 3", "embedding", "bucket 0", "tied table";
// empty for a whole chunk, or the whole step.
std::string part_text(const Action& action, const Mesh& mesh);

// `layout`: of rank `at`. From the first load to the last update or gather; what follows some steps
// is in actions_after.
std::vector<Action> step_list(const Recipe& recipe, const Profile& profile,
                              const ParamLayout& layout, const Coordinates& at,
                              int64_t bucket_elements = kBucketElements);

// The forward passes of micro-batch 0, for evaluation.
std::vector<Action> evaluation_list(const Recipe& recipe, const Profile& profile,
                                    const ParamLayout& layout, const Coordinates& at);

// What is due after `step` (1 for the first): evaluate, save, or nothing.
std::vector<Action> actions_after(const Schedule& schedule, int64_t step);

}  // namespace tutti::spec
