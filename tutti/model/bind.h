// Binds layers to parameters and saved tensors to memory by their names: the one place where the
// names of spec/model/params.h and spec/memory/memory.h meet the structures of this folder.
#pragma once

#include "tutti/model/block.h"
#include "tutti/model/embedding.h"
#include "tutti/model/groups.h"
#include "tutti/model/loss.h"
#include "tutti/model/memory.h"
#include "tutti/model/slots.h"
#include "tutti/spec/model/config.h"

namespace tutti::model {

Embedding bind_embedding(const spec::ModelConfig& model, const Parameters& parameters,
                         const Groups& groups = {});
BlockLayer bind_block(const spec::ModelConfig& model, const Parameters& parameters, int64_t layer,
                      const RopeFrequencies& frequencies, int64_t sequence, uint64_t seed,
                      const Groups& groups = {});
NormLayer bind_final_norm(const spec::ModelConfig& model, const Parameters& parameters);
LossLayer bind_loss(const spec::ModelConfig& model, const Parameters& parameters,
                    const Groups& groups = {});

// The recipe's format below 16 bits and the places for operands; empty without one.
NarrowProducts bind_narrow(spec::Precision precision, const Memory& memory);
// Gives it to the projections of block `layer`, which is number `slot` of the rank's blocks with
// products below 16 bits; or to the head.
void set_narrow(const NarrowProducts& narrow, int64_t layer, int64_t slot, uint64_t seed,
                const Memory& memory, BlockLayer& block);
void set_narrow(const NarrowProducts& narrow, const Memory& memory, LossLayer& loss);

// Slot number `slot` of a kind of blocks; what recomputation drops is in the slot that they share.
BlockSlot bind_block_slot(const spec::ModelConfig& model, const Memory& memory, SlotKind kind,
                          int64_t slot);
// What block_forward must repeat before the backward pass of a layer of this kind: that which
// recomputation dropped; no step at all for a layer that kept everything.
BlockSteps bind_block_restore(const Memory& memory, SlotKind kind);
HeadSlot bind_head_slot(const spec::ModelConfig& model, const Memory& memory, int64_t slot);
// A tensor of the workspace that is not in every map; empty then.
engine::Vector bind_step_word(const Memory& memory, const char* name);
// What a block's backward works in, without what differs from layer to layer: d_branch (but with
// delayed weight gradients), d_branch_next, their magnitudes, d_residual and the sums of routers.
// slot >= 0: what weight gradients read is in this slot of the delayed ones; -1: all in the
// workspace.
WorkSlot bind_work_slot(const spec::ModelConfig& model, const Memory& memory, bool routed,
                        int64_t slot);
// Which gradients below the first adapter of block 0 nobody wants; none without adapters.
struct Unwanted {
  bool d_norm1 = false, d_attention = false, d_norm2 = false, d_mlp = false;
};
Unwanted below_lowest_adapter(const spec::ModelConfig& model, const spec::LoraConfig& lora);
void remove(const Unwanted& unwanted, BlockWork& work);
// Of a stage that shares its layers: with whom, and the memory that exchanges take. `sizes` is
// for all layers.
void bind_groups(const Memory& memory, const Groups& groups, ExchangeSizes& sizes,
                 BlockLayer& block);
LossWork bind_loss_work(const Memory& memory);

}  // namespace tutti::model
