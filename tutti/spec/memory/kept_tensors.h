// The tensors that a layer keeps for its backward pass in one run: the profile's list, adjusted for
// the run's frozen weights and precision.
//
// Frozen weights (spec/recipe/lora.h) need no gradient, so their products do not keep their inputs
// (TransformerEngine, pytorch/module/linear.py and layernorm_linear.py: the input is saved only if
// the weight requires a gradient). In published implementations
//   norm1.y, norm2.y, mlp.act   are kept if an adapter reads them; with adapter dropout the dropped
//                               copy that it reads is kept instead
//   attention.out               is kept: attention's own backward pass reads it; an adapter with
//                               dropout on the projection after it keeps another copy
//   NAME.lora                   the adapter's inner product, r columns
// Products in 8 bits or fewer keep their inputs quantized, in the format of the precision (the same
// files save the quantized tensor). Profile::narrow_kept_inputs lists the implementations that do;
// the input of the activation stays in the compute type, unless Profile::narrow_activation_input
// (Megatron-Core: activation_func_fp8_input_store, one byte).
//
// Profile tutti describes both itself; its list is returned unchanged.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/spec/model/params.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

std::vector<SavedTensor> kept_tensors(const Recipe& recipe, const Profile& profile);

// Frozen elements of a rank on pipeline rank `stage` that are in memory only in the format of the
// recipe's precision (Profile::narrow_frozen_weights): the matrices of the blocks. 0 from 16 bits
// on, without adapters, and with ZeRO stage 3.
int64_t narrow_frozen_elements(const ParamTable& table, const Recipe& recipe,
                               const Profile& profile, int64_t stage);

// Bytes per such element: with one scale per tensor one copy serves every product; scales of blocks
// run along rows, so those formats need one copy for rows and one for columns.
double narrow_frozen_bytes(Precision precision);

}  // namespace tutti::spec
