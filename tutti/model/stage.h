// The layers of one virtual stage, bound to the memory of its rank: blocks, on the first stage the
// embedding, on the last the final norm and the loss. A schedule calls the passes below, layer by
// layer (spec/schedule/step_list.h); between them all state is in the arenas of the memory map.
//
// Several micro-batches may be in flight, each with its own slots between enter() and leave(). One
// matrix crosses a boundary between stages, the residual stream [N, H] f32 with the branch of the
// last block added, or its gradient: it is received where the first block, or the backward pass,
// reads it.
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

// One micro-batch: the tokens, and the numbers of its rows in the run.
struct MicroBatch {
  engine::Vector tokens;   // [N] i32
  engine::Vector targets;  // [N] i32, < 0 = ignored
  int64_t first_row = 0;   // sample position * T; keys dropout
  float row_scale = 0;     // 1 / rows of the step: weight of this one's router losses
  // Packed documents only: per row its position in its document, and the first row of its document
  // within the sequence.
  engine::Vector positions = {};      // [N] i32
  engine::Vector starts = {};         // [N] i32
  engine::Vector window_starts = {};  // [N] i32: for a model with a window
  // Context parallel only: positions (in the sequence), and BatchShape::numbers.
  engine::Vector numbers = {};  // [N] i32
};

// The part of a model in a stage.
struct StageShare {
  spec::LayerRange layers;
  bool first = true;          // the embedding too
  bool last = true;           // final norm, head and loss too
  bool alone = true;          // both on one rank: if tied, they share one gradient
  int64_t routed = 0;         // routed layers of the rank's stages before this one
  int64_t narrow_blocks = 0;  // likewise blocks with products below 16 bits
  int64_t chunk = 0;          // number among the rank's stages
  int64_t in_flight = 1;      // most in-flight micro-batches
  spec::Recompute recompute;
  spec::Offload offload = {};
  spec::Precision precision = spec::Precision::bf16;  // below 16 bits: of products
  spec::NarrowConfig narrow;
  bool fuses_norm_gradients = false;  // spec::Profile::fuses_norm_gradients
};

// The share of virtual stage `chunk` * pp + `rank`.
StageShare share_of(const spec::Recipe& recipe, int64_t rank, int64_t chunk);

class Stage {
 public:
  // `memory` must outlive the stage and hold the arenas of `model` for micro-batches of `shape`, or
  // of another shape with as many rows. With groups, `layout` and `memory` belong to this rank of
  // `mesh`. `slots`: of this memory, shared by the stages of a rank.
  Stage(const spec::ModelConfig& model, const spec::ParamLayout& layout, const Memory& memory,
        BatchShape shape, uint64_t seed, const Groups& groups, const StageShare& share,
        std::shared_ptr<ActivationSlots> slots, const spec::Mesh& mesh = {});
  // A whole model with the arenas of spec::inference_memory_map, which only evaluates, with the
  // precision of its training.
  Stage(const spec::ModelConfig& model, const spec::ParamLayout& layout, const Memory& memory,
        BatchShape shape, uint64_t seed, spec::Precision precision = spec::Precision::bf16,
        const spec::NarrowConfig& narrow = {});

  // Fills constants (RoPE frequencies); call once before the first pass.
  void prepare(engine::Stream& stream);

  // Before the first pass, if the share offloads activations: sets the rank's ActivationOffload,
  // which must outlive the stage. The passes below must then follow the order of its schedule.
  void offload_through(ActivationOffload& offload) { offload_ = &offload; }

  // For a layer whose activations are offloaded: after its forward pass, and before a later one.
  void offload(int64_t layer) const { offload_->leave(kinds_[index_of(layer)]); }
  void fetch(int64_t layer) const { offload_->fetch(kinds_[index_of(layer)]); }

  // Quantized weights for its products below 16 bits.
  const NarrowWeights& narrow_weights() const { return narrow_weights_; }

  // Whether there are slots for another micro-batch; takes them; returns them. `micro` identifies
  // the micro-batch in the calls below.
  bool has_room() const;
  void enter(int64_t micro);
  void leave(int64_t micro);

  // Where to receive the residual stream before forward; not on the first stage.
  engine::Matrix input(int64_t micro) const;

  // The layers in the order of a forward pass, numbered like spec::forward_layers; and the layer
  // after whose weight gradient a micro-batch leaves.
  const std::vector<int64_t>& layers() const { return layers_; }
  int64_t last_weight_gradient() const;

  // Sets the batch of a micro-batch that has entered, before its first pass.
  void begin(int64_t micro, const MicroBatch& batch) { in_flight(micro).batch = batch; }

  // Training: forward with dropout. `out` [N, H] f32 receives the stage's output from its last
  // layer, unless the stage is the last; there the loss and its gradient follow the head's pass.
  // gradient_scale multiplies every gradient (1 / tokens of the step). first_of_step: gradients are
  // overwritten, else accumulated.
  void forward(engine::Stream& stream, int64_t micro, int64_t layer, engine::Matrix out = {}) {
    forward_layer(stream, in_flight(micro), layer, true, out);
  }
  void loss_forward_backward(engine::Stream& stream, int64_t micro, float gradient_scale,
                             bool first_of_step);

  // Computes the gradient of the layer's input in d_residual [N, H] f32: before the first layer of
  // the pass it holds the gradient of the stage's output, on the last stage anything; after the
  // last layer the gradient of the stage's input. Not for the embedding.
  void backward(engine::Stream& stream, int64_t micro, int64_t layer, engine::Matrix d_residual,
                bool first_of_step);
  // The gradients of the layer's weights, of the embedding from d_residual: right after `backward`
  // of the layer or, if delays_weights(), separately, without d_residual.
  bool delays_weights() const { return slots_->delays(); }
  void weight_gradient(engine::Stream& stream, int64_t micro, int64_t layer,
                       engine::Matrix d_residual, bool first_of_step);

  // Evaluation of a micro-batch that has entered: no dropout, no gradient; the head's pass computes
  // the loss.
  void evaluate(engine::Stream& stream, int64_t micro, int64_t layer, engine::Matrix out = {});
  // The same for a whole model, with enter() and leave().
  void evaluate(engine::Stream& stream, const MicroBatch& batch);
  // The same without the loss: final_output() holds the head's input.
  void infer(engine::Stream& stream, const MicroBatch& batch);

  // Null disables it; the tape must outlive its use.
  void set_routing_tape(RoutingTape* tape);

  // From now on loss_forward_backward also uses `teacher`, a stage that only evaluates the same
  // micro-batches and must outlive this one: first its forward pass, then the loss of both.
  void distill_from(Stage& teacher, const spec::DistillConfig& config);
  // Divergences of the last micro-batch's rows from the teacher [N] f32; requires a teacher.
  engine::Vector row_divergences() const { return distillation_->work.rows; }

  // Losses of the last micro-batch's rows [N] f32: cross-entropy, also with a teacher.
  engine::Vector row_losses() const { return loss_work_.rows; }
  // Output of the final norm [N, H] c and the head, for callers that want logits.
  engine::Matrix final_output() const { return slots_->head(last_head_).norm.y; }
  const LossLayer& loss_layer() const { return loss_; }
  BatchShape shape() const { return shape_; }
  const StageShare& share() const { return share_; }

 private:
  // A micro-batch and its slots: of every layer, and of the head.
  struct InFlight {
    int64_t micro = -1;  // none
    MicroBatch batch;
    std::vector<int64_t> blocks;   // of an offloaded layer: its last slot
    std::vector<int64_t> delayed;  // -1: weight gradients are not delayed
    int64_t head = -1;
    int64_t input = -1;  // receives the stage's input, until its first layer has a slot
  };

  InFlight& in_flight(int64_t micro);
  const InFlight& in_flight(int64_t micro) const;
  void bind_layers(const Memory& memory, const Parameters& parameters, uint64_t seed);
  void forward_layer(engine::Stream& stream, InFlight& in_flight, int64_t layer, bool training,
                     engine::Matrix out);
  void embed(engine::Stream& stream, const InFlight& in_flight, bool training);
  void drop_embedding(engine::Stream& stream, const MicroBatch& batch, engine::Matrix x) const;
  void embedding_weight_gradient(engine::Stream& stream, const InFlight& in_flight,
                                 engine::Matrix d_residual, float beta);
  bool receives_apart() const { return !share_.first && offloaded_.front() >= 0; }
  engine::Matrix first_residual(const InFlight& in_flight) const {
    return slot_of(in_flight, 0).saved.norm1.residual;
  }
  // Called around a layer's pass, so that its activations are on the device (activation_offload.h).
  void begin_layer(InFlight& in_flight, size_t index, spec::ActionKind pass) const;
  void end_layer(const InFlight& in_flight, size_t index, spec::ActionKind pass) const;
  BatchShape shape_of(const MicroBatch& batch) const;
  const BlockSlot& slot_of(const InFlight& in_flight, size_t index) const;
  BlockLayer layer_of(const InFlight& in_flight, size_t index, bool training) const;
  BlockWork work_of(const InFlight& in_flight, size_t index, engine::Matrix d_residual) const;
  float gradient_beta(bool first_of_step) const {
    return first_of_step || overwrites_gradients_ ? 0 : 1;
  }
  size_t index_of(int64_t layer) const;  // of a block
  // A tied table on one rank receives both gradients, and is complete with the embedding's.
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

  std::vector<InFlight> in_flight_;
  std::array<int64_t, kSlotKinds> slots_needed_{};  // per micro-batch
  std::vector<SlotKind> kinds_;                     // of every block
  // Per block: if offloaded, its number among the offloaded ones of its kind; else -1.
  std::vector<int64_t> offloaded_;
  ActivationOffload* offload_ = nullptr;
  std::array<BlockSteps, 4> restore_;         // per kind: dropped in forward and needed by backward
  std::array<engine::Matrix, 2> d_branches_;  // of blocks in turn: a block's outgoing gradient must
                                              // not overwrite what its weight gradients still read
  std::array<engine::Vector, 2> d_branch_amax_;  // of both, [1] f32; may be empty
  std::vector<engine::Vector> loads_, sums_;     // of every block's router
  Unwanted unwanted_;                            // of block 0 of the model
  int64_t last_head_ = 0;
  LossWork loss_work_;
  Stage* teacher_ = nullptr;
  std::optional<Distillation> distillation_;
};

}  // namespace tutti::model
