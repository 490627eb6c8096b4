#include "tutti/model/activation_offload.h"

#include "tutti/base/check.h"

namespace tutti::model {

ActivationOffload::ActivationOffload(const spec::Recipe& recipe, int64_t stage,
                                     const Memory& memory, ActivationSlots& slots,
                                     const engine::CopyQueues& queues)
    : out_(queues.out.get()), in_(queues.in.get()) {
  static_assert(kPoints + spec::kOffloadBuffers <= engine::CopyQueue::kPoints);
  for (const bool routed : {false, true}) {
    for (const bool recomputes : {false, true}) {
      const SlotKind name = block_slot(routed, recomputes);
      Kind& kind = kind_of(name);
      kind.plan = spec::offload_plan(recipe, stage, routed, recomputes);
      for (int64_t i = 0; i < kind.plan.device_slots; ++i) {
        kind.slots.push_back(slots.take(name));
        kind.device.push_back(memory.slot("activations", slot_name(name), kind.slots.back()));
      }
      for (int64_t slot = 0; slot < kind.plan.host_slots; ++slot) {
        kind.host.push_back(memory.slot("offloaded_activations", slot_name(name), slot));
      }
    }
  }
  const int64_t boundaries = memory.repeats("workspace", "boundary");  // 0: one stage
  if (boundaries == 0 || !memory.has("workspace", "boundary", "receive")) return;
  for (int64_t i = 0; i < boundaries; ++i) {
    inputs_.push_back(memory.matrix("workspace", "boundary", i, "receive"));
    free_inputs_.push_back(i);
  }
}

const spec::OffloadUse& ActivationOffload::use_of(const Kind& kind, const Pass& pass) const {
  TUTTI_CHECK(!kind.plan.uses.empty(), "layer {} is not offloaded", pass.layer);
  const spec::OffloadUse& use = kind.plan.uses[kind.next_use % kind.plan.uses.size()];
  TUTTI_CHECK(use.pass == pass.pass && use.chunk == pass.chunk && use.micro == pass.micro &&
                  use.layer == pass.layer,
              "{} of layer {} of micro-batch {}, chunk {}; {} of layer {} of micro-batch {}, chunk "
              "{} is next",
              spec::action_name(pass.pass), pass.layer, pass.micro, pass.chunk,
              spec::action_name(use.pass), use.layer, use.micro, use.chunk);
  return use;
}

int64_t ActivationOffload::begin(SlotKind kind, const Pass& pass) {
  Kind& of = kind_of(kind);
  const spec::OffloadUse& use = use_of(of, pass);
  if (use.arrives) {
    in_->stream_after(point(kind, use.slot));
  } else if (use.outgoing) {
    out_->stream_after(point(kind, use.slot));
  }
  return of.slots[static_cast<size_t>(use.slot)];
}

void ActivationOffload::end(SlotKind kind, const Pass& pass) {
  Kind& of = kind_of(kind);
  use_of(of, pass);  // checks the order
  of.next_use = of.next_use % of.plan.uses.size() + 1;
}

void ActivationOffload::leave(SlotKind kind) {
  const Kind& of = kind_of(kind);
  const spec::OffloadUse& use = of.plan.uses[of.next_use - 1];
  TUTTI_CHECK(use.leaves, "layer {} stays on the device", use.layer);
  const Memory::SlotBytes& device = of.device[static_cast<size_t>(use.slot)];
  out_->after_stream();
  out_->copy(of.host[static_cast<size_t>(use.host)].data, device.data, device.bytes);
  out_->mark(point(kind, use.slot));
  bytes_out_ += device.bytes;
}

// Copies into a slot that the stream no longer uses. The contents were copied out before the slot
// was reassigned, and the pass that took it waited for that.
void ActivationOffload::fetch(SlotKind kind) {
  Kind& of = kind_of(kind);
  const spec::OffloadArrival& arrival = of.plan.arrivals[of.next_arrival];
  of.next_arrival = (of.next_arrival + 1) % of.plan.arrivals.size();
  const spec::OffloadUse& use = of.plan.uses[static_cast<size_t>(arrival.use)];
  const Memory::SlotBytes& device = of.device[static_cast<size_t>(use.slot)];
  in_->after_stream();
  if (use.outgoing) in_->after(*out_, point(kind, use.slot));
  in_->copy(device.data, of.host[static_cast<size_t>(use.host)].data, device.bytes);
  in_->mark(point(kind, use.slot));
  bytes_in_ += device.bytes;
}

// Neighbouring layers have different slots: a layer reads what the previous one keeps.
int64_t ActivationOffload::slot_outside_training(SlotKind kind, int64_t number) const {
  const Kind& of = kinds_[static_cast<size_t>(kind)];
  return of.slots[static_cast<size_t>(number) % of.slots.size()];
}

int64_t ActivationOffload::take_input() {
  TUTTI_CHECK(!free_inputs_.empty(), "no free buffer to receive the input of a stage");
  const int64_t input = free_inputs_.back();
  free_inputs_.pop_back();
  return input;
}

}  // namespace tutti::model
