// The layers of one virtual stage, bound to the memory of its rank: blocks, on the first stage the
// embedding, on the last the final norm and the loss. A schedule calls the passes below, a layer at
// a time (spec/schedule/step_list.h); between them everything lives in the arenas of the memory
// map.
//
// Several micro-batches may be in flight, each between enter() and leave() with slots of its own.
// At a boundary between stages one matrix travels, the residual stream [N, H] f32 with the branch
// of the last block added, or its gradient: received where the first block reads it, and where the
// backward pass works on it.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/model/activation_offload.h"
#include "tutti/model/bind.h"
#include "tutti/model/block.h"
#include "tutti/model/embedding.h"
#include "tutti/model/groups.h"
#include "tutti/model/loss.h"
#include "tutti/model/memory.h"
#include "tutti/model/narrow_weights.h"
#include "tutti/model/slots.h"
#include "tutti/spec/model/config.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/distill.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::model {

// One micro-batch: the tokens, and which rows of the whole run they are.
struct MicroBatch {
  engine::Vector tokens;   // [N] i32
  engine::Vector targets;  // [N] i32, < 0 = ignored
  int64_t first_row = 0;   // sample position * T; keys dropout
  float row_scale = 0;     // 1 / rows of the step: how the routers' losses of this one count
  // Packed documents only: of each row, its position in its document, and the first row of its
  // document within the sequence.
  engine::Vector positions = {};      // [N] i32
  engine::Vector starts = {};         // [N] i32
  engine::Vector window_starts = {};  // [N] i32: of a model with a window
  // Context parallel only: positions (in the sequence), and BatchShape::numbers.
  engine::Vector numbers = {};  // [N] i32
};

// What of a model a stage has.
struct StageShare {
  spec::LayerRange layers;
  bool first = true;          // the embedding too
  bool last = true;           // final norm, head and loss too
  bool alone = true;          // both on one rank: tied, they share one gradient
  int64_t routed = 0;         // routed layers of the rank's stages before this one
  int64_t narrow_blocks = 0;  // and their blocks with products below 16 bits
  int64_t chunk = 0;          // of the rank's stages
  int64_t flights = 1;        // micro-batches that are under way at once
  spec::Recompute recompute;
  spec::Offload offload = {};
  spec::Precision precision = spec::Precision::bf16;  // below 16 bits: of products
  spec::NarrowConfig narrow;
  bool fuses_norm_gradients = false;  // spec::Profile has it
};

// Of virtual stage `chunk` * pp + `rank`.
StageShare share_of(const spec::Recipe& recipe, int64_t rank, int64_t chunk);

class Stage {
 public:
  // `memory` must outlive the stage and hold the arenas of `model` for micro-batches of `shape`, or
  // of another shape with as many rows. With groups, `layout` and `memory` are those of this rank's
  // place in the `mesh`. `slots`: of this memory, shared by the stages of a rank.
  Stage(const spec::ModelConfig& model, const spec::ParamLayout& layout, const Memory& memory,
        BatchShape shape, uint64_t seed, const Groups& groups, const StageShare& share,
        std::shared_ptr<ActivationSlots> slots, const spec::Mesh& mesh = {});
  // A whole model with the arenas of spec::inference_memory_map, which only evaluates, with the
  // products of its training.
  Stage(const spec::ModelConfig& model, const spec::ParamLayout& layout, const Memory& memory,
        BatchShape shape, uint64_t seed, spec::Precision precision = spec::Precision::bf16,
        const spec::NarrowConfig& narrow = {});

  // Fills constants (rotation frequencies); call once before the first pass.
  void prepare(engine::Stream& stream);

  // Before the first pass, where the share offloads activations: the rank's, which outlives the
  // stage. The passes below then come in the order of its schedule.
  void offload_through(ActivationOffload& offload) { offload_ = &offload; }

  // Of a layer whose activations are offloaded: after its forward pass, and before a later one.
  void offload(int64_t layer) const { offload_->leave(kinds_[index_of(layer)]); }
  void fetch(int64_t layer) const { offload_->fetch(kinds_[index_of(layer)]); }

  // Its products below 16 bits read what is quantized here.
  const NarrowWeights& narrow_weights() const { return narrow_weights_; }

  // Whether another micro-batch finds its slots; takes them; gives them back. `micro` names the
  // micro-batch in the calls below.
  bool has_room() const;
  void enter(int64_t micro);
  void leave(int64_t micro);

  // Where the residual stream is to be received before forward; not on the first stage.
  engine::Matrix input(int64_t micro) const;

  // The layers in the order of a forward pass, as spec::forward_layers numbers them; and the one
  // after whose weight gradient a micro-batch leaves.
  const std::vector<int64_t>& layers() const { return layers_; }
  int64_t last_weight_gradient() const;

  // What the passes of a micro-batch that has entered are of; before its first one.
  void begin(int64_t micro, const MicroBatch& batch) { flight(micro).batch = batch; }

  // Training: forward with dropout. `out` [N, H] f32 gets the stage's output from its last layer,
  // unless the stage is the last; there the head's pass is followed by the loss and its gradient.
  // gradient_scale multiplies every gradient (1 / tokens of the step). first_of_step: gradients are
  // overwritten, else added to.
  void forward(engine::Stream& stream, int64_t micro, int64_t layer, engine::Matrix out = {}) {
    forward_layer(stream, flight(micro), layer, true, out);
  }
  void loss_forward_backward(engine::Stream& stream, int64_t micro, float gradient_scale,
                             bool first_of_step);

  // The gradient of the layer's input, from d_residual [N, H] f32: before the first layer of the
  // pass that of the stage's output, on the last stage anything; after the last that of its input.
  // Not of the embedding.
  void backward(engine::Stream& stream, int64_t micro, int64_t layer, engine::Matrix d_residual,
                bool first_of_step);
  // The gradients of the layer's weights, of the embedding from d_residual: right after `backward`
  // of the layer or, where delays_weights(), apart, without d_residual.
  bool delays_weights() const { return slots_->delays(); }
  void weight_gradient(engine::Stream& stream, int64_t micro, int64_t layer,
                       engine::Matrix d_residual, bool first_of_step);

  // Evaluation of a micro-batch that has entered: no dropout, no gradient; the head's pass computes
  // the loss.
  void evaluate(engine::Stream& stream, int64_t micro, int64_t layer, engine::Matrix out = {});
  // The same of a whole model, in and out.
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
  // Output of the final norm [N, H] c and the head, for callers that want logits.
  engine::Matrix final_output() const { return slots_->head(last_head_).norm.y; }
  const LossLayer& loss_layer() const { return loss_; }
  BatchShape shape() const { return shape_; }
  const StageShare& share() const { return share_; }

 private:
  // A micro-batch and the slots it has: of every layer, and of the head.
  struct Flight {
    int64_t micro = -1;  // none
    MicroBatch batch;
    std::vector<int64_t> blocks;   // of a layer that is offloaded: where it was last
    std::vector<int64_t> delayed;  // -1: weight gradients do not wait
    int64_t head = -1;
    int64_t input = -1;  // where the stage's input is received, until its first layer has a place
  };

  Flight& flight(int64_t micro);
  const Flight& flight(int64_t micro) const;
  void bind_layers(const Memory& memory, const Parameters& parameters, uint64_t seed);
  void forward_layer(engine::Stream& stream, Flight& flight, int64_t layer, bool training,
                     engine::Matrix out);
  void embed(engine::Stream& stream, const Flight& flight, bool training);
  void drop_embedding(engine::Stream& stream, const MicroBatch& batch, engine::Matrix x) const;
  void embedding_weight_gradient(engine::Stream& stream, const Flight& flight,
                                 engine::Matrix d_residual, float beta);
  bool receives_apart() const { return !share_.first && offloaded_.front() >= 0; }
  engine::Matrix first_residual(const Flight& flight) const {
    return slot_of(flight, 0).saved.norm1.residual;
  }
  // Around a layer's pass, so that what it keeps is there (activation_offload.h).
  void begin_layer(Flight& flight, size_t index, spec::ActionKind pass) const;
  void end_layer(const Flight& flight, size_t index, spec::ActionKind pass) const;
  BatchShape shape_of(const MicroBatch& batch) const;
  const BlockSlot& slot_of(const Flight& flight, size_t index) const;
  BlockLayer layer_of(const Flight& flight, size_t index, bool training) const;
  BlockWork work_of(const Flight& flight, size_t index, engine::Matrix d_residual) const;
  float gradient_beta(bool first_of_step) const {
    return first_of_step || overwrites_gradients_ ? 0 : 1;
  }
  size_t index_of(int64_t layer) const;  // of a block
  // A tied table on one rank gets both gradients, and is done with the embedding.
  bool one_table() const { return model_.tied_embeddings && share_.alone; }

  BatchShape shape_;
  Groups groups_;
  StageShare share_;
  std::vector<int64_t> layers_;
  std::shared_ptr<ActivationSlots> slots_;
  bool trains_ = true;
  bool overwrites_gradients_ = false;  // in every micro-batch, not only the first
  float dropout_ = 0;
  uint64_t embedding_dropout_key_ = 0;
  spec::ModelConfig model_;
  const Memory* memory_;
  Embedding embedding_;
  std::vector<BlockLayer> blocks_;
  std::unique_ptr<ExchangeSizes> exchange_sizes_ = std::make_unique<ExchangeSizes>();
  NormLayer final_norm_;
  LossLayer loss_;
  RopeFrequencies rope_;
  NarrowWeights narrow_weights_;

  std::vector<Flight> flights_;
  std::array<int64_t, kSlotKinds> slots_needed_{};  // slots of a micro-batch
  std::vector<SlotKind> kinds_;                     // of every block
  // Of every block that is offloaded, its number among those of its kind; of others -1.
  std::vector<int64_t> offloaded_;
  ActivationOffload* offload_ = nullptr;
  std::array<BlockSteps, 4> restore_;         // per kind: what backward needs and forward dropped
  std::array<engine::Matrix, 2> d_branches_;  // of blocks in turn: what leaves a block must not
                                              // overwrite what its weight gradients still need
  std::array<engine::Vector, 2> d_branch_amax_;  // of each, [1] f32; may be empty
  std::vector<engine::Vector> loads_, sums_;     // of every block's router
  Unwanted unwanted_;                            // of block 0 of the model
  int64_t last_head_ = 0;
  LossWork loss_work_;
  Stage* teacher_ = nullptr;
  std::optional<Distillation> distillation_;
};

}  // namespace tutti::model
