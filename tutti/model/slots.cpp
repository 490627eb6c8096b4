#include "tutti/model/slots.h"

#include "tutti/base/check.h"
#include "tutti/model/bind.h"

namespace tutti::model {

const char* slot_name(SlotKind kind) {
  switch (kind) {
    case SlotKind::block: return "block";
    case SlotKind::block_recomputed: return "block.recomputed";
    case SlotKind::routed: return "block.moe";
    case SlotKind::routed_recomputed: return "block.moe.recomputed";
    case SlotKind::head: return "head";
    case SlotKind::delayed: return "delayed";
    case SlotKind::delayed_routed: return "delayed.moe";
  }
  return "?";
}

SlotKind block_slot(bool routed, bool recomputed) {
  if (routed) return recomputed ? SlotKind::routed_recomputed : SlotKind::routed;
  return recomputed ? SlotKind::block_recomputed : SlotKind::block;
}

ActivationSlots::ActivationSlots(const spec::ModelConfig& model, const Memory& memory) {
  const bool trains = memory.map().has("gradients");
  for (size_t k = 0; k < kSlotKinds; ++k) {
    const auto kind = static_cast<SlotKind>(k);
    const int64_t count = memory.repeats("activations", slot_name(kind));
    for (int64_t slot = count; slot-- > 0;) free_[k].push_back(slot);
    for (int64_t slot = 0; slot < count; ++slot) {
      switch (kind) {
        case SlotKind::block:
        case SlotKind::block_recomputed:
        case SlotKind::routed:
        case SlotKind::routed_recomputed:
          blocks_[k].push_back(bind_block_slot(model, memory, kind, slot));
          break;
        case SlotKind::head: heads_.push_back(bind_head_slot(model, memory, slot)); break;
        case SlotKind::delayed:
        case SlotKind::delayed_routed: {
          delays_ = true;
          const bool routed = kind == SlotKind::delayed_routed;
          delayed_work_[routed ? 1 : 0].push_back(bind_work_slot(model, memory, routed, slot));
          break;
        }
      }
    }
  }
  for (const bool routed : {false, true}) {
    const bool any = !blocks_[static_cast<size_t>(block_slot(routed, false))].empty() ||
                     !blocks_[static_cast<size_t>(block_slot(routed, true))].empty();
    if (any && trains && !delays_) {
      shared_work_[routed ? 1 : 0] = bind_work_slot(model, memory, routed, -1);
    }
  }
  forward_work_.branch = memory.matrix("workspace", "step", 0, "branch");
  if (memory.has("workspace", "step", "lora.input")) {
    adapter_input_ = memory.matrix("workspace", "step", 0, "lora.input");
  }
}

int64_t ActivationSlots::take(SlotKind kind) {
  std::vector<int64_t>& from = free_[static_cast<size_t>(kind)];
  TUTTI_CHECK(!from.empty(), "no slot '{}' is free: the memory map has too few of them",
              slot_name(kind));
  const int64_t slot = from.back();
  from.pop_back();
  return slot;
}

void ActivationSlots::give(SlotKind kind, int64_t slot) {
  free_[static_cast<size_t>(kind)].push_back(slot);
}

const WorkSlot& ActivationSlots::work(bool routed, int64_t slot) const {
  const size_t index = routed ? 1 : 0;
  if (slot < 0) return shared_work_[index];
  return delayed_work_[index][static_cast<size_t>(slot)];
}

}  // namespace tutti::model
