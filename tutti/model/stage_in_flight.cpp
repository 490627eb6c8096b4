// In-flight micro-batches of a stage: their slots, and what layers find there.
#include <algorithm>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/model/stage.h"

namespace tutti::model {

Stage::InFlight& Stage::in_flight(int64_t micro) {
  return const_cast<InFlight&>(std::as_const(*this).in_flight(micro));
}

const Stage::InFlight& Stage::in_flight(int64_t micro) const {
  for (const InFlight& one : in_flight_) {
    if (one.micro == micro) return one;
  }
  check_failed(__FILE__, __LINE__, "in flight",
               fmt::format("micro-batch {} is not in the stage of layers {} to {}", micro,
                           share_.layers.first, share_.layers.first + share_.layers.count - 1));
}

bool Stage::has_room() const {
  const bool is_free = std::any_of(in_flight_.begin(), in_flight_.end(),
                                   [](const InFlight& one) { return one.micro == -1; });
  if (!is_free || (receives_apart() && !offload_->has_input())) return false;
  for (size_t kind = 0; kind < kSlotKinds; ++kind) {
    if (slots_->free(static_cast<SlotKind>(kind)) < slots_needed_[kind]) return false;
  }
  return true;
}

void Stage::enter(int64_t micro) {
  InFlight& one = in_flight(-1);
  one.micro = micro;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (offloaded_[i] < 0) one.blocks[i] = slots_->take(kinds_[i]);
  }
  if (receives_apart()) one.input = offload_->take_input();
  if (share_.last) one.head = slots_->take(SlotKind::head);
}

void Stage::leave(int64_t micro) {
  InFlight& one = in_flight(micro);
  one.micro = -1;
  for (size_t i = blocks_.size(); i-- > 0;) {
    if (offloaded_[i] < 0) slots_->give(kinds_[i], one.blocks[i]);
  }
  if (share_.last) slots_->give(SlotKind::head, one.head);
}

engine::Matrix Stage::input(int64_t micro) const {
  const InFlight& one = in_flight(micro);
  return receives_apart() ? offload_->input(one.input) : first_residual(one);
}

void Stage::begin_layer(InFlight& in_flight, size_t index, spec::ActionKind pass) const {
  if (offloaded_[index] < 0) return;
  in_flight.blocks[index] = offload_->begin(kinds_[index], {.pass = pass,
                                                            .chunk = share_.chunk,
                                                            .micro = in_flight.micro,
                                                            .layer = static_cast<int64_t>(index)});
}

void Stage::end_layer(const InFlight& in_flight, size_t index, spec::ActionKind pass) const {
  if (offloaded_[index] < 0) return;
  offload_->end(kinds_[index], {.pass = pass,
                                .chunk = share_.chunk,
                                .micro = in_flight.micro,
                                .layer = static_cast<int64_t>(index)});
}

const BlockSlot& Stage::slot_of(const InFlight& in_flight, size_t index) const {
  return slots_->block(kinds_[index], in_flight.blocks[index]);
}

// The layer with the adapters' memory of this micro-batch.
BlockLayer Stage::layer_of(const InFlight& in_flight, size_t index, bool training) const {
  BlockLayer layer = blocks_[index];
  layer.moe.exchange.in_flight = &in_flight - in_flight_.data();
  if (!training) layer.dropout = layer.adapter_dropout = 0;
  const AdapterColumns& columns = slot_of(in_flight, index).low_rank;
  const WorkSlot& work = slots_->work(bool(layer.moe), in_flight.delayed[index]);
  const auto bind = [&](Linear& linear, engine::Matrix kept, engine::Matrix gradient) {
    linear.adapters.low_rank = kept;
    linear.adapters.d_low_rank = gradient;
    linear.adapters.input = slots_->adapter_input();
  };
  bind(layer.attention.qkv, columns.qkv, work.d_low_rank.qkv);
  bind(layer.attention.output, columns.output, work.d_low_rank.output);
  bind(layer.mlp.up, columns.up, work.d_low_rank.up);
  bind(layer.mlp.down, columns.down, work.d_low_rank.down);
  return layer;
}

BlockWork Stage::work_of(const InFlight& in_flight, size_t index, engine::Matrix d_residual) const {
  const auto d_branch = [&](size_t i) {
    if (!slots_->delays()) return d_branches_[i % 2];
    return slots_->work(bool(blocks_[i].moe), in_flight.delayed[i]).work.d_branch;
  };
  BlockWork work = slots_->work(bool(blocks_[index].moe), in_flight.delayed[index]).work;
  work.d_residual = d_residual;
  work.d_branch = d_branch(index);
  work.d_branch_next = index > 0 ? d_branch(index - 1) : engine::Matrix{};
  // Only norms store the amax of a branch's gradient: none did for the output of other stages.
  const bool from_norm = share_.last || index + 1 < blocks_.size();
  work.d_branch_amax = {d_branch_amax_[index % 2], from_norm && d_branch_amax_[index % 2]};
  if (index > 0) work.d_branch_next_amax = d_branch_amax_[(index - 1) % 2];
  work.moe.load = loads_[index];
  work.moe.sums = sums_[index];
  if (share_.first && index == 0) remove(unwanted_, work);
  return work;
}

}  // namespace tutti::model
