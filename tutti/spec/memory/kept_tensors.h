// What a layer keeps for its backward pass in one run: the profile's list, with what the run's
// frozen weights and precision change of it.
//
// Frozen weights (spec/recipe/lora.h) need no gradient, so nothing keeps what they were multiplied
// with (TransformerEngine, pytorch/module/linear.py and layernorm_linear.py: the input is saved
// only where the weight requires a gradient). Of a published implementation
//   norm1.y, norm2.y, mlp.act   are left where an adapter reads them, and with adapter dropout are
//                               the dropped copy that it reads
//   attention.out               stays, because the attention's own backward pass reads it; an
//                               adapter with dropout of the projection after it keeps a copy more
//   NAME.lora                   the adapter's inner product, r columns
// Products in 8 bits and fewer keep their input as they read it, in the format of the precision
// (the same files: what is saved is the quantized tensor). Profile::narrow_kept_inputs says which
// implementations do; the input of the activation stays in the compute type, unless
// Profile::narrow_activation_input (Megatron-Core: activation_func_fp8_input_store, one byte).
//
// Profile tutti describes both by itself, and its list is returned as it is.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/spec/model/params.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

std::vector<SavedTensor> kept_tensors(const Recipe& recipe, const Profile& profile);

// Frozen elements of a rank on pipeline rank `stage` that lie in memory in the format of the
// recipe's precision only (Profile::narrow_frozen_weights): those of the blocks' matrices. 0 from
// 16 bits on, without adapters, and with ZeRO stage 3.
int64_t narrow_frozen_elements(const ParamTable& table, const Recipe& recipe,
                               const Profile& profile, int64_t stage);

// Bytes that such an element takes: of a format with one scale for a tensor one copy serves every
// product; scales of blocks run along rows, so there it takes one for rows and one for columns.
double narrow_frozen_bytes(Precision precision);

}  // namespace tutti::spec
