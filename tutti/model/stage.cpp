#include "tutti/model/stage.h"

#include <algorithm>
#include <cmath>

#include "tutti/base/check.h"
#include "tutti/base/rng.h"
#include "tutti/model/bind.h"
#include "tutti/model/layer_buffers.h"
#include "tutti/model/tensor_parallel.h"

namespace tutti::model {

Stage::Stage(const spec::ModelConfig& model, const spec::ParamLayout& layout, const Memory& memory,
             BatchShape shape, uint64_t seed, const Groups& groups, const spec::Mesh& mesh)
    : shape_(shape),
      groups_(groups),
      tied_(model.tied_embeddings),
      trains_(memory.map().has("gradients")),
      overwrites_gradients_(memory.map().has("layer_gradients")),
      dropout_(static_cast<float>(model.dropout)),
      embedding_dropout_key_(stream_key(seed, "dropout", "embedding")),
      model_(model) {
  const DType compute = memory.matrix("activations", "head", 0, "norm.y").dtype;
  const Parameters parameters = bind_parameters(layout, mesh, memory, compute);
  if (model.positions == spec::Positions::rope) {
    rope_frequency_ = memory.vector("workspace", "step", 0, "rope.frequency");
  }
  embedding_ = bind_embedding(model, parameters, groups_);
  if (groups.ep != nullptr) exchange_counts_.resize(2 * static_cast<size_t>(groups.ep->size()));
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    blocks_.push_back(bind_block(model, parameters, layer, rope_frequency_, seed, groups_));
    bind_adapter_memory(memory, layer, blocks_.back());
    bind_groups(memory, groups, exchange_counts_, blocks_.back());
    saved_.push_back(bind_block_saved(model, memory, layer));
    restore_.push_back(bind_block_restore(memory, layer));
    work_.push_back(trains_ ? bind_block_work(model, memory, layer) : bind_forward_work(memory));
    if (trains_ && layer == 0) end_backward_at_lowest_adapter(model, layout.lora, work_.back());
  }
  final_norm_ = bind_final_norm(model, parameters);
  final_saved_ = bind_final_saved(model, memory);
  if (trains_) d_final_ = memory.matrix("workspace", "step", 0, "d_final");
  loss_ = bind_loss(model, parameters, groups_);
  loss_work_ = bind_loss_work(memory);
}

void Stage::prepare() {
  if (!rope_frequency_) return;
  const std::vector<float> frequency = rope_frequencies(model_);
  std::copy(frequency.begin(), frequency.end(), rope_frequency_.as<float>());
}

BatchShape Stage::shape_of(const MicroBatch& batch) const {
  if (tape_ != nullptr) tape_->first_row = batch.first_row;
  BatchShape shape = shape_;
  shape.positions = batch.positions;
  shape.starts = batch.starts;
  shape.numbers = batch.numbers;
  return shape;
}

void Stage::run_forward(engine::Stream& stream, const MicroBatch& batch, bool training) {
  const engine::Matrix input = saved_.front().norm1.residual;
  need_weights(stream, spec::kEmbeddingLayer);
  embedding_forward(stream, embedding_, batch.tokens, {shape_.tokens, batch.positions}, input,
                    work_.front().branch);
  if (training && dropout_ > 0) {
    const OwnRows own = own_row_numbers(groups_.tp, shape_of(batch), batch.first_row);
    stream.ops().dropout(stream, {.x = input,
                                  .probability = dropout_,
                                  .key = embedding_dropout_key_,
                                  .first_row = own.first,
                                  .rows = own.numbers});
  }
  engine::Matrix previous;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    BlockLayer layer = blocks_[i];
    if (!training) layer.dropout = layer.adapter_dropout = 0;
    need_weights(stream, static_cast<int64_t>(i));
    block_forward(stream, layer, shape_of(batch), batch.first_row, previous, saved_[i], work_[i]);
    previous = saved_[i].norm2.residual;
  }
  need_weights(stream, spec::kHeadLayer);
  norm_forward(stream, final_norm_, previous, own_rows(groups_.tp, work_.back().branch),
               final_saved_);
}

void Stage::forward(engine::Stream& stream, const MicroBatch& batch) {
  run_forward(stream, batch, true);
}

void Stage::set_routing_tape(RoutingTape* tape) {
  tape_ = tape;
  for (BlockLayer& block : blocks_) block.moe.tape = tape;
}

void Stage::infer(engine::Stream& stream, const MicroBatch& batch) {
  run_forward(stream, batch, false);
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
      Distillation{teacher.loss_, teacher.final_saved_.y, teacher.loss_work_,
                   static_cast<float>(config.temperature), static_cast<float>(config.weight)};
}

void Stage::evaluate(engine::Stream& stream, const MicroBatch& batch) {
  infer(stream, batch);
  loss_forward(stream, loss_, final_saved_.y, batch.targets, loss_work_);
}

void Stage::loss_forward_backward(engine::Stream& stream, const MicroBatch& batch,
                                  float gradient_scale, bool first_of_step) {
  TUTTI_CHECK(trains_, "a stage without the arena of gradients only evaluates");
  if (teacher_ != nullptr) teacher_->infer(stream, batch);
  need_gradients(stream, spec::kHeadLayer);
  model::loss_forward_backward(stream, loss_, final_saved_.y, batch.targets, gradient_scale,
                               loss_work_, d_final_, gradient_beta(first_of_step),
                               distillation_ ? &*distillation_ : nullptr);
}

void Stage::backward(engine::Stream& stream, const MicroBatch& batch, bool first_of_step,
                     const std::function<void(int64_t layer)>& layer_done) {
  const float beta = gradient_beta(first_of_step);
  const engine::Matrix d_residual = work_.back().d_residual;
  const engine::Matrix d_final = own_rows(groups_.tp, d_final_);
  norm_backward_input(stream, final_norm_, final_saved_, d_final, false, d_residual,
                      own_rows(groups_.tp, work_.back().d_branch));
  norm_backward_weight(stream, final_norm_, final_saved_, d_final, beta);
  if (layer_done && !tied_) layer_done(spec::kHeadLayer);
  for (size_t i = blocks_.size(); i-- > 0;) {
    need_weights(stream, static_cast<int64_t>(i));
    need_gradients(stream, static_cast<int64_t>(i));
    block_forward(stream, blocks_[i], shape_of(batch), batch.first_row, {}, saved_[i], work_[i],
                  restore_[i]);
    block_backward_input(stream, blocks_[i], shape_of(batch), batch.first_row,
                         {batch.row_scale, first_of_step}, saved_[i], work_[i]);
    block_backward_weight(stream, blocks_[i], shape_of(batch), batch.first_row, saved_[i], work_[i],
                          beta);
    if (layer_done) layer_done(static_cast<int64_t>(i));
  }
  if (!embedding_.d_token) return;  // frozen
  if (dropout_ > 0) {
    const OwnRows own = own_row_numbers(groups_.tp, shape_of(batch), batch.first_row);
    stream.ops().dropout(stream, {.x = d_residual,
                                  .probability = dropout_,
                                  .key = embedding_dropout_key_,
                                  .first_row = own.first,
                                  .rows = own.numbers});
  }
  need_gradients(stream, spec::kEmbeddingLayer);
  // With tied embeddings the token table already holds the head's gradient of this micro-batch.
  embedding_backward_weight(stream, embedding_, batch.tokens, {shape_.tokens, batch.positions},
                            d_residual, tied_ ? 1 : beta, beta, work_.front().branch);
  if (layer_done) layer_done(spec::kEmbeddingLayer);
}

// Llama 3.1's rule: wavelengths shorter than original_context / high_frequency_factor stay,
// longer than original_context / low_frequency_factor are slowed by `factor`, between them the
// two are blended linearly in context / wavelength.
std::vector<float> rope_frequencies(const spec::ModelConfig& model) {
  std::vector<float> out;
  const spec::RopeScaling& scaling = model.rope_scaling;
  for (int64_t i = 0; i < model.head_dim / 2; ++i) {
    double frequency = std::pow(
        model.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(model.head_dim));
    if (scaling.factor != 1) {
      const double turns = static_cast<double>(scaling.original_context) * frequency / (2 * M_PI);
      const double blend = (turns - scaling.low_frequency_factor) /
                           (scaling.high_frequency_factor - scaling.low_frequency_factor);
      const double keep = std::clamp(blend, 0.0, 1.0);
      frequency = keep * frequency + (1 - keep) * frequency / scaling.factor;
    }
    out.push_back(static_cast<float>(frequency));
  }
  return out;
}

}  // namespace tutti::model
