// Moves what the layers of a stage keep for the way back to memory of the host and back again
// (spec/offload.h), while other layers compute. Layers of a kind that are covered take turns in two
// places of the arena "activations": what layer t (counted among them) keeps goes out after its
// forward pass, when layer t + 2 needs the place; it comes back when that one has gone backward.
// The last two of a kind stay where they are. Of one micro-batch at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/engine/copy_queue.h"
#include "tutti/model/memory.h"
#include "tutti/model/slots.h"
#include "tutti/spec/offload.h"

namespace tutti::model {

class ActivationOffload {
 public:
  // Points that it uses of either queue: [0, kPoints).
  static constexpr int kPoints = 8;

  ActivationOffload() = default;
  // kinds: of the layers of the stage, in order.
  ActivationOffload(const spec::Offload& offload, const std::vector<SlotKind>& kinds);

  // The layer whose place `layer` takes over; -1: it has one of its own.
  int64_t shares_with(size_t layer) const;

  // Before the first training pass; the queues and the memory outlive this.
  void use(const Memory& memory, const engine::CopyQueues& queues);

  // Around a layer's passes of training, which have `slot` of its kind. A call is free where the
  // layer is not covered.
  void before_forward(size_t layer) const;
  void after_forward(size_t layer, int64_t slot) const;
  void before_backward(size_t layer) const;
  void after_backward(size_t layer, int64_t slot) const;

 private:
  struct Turn {
    int64_t number = -1;  // among covered layers of its kind; -1: not covered
    int64_t layer = -1;   // two turns before
    bool leaves = false;
    SlotKind kind = SlotKind::block;
    Memory::SlotBytes host = {};  // where it goes, if it leaves
  };
  static int point(const Turn& turn) {
    return static_cast<int>(turn.kind) * static_cast<int>(spec::kOffloadPlaces) +
           static_cast<int>(turn.number % spec::kOffloadPlaces);
  }
  const Turn& turn_of(size_t layer) const;

  std::vector<Turn> turns_;  // by layer; empty: nothing is covered
  const Memory* memory_ = nullptr;
  engine::CopyQueue* out_ = nullptr;
  engine::CopyQueue* in_ = nullptr;
};

}  // namespace tutti::model
