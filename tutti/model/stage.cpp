#include "tutti/model/stage.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/rng.h"
#include "tutti/model/bind.h"
#include "tutti/model/layer_buffers.h"
#include "tutti/model/rope_frequency.h"
#include "tutti/model/tensor_parallel.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::model {

StageShare share_of(const spec::Recipe& recipe, int64_t rank, int64_t chunk) {
  const spec::Mesh& mesh = recipe.parallel;
  StageShare out;
  const auto layers_of = [&](int64_t number) {
    return spec::stage_layers(mesh, recipe.model.layers, number * mesh.pp + rank);
  };
  out.layers = layers_of(chunk);
  out.first = rank == 0 && chunk == 0;
  out.last = rank == mesh.pp - 1 && chunk == mesh.vpp - 1;
  out.alone = mesh.pp == 1;
  out.in_flight =
      spec::peak_in_flight_of_chunk(mesh, spec::make_schedule(recipe).micro_batches, rank, chunk);
  for (int64_t before = 0; before < chunk; ++before) {
    const spec::LayerRange range = layers_of(before);
    for (int64_t i = 0; i < range.count; ++i) {
      out.routed += spec::is_routed(recipe.model, range.first + i) ? 1 : 0;
      out.narrow_blocks += recipe.narrow.is_wide(range.first + i, recipe.model.layers) ? 0 : 1;
    }
  }
  out.chunk = chunk;
  out.recompute = recipe.recompute;
  out.offload = recipe.offload;
  out.precision = recipe.precision;
  out.narrow = recipe.narrow;
  out.fuses_norm_gradients = spec::tutti_profile_on(recipe).fuses_norm_gradients;
  return out;
}

Stage::Stage(const spec::ModelConfig& model, const spec::ParamLayout& layout, const Memory& memory,
             BatchShape shape, uint64_t seed, spec::Precision precision,
             const spec::NarrowConfig& narrow)
    : Stage(model, layout, memory, shape, seed, {},
            {.layers = {0, model.layers},
             .recompute = {spec::RecomputeMode::full, 0, 0},
             .precision = precision,
             .narrow = narrow},
            std::make_shared<ActivationSlots>(model, memory)) {}

Stage::Stage(const spec::ModelConfig& model, const spec::ParamLayout& layout, const Memory& memory,
             BatchShape shape, uint64_t seed, const Groups& groups, const StageShare& share,
             std::shared_ptr<ActivationSlots> slots, const spec::Mesh& mesh)
    : shape_(shape),
      groups_(groups),
      share_(share),
      slots_(std::move(slots)),
      trains_(memory.map().has("gradients")),
      overwrites_gradients_(memory.map().has("layer_gradients")),
      dropout_(static_cast<float>(model.dropout)),
      embedding_dropout_key_(stream_key(seed, "dropout", "embedding")),
      model_(model),
      memory_(&memory) {
  const DType compute = slots_->forward_work().branch.dtype;
  const Parameters parameters = bind_parameters(layout, mesh, memory, compute);
  if (model.positions == spec::Positions::rope) {
    rope_.all = memory.vector("workspace", "step", 0, "rope.frequency");
  }
  if (model.window_rope_theta > 0) {
    rope_.window = memory.vector("workspace", "step", 0, "rope.window_frequency");
  }
  if (share.first) embedding_ = bind_embedding(model, parameters, groups_);
  bind_layers(memory, parameters, seed);
  if (share.first) layers_.push_back(spec::kEmbeddingLayer);
  for (int64_t i = 0; i < share.layers.count; ++i) layers_.push_back(share.layers.first + i);
  if (share.last) layers_.push_back(spec::kHeadLayer);
  if (share.last) {
    final_norm_ = bind_final_norm(model, parameters);
    loss_ = bind_loss(model, parameters, groups_);
    if (share.narrow.head) {
      set_narrow(bind_narrow(share.precision, memory), memory, loss_);
      narrow_weights_.add(spec::kHeadLayer, loss_.head);
    }
    loss_work_ = bind_loss_work(memory);
    ++slots_needed_[static_cast<size_t>(SlotKind::head)];
  }
  if (trains_ && share.first) unwanted_ = below_lowest_adapter(model, layout.lora);

  const bool offloads = trains_ && share.offload.activations != 0;
  int64_t most = offloads ? share.in_flight : std::numeric_limits<int64_t>::max();
  for (size_t kind = 0; kind < kSlotKinds; ++kind) {
    if (slots_needed_[kind] == 0) continue;
    most = std::min(most, slots_->free(static_cast<SlotKind>(kind)) / slots_needed_[kind]);
  }
  in_flight_.resize(static_cast<size_t>(most));
  for (InFlight& one : in_flight_) {
    one.blocks.resize(blocks_.size());
    one.delayed.resize(blocks_.size(), -1);
  }
}

void Stage::bind_layers(const Memory& memory, const Parameters& parameters, uint64_t seed) {
  int64_t routed_before = share_.routed;
  int64_t narrow_before = share_.narrow_blocks;
  NarrowProducts narrow = bind_narrow(share_.precision, memory);
  narrow.stochastic = share_.narrow.stochastic_gradients;
  for (int64_t i = 0; i < share_.layers.count; ++i) {
    const int64_t layer = share_.layers.first + i;
    blocks_.push_back(
        bind_block(model_, parameters, layer, rope_, shape_.sequence(), seed, groups_));
    bind_groups(memory, groups_, *exchange_sizes_, blocks_.back());
    if (narrow && !share_.narrow.is_wide(layer, model_.layers)) {
      BlockLayer& block = blocks_.back();
      set_narrow(narrow, layer, narrow_before++, seed, memory, block);
      for (const Linear* linear :
           {&block.attention.qkv, &block.attention.output, &block.mlp.up, &block.mlp.down}) {
        narrow_weights_.add(layer, *linear);
      }
    }
    const bool routed = spec::is_routed(model_, layer);
    const SlotKind kind = block_slot(routed, share_.recompute.covers(i));
    kinds_.push_back(kind);
    restore_[static_cast<size_t>(kind)] = bind_block_restore(memory, kind);
    loads_.emplace_back();
    sums_.emplace_back();
    if (!routed) continue;
    if (trains_) {
      float* counters = memory.matrix("routing", "step", 0, "layers").row<float>(routed_before);
      loads_.back() = engine::vector(counters, DType::f32, model_.moe.experts);
      sums_.back() = engine::vector(counters + model_.moe.experts, DType::f32, 3);
    }
    ++routed_before;
  }
  std::array<int64_t, kSlotKinds> covered{};
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const auto kind = static_cast<size_t>(kinds_[i]);
    const bool leaves = trains_ && share_.offload.covers(static_cast<int64_t>(i));
    offloaded_.push_back(leaves ? covered[kind]++ : -1);
    if (!leaves) ++slots_needed_[kind];
  }
  if (trains_ && !slots_->delays()) {
    d_branches_ = {memory.matrix("workspace", "step", 0, "d_branch.0"),
                   memory.matrix("workspace", "step", 0, "d_branch.1")};
    d_branch_amax_ = {bind_step_word(memory, "d_branch.0.amax"),
                      bind_step_word(memory, "d_branch.1.amax")};
  }
}

void Stage::prepare(engine::Stream& stream) {
  for (const bool window : {false, true}) {
    const engine::Vector& to = window ? rope_.window : rope_.all;
    if (!to) continue;
    const std::vector<float> frequency = rope_frequencies(model_, window);
    stream.transfer(to.data, frequency.data(), to.bytes());
  }
}

BatchShape Stage::shape_of(const MicroBatch& batch) const {
  BatchShape shape = shape_;
  shape.positions = batch.positions;
  shape.starts = batch.starts;
  shape.window_starts = batch.window_starts;
  shape.numbers = batch.numbers;
  return shape;
}

size_t Stage::index_of(int64_t layer) const {
  const int64_t index = layer - share_.layers.first;
  TUTTI_CHECK(index >= 0 && index < share_.layers.count, "layer {} in the stage of {} to {}", layer,
              share_.layers.first, share_.layers.first + share_.layers.count - 1);
  return static_cast<size_t>(index);
}

int64_t Stage::last_weight_gradient() const {
  return share_.first && embedding_.d_token ? spec::kEmbeddingLayer : share_.layers.first;
}

void Stage::drop_embedding(engine::Stream& stream, const MicroBatch& batch,
                           engine::Matrix x) const {
  if (dropout_ == 0) return;
  const OwnRows own = own_row_numbers(groups_.tp, shape_of(batch), batch.first_row);
  stream.ops().dropout(stream, {.x = x,
                                .probability = dropout_,
                                .key = embedding_dropout_key_,
                                .first_row = own.first,
                                .rows = own.numbers});
}

void Stage::embed(engine::Stream& stream, const InFlight& in_flight, bool training) {
  const MicroBatch& batch = in_flight.batch;
  const engine::Matrix input = first_residual(in_flight);
  embedding_forward(stream, embedding_, batch.tokens, {shape_.tokens, batch.positions}, input,
                    slots_->forward_work().branch);
  if (training) drop_embedding(stream, batch, input);
}

void Stage::forward_layer(engine::Stream& stream, InFlight& in_flight, int64_t layer, bool training,
                          engine::Matrix out) {
  const MicroBatch& batch = in_flight.batch;
  const BlockWork& work = slots_->forward_work();
  const auto residual_after = [&](size_t block) {
    return slot_of(in_flight, block).saved.norm2.residual;
  };
  if (layer == spec::kHeadLayer) {
    last_head_ = in_flight.head;
    norm_forward(stream, final_norm_, residual_after(blocks_.size() - 1),
                 own_rows(groups_.tp, work.branch), slots_->head(in_flight.head).norm);
    return;
  }
  // The embedding writes into the memory of the first block.
  const size_t index = layer == spec::kEmbeddingLayer ? 0 : index_of(layer);
  const bool begun = share_.first && index == 0 && layer != spec::kEmbeddingLayer;
  if (!begun && training) {
    begin_layer(in_flight, index, spec::ActionKind::forward);
  } else if (!begun && offloaded_[index] >= 0) {
    in_flight.blocks[index] = offload_->slot_outside_training(kinds_[index], offloaded_[index]);
  }
  if (layer == spec::kEmbeddingLayer) return embed(stream, in_flight, training);
  if (index == 0 && receives_apart()) {
    const engine::Matrix received = offload_->input(in_flight.input);
    stream.transfer(first_residual(in_flight).data, received.data, received.bytes());
    offload_->give_input(in_flight.input);
  }
  const engine::Matrix previous = index == 0 ? engine::Matrix{} : residual_after(index - 1);
  block_forward(stream, layer_of(in_flight, index, training), shape_of(batch), batch.first_row,
                previous, slot_of(in_flight, index).saved, work);
  if (training) end_layer(in_flight, index, spec::ActionKind::forward);
  if (share_.last || index + 1 < blocks_.size()) return;
  stream.ops().copy(
      stream, {.x = residual_after(index), .plus = own_rows(groups_.tp, work.branch), .out = out});
}

void Stage::evaluate(engine::Stream& stream, int64_t micro, int64_t layer, engine::Matrix out) {
  InFlight& one = in_flight(micro);
  forward_layer(stream, one, layer, false, out);
  if (layer != spec::kHeadLayer) return;
  loss_forward(stream, loss_, slots_->head(one.head).norm.y, one.batch.targets, loss_work_);
}

void Stage::evaluate(engine::Stream& stream, const MicroBatch& batch) {
  enter(0);
  begin(0, batch);
  for (const int64_t layer : layers_) evaluate(stream, 0, layer);
  leave(0);
}

void Stage::infer(engine::Stream& stream, const MicroBatch& batch) {
  enter(0);
  begin(0, batch);
  for (const int64_t layer : layers_) forward_layer(stream, in_flight(0), layer, false, {});
  leave(0);
}

void Stage::set_routing_tape(RoutingTape* tape) {
  for (BlockLayer& block : blocks_) block.moe.tape = tape;
}

void Stage::distill_from(Stage& teacher, const spec::DistillConfig& config) {
  TUTTI_CHECK(teacher.loss_.vocabulary == loss_.vocabulary &&
                  teacher.shape_.rows() == shape_.rows() &&
                  teacher.loss_work_.logits.rows == loss_work_.logits.rows,
              "teacher: {} tokens, {} rows in chunks of {}; student: {}, {}, {}",
              teacher.loss_.vocabulary, teacher.shape_.rows(), teacher.loss_work_.logits.rows,
              loss_.vocabulary, shape_.rows(), loss_work_.logits.rows);
  teacher_ = &teacher;
  distillation_ =
      Distillation{teacher.loss_, teacher.final_output(), teacher.loss_work_,
                   static_cast<float>(config.temperature), static_cast<float>(config.weight)};
}

void Stage::loss_forward_backward(engine::Stream& stream, int64_t micro, float gradient_scale,
                                  bool first_of_step) {
  TUTTI_CHECK(trains_, "a stage without an arena of gradients can only evaluate");
  const InFlight& one = in_flight(micro);
  const HeadSlot& head = slots_->head(one.head);
  if (teacher_ != nullptr) teacher_->infer(stream, one.batch);
  model::loss_forward_backward(stream, loss_, head.norm.y, one.batch.targets, gradient_scale,
                               loss_work_, head.d_final, gradient_beta(first_of_step),
                               distillation_ ? &*distillation_ : nullptr);
}

void Stage::backward(engine::Stream& stream, int64_t micro, int64_t layer,
                     engine::Matrix d_residual, bool first_of_step) {
  InFlight& one = in_flight(micro);
  const bool apart = slots_->delays();
  const std::optional<float> norm_beta =
      share_.fuses_norm_gradients ? std::optional(gradient_beta(first_of_step)) : std::nullopt;
  const bool begins = layer == (share_.last ? spec::kHeadLayer : layers_.back());
  if (begins && apart) {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      one.delayed[i] = slots_->take(blocks_[i].moe ? SlotKind::delayed_routed : SlotKind::delayed);
    }
  }
  const auto highest = [&] { return work_of(one, blocks_.size() - 1, d_residual); };
  if (layer == spec::kHeadLayer) {
    const HeadSlot& head = slots_->head(one.head);
    const BlockWork below = highest();
    norm_backward_input(stream, final_norm_, head.norm, own_rows(groups_.tp, head.d_final), false,
                        d_residual, own_rows(groups_.tp, below.d_branch), norm_beta,
                        below.d_branch_amax.value);
    return;
  }
  if (begins) {
    const engine::Matrix branch = own_rows(groups_.tp, highest().d_branch);
    const int64_t count = d_residual.rows * d_residual.cols;
    stream.ops().convert(stream, {.x = engine::vector(d_residual.data, d_residual.dtype, count),
                                  .out = engine::vector(branch.data, branch.dtype, count)});
  }
  const size_t i = index_of(layer);
  const MicroBatch& batch = one.batch;
  begin_layer(one, i, spec::ActionKind::backward);
  const BlockLayer block = layer_of(one, i, true);
  const BlockSaved& saved = slot_of(one, i).saved;
  BlockWork work = work_of(one, i, d_residual);
  work.norm_beta = work.attention.norm_beta = gradient_beta(first_of_step);
  block_forward(stream, block, shape_of(batch), batch.first_row, {}, saved, work,
                restore_[static_cast<size_t>(kinds_[i])]);
  block_backward_input(stream, block, shape_of(batch), batch.first_row,
                       {batch.row_scale, first_of_step}, saved, work, norm_beta);
  if (apart) end_layer(one, i, spec::ActionKind::backward);
}

void Stage::embedding_weight_gradient(engine::Stream& stream, const InFlight& in_flight,
                                      engine::Matrix d_residual, float beta) {
  const MicroBatch& batch = in_flight.batch;
  drop_embedding(stream, batch, d_residual);
  // A tied table on the same rank already contains the head's gradient of this micro-batch.
  embedding_backward_weight(stream, embedding_, batch.tokens, {shape_.tokens, batch.positions},
                            d_residual, one_table() ? 1 : beta, beta,
                            slots_->forward_work().branch);
}

void Stage::weight_gradient(engine::Stream& stream, int64_t micro, int64_t layer,
                            engine::Matrix d_residual, bool first_of_step) {
  InFlight& one = in_flight(micro);
  const float beta = gradient_beta(first_of_step);
  if (layer == spec::kEmbeddingLayer) {
    return embedding_weight_gradient(stream, one, d_residual, beta);
  }
  if (layer == spec::kHeadLayer) {
    if (share_.fuses_norm_gradients) return;
    const HeadSlot& head = slots_->head(one.head);
    norm_backward_weight(stream, final_norm_, head.norm, own_rows(groups_.tp, head.d_final), beta);
    return;
  }
  const size_t i = index_of(layer);
  const bool apart = slots_->delays();
  const spec::ActionKind pass =
      apart ? spec::ActionKind::weight_gradient : spec::ActionKind::backward;
  const MicroBatch& batch = one.batch;
  if (apart) begin_layer(one, i, pass);
  const BlockLayer block = layer_of(one, i, true);
  const BlockSaved& saved = slot_of(one, i).saved;
  const BlockWork work = work_of(one, i, apart ? engine::Matrix{} : d_residual);
  // Later layers have overwritten the restored tensors: restore them again.
  if (apart) {
    block_forward(stream, block, shape_of(batch), batch.first_row, {}, saved, work,
                  restore_[static_cast<size_t>(kinds_[i])]);
  }
  block_backward_weight(stream, block, shape_of(batch), batch.first_row, saved, work, beta,
                        !share_.fuses_norm_gradients);
  end_layer(one, i, pass);
  if (!apart || i > 0) return;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    slots_->give(blocks_[b].moe ? SlotKind::delayed_routed : SlotKind::delayed, one.delayed[b]);
    one.delayed[b] = -1;
  }
}

}  // namespace tutti::model
