// Allocates the slots of arena "activations": in-flight micro-batches take theirs before their
// forward pass and return them after their weight gradients. The stages of a rank share one pool.
// Nothing is allocated after construction.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tutti/engine/tensor.h"
#include "tutti/model/block.h"
#include "tutti/model/memory.h"
#include "tutti/spec/model/config.h"

namespace tutti::model {

enum class SlotKind {
  block,
  block_recomputed,
  routed,
  routed_recomputed,
  head,
  delayed,
  delayed_routed
};
inline constexpr size_t kSlotKinds = 7;
const char* slot_name(SlotKind kind);  // in the memory map
SlotKind block_slot(bool routed, bool recomputed);

// Saved products of a block's adapters, or their gradients: [N, columns] c, empty without adapters.
struct AdapterColumns {
  engine::Matrix qkv, output, up, down;
};

// A layer's saved tensors in one slot.
struct BlockSlot {
  BlockSaved saved;
  AdapterColumns low_rank;
};

struct HeadSlot {
  NormSaved norm;
  engine::Matrix d_final;  // [N, H] c: gradient of norm.y; empty without training
};

// The tensors that a layer's weight gradients read, in one slot or in the workspace.
struct WorkSlot {
  BlockWork work;
  AdapterColumns d_low_rank;
};

class ActivationSlots {
 public:
  ActivationSlots(const spec::ModelConfig& model, const Memory& memory);

  // Number of free slots; 0 if the map has none of the kind.
  int64_t free(SlotKind kind) const { return static_cast<int64_t>(list(kind).size()); }
  // The slot that was returned last, at first the lowest; aborts if none is free.
  int64_t take(SlotKind kind);
  void give(SlotKind kind, int64_t slot);

  const BlockSlot& block(SlotKind kind, int64_t slot) const {
    return blocks_[static_cast<size_t>(kind)][static_cast<size_t>(slot)];
  }
  const HeadSlot& head(int64_t slot) const { return heads_[static_cast<size_t>(slot)]; }

  // Whether weight gradients run separately from backward passes (spec::peak_delayed); their
  // operands are then in slots of the `delayed` kinds.
  bool delays() const { return delays_; }
  // slot < 0: the workspace, which all layers of the kind share.
  const WorkSlot& work(bool routed, int64_t slot) const;
  // Workspace of forward passes.
  const BlockWork& forward_work() const { return forward_work_; }
  // The adapters' input after dropout [N, >= in] c; empty without their dropout.
  engine::Matrix adapter_input() const { return adapter_input_; }

 private:
  const std::vector<int64_t>& list(SlotKind kind) const { return free_[static_cast<size_t>(kind)]; }

  bool delays_ = false;
  std::array<std::vector<int64_t>, kSlotKinds> free_;
  std::array<std::vector<BlockSlot>, 4> blocks_;  // of the first kinds
  std::vector<HeadSlot> heads_;
  BlockWork forward_work_;
  engine::Matrix adapter_input_;
  std::array<WorkSlot, 2> shared_work_;  // dense, routed
  std::array<std::vector<WorkSlot>, 2> delayed_work_;
};

}  // namespace tutti::model
