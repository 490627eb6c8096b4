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
#include "tutti/spec/schedule.h"

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
  out.flights =
      spec::peak_in_flight_of_chunk(mesh, spec::make_schedule(recipe).micro_batches, rank, chunk);
  for (int64_t before = 0; before < chunk; ++before) {
    const spec::LayerRange range = layers_of(before);
    for (int64_t i = 0; i < range.count; ++i) {
      out.routed += spec::is_routed(recipe.model, range.first + i) ? 1 : 0;
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
    rope_frequency_ = memory.vector("workspace", "step", 0, "rope.frequency");
  }
  if (share.first) embedding_ = bind_embedding(model, parameters, groups_);
  bind_layers(memory, parameters, seed);
  if (share.last) {
    final_norm_ = bind_final_norm(model, parameters);
    loss_ = bind_loss(model, parameters, groups_);
    if (share.narrow.head) loss_.head.narrow = bind_narrow(share.precision, memory);
    loss_work_ = bind_loss_work(memory);
    ++slots_needed_[static_cast<size_t>(SlotKind::head)];
  }
  if (trains_ && share.first) unwanted_ = below_lowest_adapter(model, layout.lora);

  const bool offloads = trains_ && share.offload.activations != 0;
  int64_t flights = offloads ? share.flights : std::numeric_limits<int64_t>::max();
  for (size_t kind = 0; kind < kSlotKinds; ++kind) {
    if (slots_needed_[kind] == 0) continue;
    flights = std::min(flights, slots_->free(static_cast<SlotKind>(kind)) / slots_needed_[kind]);
  }
  flights_.resize(static_cast<size_t>(flights));
  for (Flight& flight : flights_) {
    flight.blocks.resize(blocks_.size());
    flight.delayed.resize(blocks_.size(), -1);
  }
}

void Stage::bind_layers(const Memory& memory, const Parameters& parameters, uint64_t seed) {
  int64_t routed_before = share_.routed;
  NarrowProducts narrow = bind_narrow(share_.precision, memory);
  narrow.stochastic = share_.narrow.stochastic_gradients;
  for (int64_t i = 0; i < share_.layers.count; ++i) {
    const int64_t layer = share_.layers.first + i;
    blocks_.push_back(bind_block(model_, parameters, layer, rope_frequency_, seed, groups_));
    bind_groups(memory, groups_, *exchange_sizes_, blocks_.back());
    if (narrow && !share_.narrow.is_wide(layer, model_.layers)) {
      set_narrow(narrow, layer, seed, memory, blocks_.back());
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
  }
}

void Stage::prepare(engine::Stream& stream) {
  if (!rope_frequency_) return;
  const std::vector<float> frequency = rope_frequencies(model_);
  stream.transfer(rope_frequency_.data, frequency.data(), rope_frequency_.bytes());
}

BatchShape Stage::shape_of(const MicroBatch& batch) const {
  BatchShape shape = shape_;
  shape.positions = batch.positions;
  shape.starts = batch.starts;
  shape.numbers = batch.numbers;
  return shape;
}

void Stage::run_forward(engine::Stream& stream, Flight& flight, const MicroBatch& batch,
                        bool training, engine::Matrix out) {
  flight.batch = batch;
  const auto begin = [&](size_t layer) {
    if (training) {
      begin_layer(flight, layer, spec::ActionKind::forward);
    } else if (offloaded_[layer] >= 0) {
      flight.blocks[layer] = offload_->slot_outside_training(kinds_[layer], offloaded_[layer]);
    }
  };
  begin(0);
  if (receives_apart()) {
    const engine::Matrix received = offload_->input(flight.input);
    stream.transfer(first_residual(flight).data, received.data, received.bytes());
    offload_->give_input(flight.input);
  }
  if (share_.first) {
    const engine::Matrix input = first_residual(flight);
    need_weights(stream, spec::kEmbeddingLayer);
    embedding_forward(stream, embedding_, batch.tokens, {shape_.tokens, batch.positions}, input,
                      slots_->forward_work().branch);
    if (training && dropout_ > 0) {
      const OwnRows own = own_row_numbers(groups_.tp, shape_of(batch), batch.first_row);
      stream.ops().dropout(stream, {.x = input,
                                    .probability = dropout_,
                                    .key = embedding_dropout_key_,
                                    .first_row = own.first,
                                    .rows = own.numbers});
    }
  }
  const BlockWork& work = slots_->forward_work();
  engine::Matrix previous;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (i > 0) begin(i);
    const BlockSaved& saved = slot_of(flight, i).saved;
    need_weights(stream, layer_number(i));
    block_forward(stream, layer_of(flight, i, training), shape_of(batch), batch.first_row, previous,
                  saved, work);
    if (training) end_layer(flight, i, spec::ActionKind::forward);
    previous = saved.norm2.residual;
  }
  if (share_.last) {
    last_head_ = flight.head;
    need_weights(stream, spec::kHeadLayer);
    norm_forward(stream, final_norm_, previous, own_rows(groups_.tp, work.branch),
                 slots_->head(flight.head).norm);
  } else {
    stream.ops().copy(stream,
                      {.x = previous, .plus = own_rows(groups_.tp, work.branch), .out = out});
  }
}

void Stage::forward(engine::Stream& stream, int64_t micro, const MicroBatch& batch,
                    engine::Matrix out) {
  run_forward(stream, flight(micro), batch, true, out);
}

void Stage::evaluate(engine::Stream& stream, int64_t micro, const MicroBatch& batch,
                     engine::Matrix out) {
  Flight& one = flight(micro);
  run_forward(stream, one, batch, false, out);
  if (!share_.last) return;
  loss_forward(stream, loss_, slots_->head(one.head).norm.y, batch.targets, loss_work_);
}

void Stage::evaluate(engine::Stream& stream, const MicroBatch& batch) {
  enter(0);
  evaluate(stream, 0, batch);
  leave(0);
}

void Stage::set_routing_tape(RoutingTape* tape) {
  for (BlockLayer& block : blocks_) block.moe.tape = tape;
}

void Stage::infer(engine::Stream& stream, const MicroBatch& batch) {
  enter(0);
  run_forward(stream, flight(0), batch, false, {});
  leave(0);
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
  TUTTI_CHECK(trains_, "a stage without the arena of gradients only evaluates");
  const Flight& one = flight(micro);
  const HeadSlot& head = slots_->head(one.head);
  if (teacher_ != nullptr) teacher_->infer(stream, one.batch);
  need_gradients(stream, spec::kHeadLayer);
  model::loss_forward_backward(stream, loss_, head.norm.y, one.batch.targets, gradient_scale,
                               loss_work_, head.d_final, gradient_beta(first_of_step),
                               distillation_ ? &*distillation_ : nullptr);
}

void Stage::weight_gradient_of(engine::Stream& stream, const Flight& flight, size_t index,
                               const BlockWork& work, float beta, const LayerDone& layer_done) {
  block_backward_weight(stream, layer_of(flight, index, true), shape_of(flight.batch),
                        flight.batch.first_row, slot_of(flight, index).saved, work, beta,
                        !share_.fuses_norm_gradients);
  if (layer_done) layer_done(layer_number(index));
}

void Stage::backward(engine::Stream& stream, int64_t micro, engine::Matrix d_residual,
                     bool first_of_step, const LayerDone& layer_done) {
  Flight& one = flight(micro);
  const MicroBatch& batch = one.batch;
  const float beta = gradient_beta(first_of_step);
  const bool apart = slots_->delays();
  const std::optional<float> norm_beta =
      share_.fuses_norm_gradients ? std::optional(beta) : std::nullopt;
  if (apart) {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      one.delayed[i] = slots_->take(blocks_[i].moe ? SlotKind::delayed_routed : SlotKind::delayed);
    }
  }
  const engine::Matrix d_branch =
      own_rows(groups_.tp, work_of(one, blocks_.size() - 1, d_residual).d_branch);
  if (share_.last) {
    const HeadSlot& head = slots_->head(one.head);
    const engine::Matrix d_final = own_rows(groups_.tp, head.d_final);
    norm_backward_input(stream, final_norm_, head.norm, d_final, false, d_residual, d_branch,
                        norm_beta);
    // Where gradients are whole one layer at a time, the head's must leave before the next loss.
    if (!apart || overwrites_gradients_) {
      if (!norm_beta) norm_backward_weight(stream, final_norm_, head.norm, d_final, beta);
      if (layer_done && !one_table()) layer_done(spec::kHeadLayer);
    }
  } else {
    const int64_t count = d_residual.rows * d_residual.cols;
    stream.ops().convert(stream, {.x = engine::vector(d_residual.data, d_residual.dtype, count),
                                  .out = engine::vector(d_branch.data, d_branch.dtype, count)});
  }
  for (size_t i = blocks_.size(); i-- > 0;) {
    begin_layer(one, i, spec::ActionKind::backward);
    const BlockLayer layer = layer_of(one, i, true);
    const BlockSaved& saved = slot_of(one, i).saved;
    const BlockWork work = work_of(one, i, d_residual);
    need_weights(stream, layer_number(i));
    if (!apart) need_gradients(stream, layer_number(i));
    block_forward(stream, layer, shape_of(batch), batch.first_row, {}, saved, work,
                  restore_[static_cast<size_t>(kinds_[i])]);
    block_backward_input(stream, layer, shape_of(batch), batch.first_row,
                         {batch.row_scale, first_of_step}, saved, work, norm_beta);
    if (!apart) weight_gradient_of(stream, one, i, work, beta, layer_done);
    end_layer(one, i, spec::ActionKind::backward);
  }
  if (!share_.first || !embedding_.d_token) return;  // the latter: frozen
  if (dropout_ > 0) {
    const OwnRows own = own_row_numbers(groups_.tp, shape_of(batch), batch.first_row);
    stream.ops().dropout(stream, {.x = d_residual,
                                  .probability = dropout_,
                                  .key = embedding_dropout_key_,
                                  .first_row = own.first,
                                  .rows = own.numbers});
  }
  need_gradients(stream, spec::kEmbeddingLayer);
  // A tied table on the same rank already holds the head's gradient of this micro-batch.
  embedding_backward_weight(stream, embedding_, batch.tokens, {shape_.tokens, batch.positions},
                            d_residual, one_table() ? 1 : beta, beta,
                            slots_->forward_work().branch);
  if (layer_done) layer_done(spec::kEmbeddingLayer);
}

void Stage::weight_gradient(engine::Stream& stream, int64_t micro, bool first_of_step,
                            const LayerDone& layer_done) {
  Flight& one = flight(micro);
  const float beta = gradient_beta(first_of_step);
  if (share_.last && !overwrites_gradients_) {
    const HeadSlot& head = slots_->head(one.head);
    norm_backward_weight(stream, final_norm_, head.norm, own_rows(groups_.tp, head.d_final), beta);
  }
  for (size_t i = blocks_.size(); i-- > 0;) {
    begin_layer(one, i, spec::ActionKind::weight_gradient);
    const BlockWork work = work_of(one, i, {});
    need_gradients(stream, layer_number(i));
    // What was dropped is gone again, under the layers that came since.
    block_forward(stream, layer_of(one, i, true), shape_of(one.batch), one.batch.first_row, {},
                  slot_of(one, i).saved, work, restore_[static_cast<size_t>(kinds_[i])]);
    weight_gradient_of(stream, one, i, work, beta, layer_done);
    end_layer(one, i, spec::ActionKind::weight_gradient);
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    slots_->give(blocks_[i].moe ? SlotKind::delayed_routed : SlotKind::delayed, one.delayed[i]);
    one.delayed[i] = -1;
  }
}

}  // namespace tutti::model
