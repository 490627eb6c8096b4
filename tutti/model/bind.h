// Binds layers to parameters and saved tensors to memory by their names: the one place where the
// names of spec/params.h and spec/memory.h meet the structures of this folder.
#pragma once

#include <span>

#include "tutti/model/block.h"
#include "tutti/model/embedding.h"
#include "tutti/model/groups.h"
#include "tutti/model/loss.h"
#include "tutti/model/memory.h"
#include "tutti/spec/model_config.h"

namespace tutti::model {

Embedding bind_embedding(const spec::ModelConfig& model, const Parameters& parameters,
                         const Groups& groups = {});
BlockLayer bind_block(const spec::ModelConfig& model, const Parameters& parameters, int64_t layer,
                      engine::Vector rope_frequency, uint64_t seed, const Groups& groups = {});
NormLayer bind_final_norm(const spec::ModelConfig& model, const Parameters& parameters);
LossLayer bind_loss(const spec::ModelConfig& model, const Parameters& parameters,
                    const Groups& groups = {});

BlockSaved bind_block_saved(const spec::ModelConfig& model, const Memory& memory, int64_t layer);
// What block_forward must repeat before the backward pass of `layer`: that which recomputation
// dropped; no step at all for a layer that kept everything.
BlockSteps bind_block_restore(const Memory& memory, int64_t layer);
NormSaved bind_final_saved(const spec::ModelConfig& model, const Memory& memory);
BlockWork bind_block_work(const spec::ModelConfig& model, const Memory& memory, int64_t layer);
// Of a stage that only evaluates.
BlockWork bind_forward_work(const Memory& memory);
// What adapters of a block keep and, where the memory trains, work in.
void bind_adapter_memory(const Memory& memory, int64_t layer, BlockLayer& block);
// Of a stage that shares its layers: with whom, and the memory that exchanges take. `counts` is
// host memory for two numbers per expert parallel rank.
void bind_groups(const Memory& memory, const Groups& groups, std::span<int64_t> counts,
                 BlockLayer& block);
// Empties the gradients below the first adapter of block 0; nothing without adapters.
void end_backward_at_lowest_adapter(const spec::ModelConfig& model, const spec::LoraConfig& lora,
                                    BlockWork& work);
LossWork bind_loss_work(const Memory& memory);

}  // namespace tutti::model
