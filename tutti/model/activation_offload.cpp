#include "tutti/model/activation_offload.h"

#include <array>

#include "tutti/base/check.h"

namespace tutti::model {
namespace {

constexpr size_t kBlockKinds = 4;  // the first of SlotKind

}  // namespace

ActivationOffload::ActivationOffload(const spec::Offload& offload,
                                     const std::vector<SlotKind>& kinds) {
  static_assert(kBlockKinds * spec::kOffloadPlaces == kPoints);
  if (offload.activations == 0) return;
  std::array<std::vector<int64_t>, kBlockKinds> covered;
  turns_.resize(kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    turns_[i].kind = kinds[i];
    if (!offload.covers(layer)) continue;
    std::vector<int64_t>& list = covered[static_cast<size_t>(kinds[i])];
    const auto number = static_cast<int64_t>(list.size());
    turns_[i].number = number;
    if (number >= spec::kOffloadPlaces) {
      turns_[i].layer = list[static_cast<size_t>(number - spec::kOffloadPlaces)];
      turns_[static_cast<size_t>(turns_[i].layer)].leaves = true;
    }
    list.push_back(layer);
  }
}

int64_t ActivationOffload::shares_with(size_t layer) const {
  return turns_.empty() ? -1 : turns_[layer].layer;
}

void ActivationOffload::use(const Memory& memory, const engine::CopyQueues& queues) {
  memory_ = &memory;
  out_ = queues.out.get();
  in_ = queues.in.get();
  for (Turn& turn : turns_) {
    if (turn.leaves) {
      turn.host = memory.slot("offloaded_activations", slot_name(turn.kind), turn.number);
    }
  }
}

const ActivationOffload::Turn& ActivationOffload::turn_of(size_t layer) const {
  static const Turn none;
  if (turns_.empty()) return none;
  TUTTI_CHECK(memory_ != nullptr, "layer {} is to be offloaded without queues", layer);
  return turns_[layer];
}

// The place is still on its way out.
void ActivationOffload::before_forward(size_t layer) const {
  const Turn& turn = turn_of(layer);
  if (turn.layer >= 0) out_->stream_after(point(turn));
}

// The layer after it only reads what this one keeps.
void ActivationOffload::after_forward(size_t layer, int64_t slot) const {
  const Turn& turn = turn_of(layer);
  if (!turn.leaves) return;
  const Memory::SlotBytes place = memory_->slot("activations", slot_name(turn.kind), slot);
  out_->after_stream();
  out_->copy(turn.host.data, place.data, place.bytes);
  out_->mark(point(turn));
}

void ActivationOffload::before_backward(size_t layer) const {
  const Turn& turn = turn_of(layer);
  if (turn.leaves) in_->stream_after(point(turn));
}

// That the other one is out the stream has waited for before this layer's forward pass.
void ActivationOffload::after_backward(size_t layer, int64_t slot) const {
  const Turn& turn = turn_of(layer);
  if (turn.layer < 0) return;
  const Turn& other = turns_[static_cast<size_t>(turn.layer)];
  const Memory::SlotBytes place = memory_->slot("activations", slot_name(turn.kind), slot);
  in_->after_stream();
  in_->copy(place.data, other.host.data, place.bytes);
  in_->mark(point(other));
}

}  // namespace tutti::model
