// The layers a rank holds, bound to its memory: embedding, blocks, final norm and loss. A schedule
// calls the passes below; between them everything lives in the arenas of the memory map.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/model/block.h"
#include "tutti/model/embedding.h"
#include "tutti/model/groups.h"
#include "tutti/model/loss.h"
#include "tutti/model/memory.h"
#include "tutti/spec/distill.h"
#include "tutti/spec/model_config.h"
#include "tutti/spec/params.h"

namespace tutti::model {

// One micro-batch: the tokens, and which rows of the whole run they are.
struct MicroBatch {
  engine::Vector tokens;   // [N] i32
  engine::Vector targets;  // [N] i32, < 0 = ignored
  int64_t first_row = 0;   // sample position * T; keys dropout
  float row_scale = 0;     // 1 / rows of the step: how the routers' losses of this one count
  // Packed documents only: of each row, its position in its document, and the first row of its
  // document within the sequence.
  engine::Vector positions = {};  // [N] i32
  engine::Vector starts = {};     // [N] i32
  // Context parallel only: positions (in the sequence), and BatchShape::numbers.
  engine::Vector numbers = {};  // [N] i32
};

// What a rank does before a layer is computed, where it does not hold the layer's weights or
// gradients all the time (spec/zero_layers.h, which numbers the layers): before its weights are
// read, and before its gradients are written.
struct LayerNeeds {
  std::function<void(engine::Stream&, int64_t layer)> weights;
  std::function<void(engine::Stream&, int64_t layer)> gradients;
};

class Stage {
 public:
  // `memory` must outlive the stage and hold the arenas of `model` for micro-batches of `shape`, or
  // of another shape with as many rows. With the arenas of spec::inference_memory_map the stage
  // only evaluates. With groups, `layout` and `memory` are those of this rank's place in the
  // `mesh`.
  Stage(const spec::ModelConfig& model, const spec::ParamLayout& layout, const Memory& memory,
        BatchShape shape, uint64_t seed, const Groups& groups = {}, const spec::Mesh& mesh = {});

  // Fills constants (rotation frequencies); call once before the first pass.
  void prepare();

  // To be called from now on; empty functions are not.
  void set_needs(LayerNeeds needs) { needs_ = std::move(needs); }

  // Training: forward with dropout; then loss and its gradient; then the gradients of the inputs
  // and weights of every layer. gradient_scale multiplies every gradient (1 / tokens of the
  // step). first_of_step: gradients are overwritten, else added to.
  void forward(engine::Stream& stream, const MicroBatch& batch);
  void loss_forward_backward(engine::Stream& stream, const MicroBatch& batch, float gradient_scale,
                             bool first_of_step);
  // layer_done, when given, is called as soon as all gradients of a layer are computed; of the
  // layers of zero_layers.h, a head that shares the token table not apart from the embedding.
  void backward(engine::Stream& stream, const MicroBatch& batch, bool first_of_step,
                const std::function<void(int64_t layer)>& layer_done = {});

  // Evaluation: no dropout, no gradient.
  void evaluate(engine::Stream& stream, const MicroBatch& batch);

  // The same without the loss: final_output() holds what the head reads.
  void infer(engine::Stream& stream, const MicroBatch& batch);

  // Null ends it; the tape must outlive its use.
  void set_routing_tape(RoutingTape* tape);

  // From now on loss_forward_backward also reads `teacher`, a stage that only evaluates the same
  // micro-batches and must outlive this one: first its forward pass, then the loss of both.
  void distill_from(Stage& teacher, const spec::DistillConfig& config);
  // Divergences of the last micro-batch's rows from the teacher [N] f32; there must be one.
  engine::Vector row_divergences() const { return distillation_->work.rows; }

  // Losses of the last micro-batch's rows [N] f32: cross-entropy, with a teacher too.
  engine::Vector row_losses() const { return loss_work_.rows; }
  // Output of the final norm [N, H] c, of this rank's own rows, and the head, for callers that want
  // logits.
  engine::Matrix final_output() const { return final_saved_.y; }
  const LossLayer& loss_layer() const { return loss_; }
  BatchShape shape() const { return shape_; }
  bool tied() const { return tied_; }

 private:
  void run_forward(engine::Stream& stream, const MicroBatch& batch, bool training);
  BatchShape shape_of(const MicroBatch& batch) const;
  float gradient_beta(bool first_of_step) const {
    return first_of_step || overwrites_gradients_ ? 0 : 1;
  }
  void need_weights(engine::Stream& stream, int64_t layer) const {
    if (needs_.weights) needs_.weights(stream, layer);
  }
  void need_gradients(engine::Stream& stream, int64_t layer) const {
    if (needs_.gradients) needs_.gradients(stream, layer);
  }

  BatchShape shape_;
  Groups groups_;
  bool tied_ = true;
  bool trains_ = true;
  bool overwrites_gradients_ = false;  // in every micro-batch, not only the first
  LayerNeeds needs_;
  float dropout_ = 0;
  uint64_t embedding_dropout_key_ = 0;
  spec::ModelConfig model_;
  Embedding embedding_;
  std::vector<BlockLayer> blocks_;
  std::vector<int64_t> exchange_counts_;
  RoutingTape* tape_ = nullptr;
  NormLayer final_norm_;
  LossLayer loss_;
  engine::Vector rope_frequency_;

  std::vector<BlockSaved> saved_;
  std::vector<BlockSteps> restore_;  // per block: what its backward needs and forward dropped
  std::vector<BlockWork> work_;      // per block: they differ in which d_branch is in and out
  NormSaved final_saved_;
  engine::Matrix d_final_;
  LossWork loss_work_;
  Stage* teacher_ = nullptr;
  std::optional<Distillation> distillation_;
};

// Inverse frequencies of rotary embedding [head_dim / 2], theta^(-2i/D), with Llama 3.1's
// scaling of low frequencies where the model has it.
std::vector<float> rope_frequencies(const spec::ModelConfig& model);

}  // namespace tutti::model
