// Binds layers to parameters and saved tensors to memory by name: only here the names of
// spec/model/params.h and spec/memory/memory.h meet the structures of this folder.
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

// The recipe's format below 16 bits and the buffers for operands; empty if the format has 16 bits
// or more.
NarrowProducts bind_narrow(spec::Precision precision, const Memory& memory);
// Sets them in the projections of block `layer`, which is number `slot` of the rank's blocks with
// products below 16 bits; or in the head.
void set_narrow(const NarrowProducts& narrow, int64_t layer, int64_t slot, uint64_t seed,
                const Memory& memory, BlockLayer& block);
void set_narrow(const NarrowProducts& narrow, const Memory& memory, LossLayer& loss);

// Slot number `slot` of a kind of block; tensors that recomputation drops are in the shared slot.
BlockSlot bind_block_slot(const spec::ModelConfig& model, const Memory& memory, SlotKind kind,
                          int64_t slot);
// The steps of block_forward that restore what recomputation dropped, before the backward pass of a
// layer of this kind; no step for a layer that kept everything.
BlockSteps bind_block_restore(const Memory& memory, SlotKind kind);
HeadSlot bind_head_slot(const spec::ModelConfig& model, const Memory& memory, int64_t slot);
// A tensor of the workspace that not every map has; empty if absent.
engine::Vector bind_step_word(const Memory& memory, const char* name);
// The workspace of a block's backward pass, without what differs between layers: d_branch (except
// with delayed weight gradients), d_branch_next, their amax, d_residual and the sums of routers.
// slot >= 0: tensors that weight gradients read are in this delayed slot; -1: all are in the
// workspace.
WorkSlot bind_work_slot(const spec::ModelConfig& model, const Memory& memory, bool routed,
                        int64_t slot);
// The gradients below the first adapter of block 0 that are not needed; none without adapters.
struct Unwanted {
  bool d_norm1 = false, d_attention = false, d_norm2 = false, d_mlp = false;
};
Unwanted below_lowest_adapter(const spec::ModelConfig& model, const spec::LoraConfig& lora);
void remove(const Unwanted& unwanted, BlockWork& work);
// Binds the groups that share a stage's layers, and the memory of their exchanges. `sizes` serves
// all layers.
void bind_groups(const Memory& memory, const Groups& groups, ExchangeSizes& sizes,
                 BlockLayer& block);
LossWork bind_loss_work(const Memory& memory);

}  // namespace tutti::model
