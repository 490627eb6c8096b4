// Offloads the activations that a rank's layers keep for the backward pass to host memory, and
// fetches them again, while other layers compute: pass by pass in the order of the step's list of
// actions, as planned by spec::offload_plan. The stages of a rank share it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tutti/engine/copy_queue.h"
#include "tutti/model/memory.h"
#include "tutti/model/slots.h"
#include "tutti/spec/memory/offload_plan.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::model {

class ActivationOffload {
 public:
  static constexpr size_t kBlockKinds = 4;  // the first of SlotKind
  // Points of either queue that it uses: [0, kPoints).
  static constexpr int kPoints = static_cast<int>(kBlockKinds * spec::kOffloadSlotsInFlight);

  // For pipeline rank `stage`, before its stages are built: takes the layers' device slots from
  // `slots` permanently. Memory and queues must outlive it.
  ActivationOffload(const spec::Recipe& recipe, int64_t stage, const Memory& memory,
                    ActivationSlots& slots, const engine::CopyQueues& queues);

  // A pass of one layer in training.
  struct Pass {
    spec::ActionKind pass = spec::ActionKind::forward;
    int64_t chunk = 0;
    int64_t micro = 0;
    int64_t layer = 0;  // of the chunk
  };
  // Called before and after each pass of a covered layer, in the order of the schedule. begin
  // returns the slot of the activations that holds what the layer keeps, or into which it is to
  // write.
  int64_t begin(SlotKind kind, const Pass& pass);
  void end(SlotKind kind, const Pass& pass);
  // Starts the copy to the host of the activations of the layer whose pass ended last, or the copy
  // from the host of the next arrival of the step.
  void leave(SlotKind kind);
  void fetch(SlotKind kind);

  // The slot for the forward pass of the `number`-th covered layer of its kind in a chunk, outside
  // training.
  int64_t slot_outside_training(SlotKind kind, int64_t number) const;

  // Buffers for received inputs of stages that have no slot yet.
  bool has_input() const { return !free_inputs_.empty(); }
  int64_t take_input();
  void give_input(int64_t input) { free_inputs_.push_back(input); }
  engine::Matrix input(int64_t input) const { return inputs_[static_cast<size_t>(input)]; }

  int64_t bytes_out() const { return bytes_out_; }  // so far
  int64_t bytes_in() const { return bytes_in_; }

 private:
  struct Kind {
    spec::OffloadPlan plan;
    std::vector<int64_t> slots;             // of the activations, by device slot of the plan
    std::vector<Memory::SlotBytes> device;  // their memory on the device
    std::vector<Memory::SlotBytes> host;    // their memory on the host
    size_t next_use = 0;                    // of the step
    size_t next_arrival = 0;
  };
  Kind& kind_of(SlotKind kind) { return kinds_[static_cast<size_t>(kind)]; }
  const spec::OffloadUse& use_of(const Kind& kind, const Pass& pass) const;
  static int point(SlotKind kind, int64_t slot) {
    return static_cast<int>(static_cast<int64_t>(kind) * spec::kOffloadSlotsInFlight + slot);
  }

  std::array<Kind, kBlockKinds> kinds_;
  std::vector<engine::Matrix> inputs_;  // [N, H] f32
  std::vector<int64_t> free_inputs_;
  engine::CopyQueue* out_;
  engine::CopyQueue* in_;
  int64_t bytes_out_ = 0;
  int64_t bytes_in_ = 0;
};

}  // namespace tutti::model
