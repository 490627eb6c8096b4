// The memory map of a rank: every arena with the offset and size of every tensor, known before
// anything is allocated. The trainer allocates exactly this; the planner prices it.
//
// Arenas of profile `tutti` (c = compute type, N = micro-batch * sequence rows):
//   weights       c         slot "flat" x 1 with one tensor "flat": ParamLayout offsets (f32 runs:
//                           also the master); the next three likewise
//   narrow        u8       fp8 on accelerators (Profile::quantizes_weights_once): weights as the
//                           products read them (narrow.h). Slot "block" x blocks below 16 bits:
//                           attention.qkv, attention.output, mlp.up, mlp.down, each [out, in], and
//                           attention.qkv.turned, ... [in, out]; slot "head" x 1, where the head is
//                           narrow: head, head.turned. In other profiles flat, mxfp8 and fp4 only:
//                           both quantized copies of the blocks' matrices
//   frozen        u8       flat; profiles that store frozen matrices in the format of the products
//                           only (kept_tensors.h): these, which are then not among the weights
//   master        f32       flat; bf16 runs only, and not with optimizer.master none. This and the
//                           following three hold the trainable parameters, which with adapters are
//                           those of the adapters
//   gradients     f32       flat
//   moment1, moment2  f32   flat
//   activations   slot "block" x layers that keep all, "block.recomputed" x layers that recompute,
//                 "recompute" x 1 (where any layer does), slot "head" x 1
//     block: residual_in [N,H] f32, norm1.mean [N] f32 (layer norm only), norm1.rstd [N] f32,
//            norm1.y [N,H] c, attention.qkv [N,(A+2K)D] c, attention.lse [B*A*T] f32,
//            attention.out [N,A*D] c, residual_mid [N,H] f32, norm2.mean, norm2.rstd, norm2.y,
//            mlp.pre [N,F] c ([N,2F] with a gate), mlp.act [N,F] c
//            with norms of queries and keys attention.query_key [N,(A+K)D] c and
//            attention.query_key.rstd [N,A+K] f32 (over all heads [N,2]); with latent attention
//            attention.qkv [N,A(2D+Dv)] c, attention.kv_down and attention.kv_norm.y [N,Dr+R] c,
//            attention.kv_norm.rstd [N] f32, and of compressed queries attention.query_down,
//            .query_norm.y [N,Rq] c, .query_norm.rstd [N] f32; with norms after
//            attention and MLP their inputs attention.branch and mlp.branch [N,H] c, and
//            attention.branch.rstd, mlp.branch.rstd [N] f32; without norms before them no
//            norm1.rstd and norm2.rstd
//     "block.moe" x routed layers, instead of mlp.* (E experts, top k, R rows for copies):
//            moe.probabilities [N,E] f32, moe.lse [N] f32, moe.experts [N,k] i32, moe.weights [N,k]
//            f32, moe.positions [N,k] i32, moe.counts [B,E] i32, moe.offsets [E+1] i32, moe.input
//            [R,H] c, moe.up [R,Fe] c ([R,2Fe]), moe.act [R,Fe] c, moe.output [R,H] c, and of
//            shared experts moe.shared.up, moe.shared.act. R is the bound of every routing: N*k
//            without a capacity, else at most B*E*capacity (LocalSizes::routed_tokens). With ep > 1
//            also moe.received [E+1] i32, in pieces (LocalSizes::piece_rows) [E+ep] as moe.offsets;
//            moe.output then has the rows of this rank's tokens (LocalSizes::copies), the others
//            those of its experts. With tp > 1 the routing (experts, weights, positions, and
//            moe.d_weights below) has all N rows
//     with adapters (spec/recipe/lora.h), r columns for each adapter of a projection:
//            attention.qkv.lora, attention.output.lora, mlp.up.lora, mlp.down.lora [N,r] c: scale *
//            dropout(x) A^T
//     head:  residual [N,H] f32, norm.mean, norm.rstd, norm.y [N,H] c, d_final [N,H] c (training)
//   workspace     slot "step" x 1
//     branch [N,H] c, d_residual [N,H] f32, d_branch.0, d_branch.1, d_branch_attention [N,H] c,
//     d_act [N,F] c, d_pre [N,2F] c (swiglu only; gelu works in place on d_act),
//     d_norm1, d_norm2 [N,H] c, d_attention [N,A*D] c, d_qkv [N,(A+2K)D] c,
//     with latent attention attention.kv_up [N,A(Dn+Dv)], d_kv_down, d_query_down c;
//     delta [B*A*T] f32, rope.frequency [R/2] f32 (rope only, R rotated columns of a head),
//     rope.window_frequency [R/2] f32 (window_rope_theta only); for routed layers moe.d_output,
//     moe.d_input [R,H] c, moe.d_act [R,Fe] c, moe.d_up [R,2Fe] c (swiglu only), moe.d_weights
//     [N,k] f32, moe.d_logits [N,E] c, moe.shared.d_act, moe.shared.d_up
//     with ep > 1 moe.copies [copies,H] c and without pieces moe.sizes [E] i32
//     with cp > 1 attention.kv.0, .1 [N,2KD] c, attention.total [N,A*D] f32, attention.d_kv.own,
//     .0, .1 [N,2KD] f32, and for routed layers moe.parts [2B*cp,E] i32, moe.before [2B,E] i32
//     with a precision below 16 bits narrow.left, narrow.right u8: the operands of the current
//     product (narrow_buffers); fp8 on accelerators also narrow.turned.qkv, .output, .up, .down u8:
//     transposed gradients of outputs for the backward_weight pass, and as [1] f32 the largest
//     magnitudes (amax) of what products quantize: d_branch.0.amax, d_branch.1.amax,
//     d_branch_attention.amax, d_pre.amax (not with zero-bubble), and in every block slot
//     norm1.amax, attention.amax, norm2.amax, mlp.amax
//     with adapters lora.d_qkv, lora.d_output, lora.d_up, lora.d_down [N,r] c (gradients of what
//     adapters save), lora.input [N,widest input] c (with adapter dropout: the dropped input)
//   routing       slot "step" x 1: layers [routed layers, E + 3] f32, per layer its load [E] and
//                 sums [3] (route_backward of engine/moe_ops.h), over the micro-batches of a step
//   loss          slot "chunk" x 1: logits [C, padded V] f32, or c on accelerators; with tp also
//                 statistics [tp * 2 C] f32 (engine/vocabulary_ops.h); slot "rows" x 1: loss [N]
//                 f32 (C = loss chunk rows of the profile, on accelerators N where that fits:
//                 tutti_profile_on; a chunk's gradient overlays its logits)
//   batch         slot "batch" x 2 (or in-flight micro-batches): tokens [N] i32, targets
//                 [N] i32; packed documents also
//                 positions [N] i32, starts [N] i32; context parallel ranks positions and numbers
//                 [N] i32 (of rows in the whole micro-batch), and starts [cp N]; with a window
//                 shorter than the rows also window_starts, like starts
//   kernels       of an accelerator (by_stream): slot "workspace" x 1, u8: workspace that
//                 operations use in turn. 32 MiB for matrix products, or the workspace of bf16
//                 attention (base/attention_workspace.h)
//   teacher.weights, teacher.activations, teacher.workspace, teacher.loss
//                 with a teacher (spec/recipe/distill.h): those of inference_memory_map for its
//                 model and the run's micro-batches. It reads the run's batch; the rows of its loss
//                 arena hold each row's divergence from it
//
// Pipelines (pp > 1). There are as many slots of the activations as in-flight micro-batches
// (peak_in_flight_weighted): as many "block" slots as in-flight layers on the rank, "head" slots as
// of the last chunk, "batch" slots (at least 2) as of the first chunk, which has most. Slot
// "boundary" x 2 of the workspace holds what crosses a boundary: send [N,H] f32, the output for the
// next stage, and d_residual [N,H] f32, a gradient that is received, processed and sent; meanwhile
// the other of each serves the next micro-batch. It replaces d_residual of slot "step". If weight
// gradients run separately (zero-bubble, all stages but the first), the tensors of slot "step" that
// they read are in the activations instead, slots "delayed" and "delayed.moe" x layers x
// peak_delayed.
//
// Offloading (spec/recipe/offload.h). With `optimizer`, master and moments are on_host, and arena
// "optimizer_buffers" has slot "buffer" x 2 with tensors master (bf16 runs), moment1 and moment2
// [offload_buffer_elements] f32. With `activations`, covered layers of a kind have the device slots
// of their plan (offload_plan.h) in the activations, two or three of them, and arena
// "offloaded_activations", on_host, has the same slots x the plan's host_slots; with one in-flight
// micro-batch and c layers these are min(2, c) and c - 2. Slot "boundary" then also has receive
// [N,H] f32, where a stage's input waits for its slot.
//
// Every tensor starts at a multiple of 256 bytes. On larger meshes: rows divided by cp (and tp with
// sequence parallel), columns by tp; there are as many block slots as in-flight layers on the rank
// (dense layers in slot "block", routed ones in "block.moe", likewise "block.moe.recomputed" and
// "recompute.moe"); ZeRO divides moments and master (stage 1), gradients (2) and weights (3). Two
// blocks at a time, and embedding or head, are then complete: arenas "layer_gradients" f32 (2) and
// "gathered" c (3), with slots "block" x 2 and "outer" x 1
// (spec/mesh/zero_layers.h; in other profiles "gathered" holds the largest layer twice, or
// Profile::gathered_elements, and pipelines may keep weights and gradients whole: PipelinedZero).
// Dense and routed layers share one workspace.
//
// Recomputation (spec/program/recompute.h): a layer that recomputes keeps the other tensors in its
// slot; the tensors that it drops are in the single slot "recompute", for the active layer. Bytes
// per row of the micro-batch that this frees in each such layer with profile tutti (c = bytes of
// the compute type, S = 1, or 2 for swiglu):
//   norms       2 H c                           norm1.y, norm2.y
//   attention   ((A+2K)D + A D) c + 4 A         attention.qkv, .out, .lse
//   core        A D c + 4 A                     attention.out, .lse
//   mlp         (S F + F) c                     mlp.pre, mlp.act
//   activation  F c                             mlp.act
//   full        all of these, 4 H of residual_mid and 16 (rms norm: 8) of the norms' statistics;
//               the 4 H of residual_in remain
// GPT-2 124M in bf16 keeps 27,712 bytes per row and layer without recomputation; norms free 3,072
// of them, attention 6,192, mlp 12,288, activation 6,144, full 24,640.
//
// Other profiles have the same arenas with the tensors that their tables list (spec/program/
// profile.h), adjusted for frozen weights and narrow formats (kept_tensors.h); their loss arena
// also holds the logits in the compute type. megatron-te-2.11 has no loss arena: slot "loss" of the
// workspace, over slot "step", holds logits and d_logits in c (a layer's backward follows); slot
// "weight_gradients" holds a buffer in c for every shape of a layer's weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

struct TensorPlan {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  int64_t offset_bytes = 0;  // within its slot
  int64_t bytes = 0;
};

// `repeats` slots of equal size, `stride_bytes` apart, the first at `offset_bytes` of the arena.
struct SlotPlan {
  std::string name;
  int64_t repeats = 1;
  int64_t offset_bytes = 0;
  int64_t stride_bytes = 0;
  std::vector<TensorPlan> tensors;

  const TensorPlan& tensor(std::string_view tensor_name) const;  // aborts when absent
  int64_t tensor_bytes() const;                                  // without alignment gaps
};

struct ArenaPlan {
  std::string name;
  int64_t bytes = 0;
  bool on_host = false;    // with an accelerator: in pinned host memory (offload.h)
  bool by_stream = false;  // allocated by the accelerator's stream, when its operations request it
  std::vector<SlotPlan> slots;

  const SlotPlan& slot(std::string_view slot_name) const;  // aborts when absent
};

struct MemoryMap {
  std::vector<ArenaPlan> arenas;
  int64_t total_bytes() const;  // of the rank's device: without arenas that are on_host
  int64_t host_bytes() const;   // of arenas that are on_host
  bool has(std::string_view name) const;
  const ArenaPlan& arena(std::string_view name) const;  // aborts when absent
};

// Elements of the parameters on pipeline rank `stage`, before ZeRO, each parameter aligned as in
// ParamLayout. With tied embeddings and several stages the last stage holds a copy of the table.
struct LocalElements {
  int64_t shared = 0;         // replicated over dp * cp
  int64_t expert = 0;         // replicated over dp * cp / ep
  int64_t largest_layer = 0;  // shared + expert of one layer
  int64_t total() const { return shared + expert; }
};
// With trainable_only, only those that have a gradient.
LocalElements local_elements(const ParamTable& table, const Recipe& recipe, int64_t stage,
                             bool trainable_only = false);

// Layers of `group` that pipeline rank `stage` holds; for other groups 1 per repeat.
int64_t held_layers(const ParamTable& table, const ParamGroup& group, const Recipe& recipe,
                    int64_t stage);
// Trainable elements on pipeline rank `stage` that `ways` tensor parallel ranks hold: norms, biases
// of row-parallel projections and the like on all of them, or copies of key/value heads if there
// are fewer heads than ranks. Each rank computes a part of their gradients.
int64_t common_elements(const ParamTable& table, const Recipe& recipe, int64_t stage, int64_t ways);

// Elements of one ZeRO shard, and of all shards; with ZeRO padded so that all shards are equal.
int64_t shard_elements(const LocalElements& elements, const Mesh& mesh);
int64_t divisible_elements(const LocalElements& elements, const Mesh& mesh);

// The memory map of every rank on pipeline rank `stage`. With profile tutti on a single rank the
// flat arenas have exactly ParamLayout::elements elements (trainable_elements for all but the
// weights).
MemoryMap memory_map(const Recipe& recipe, const Profile& profile, int64_t stage = 0);
MemoryMap memory_map(const Recipe& recipe);  // profile tutti, stage 0

// The memory of a forward-only model (evaluation, scoring, a teacher) on one rank, with profile
// tutti: weights in c; activations in which no layer keeps anything ("block.recomputed" slots are
// empty, and all tensors of the active layer are in "recompute"); the tensors of the workspace that
// forward passes read; loss and batch as above.
MemoryMap inference_memory_map(const Recipe& recipe);

// Elements of an update buffer on a rank that updates `optimizer` elements: a bucket of
// spec/mesh/zero.h, but at most a quarter of the elements, so that copies and updates overlap.
int64_t offload_buffer_elements(int64_t optimizer);

// Bytes per step of `recipe` over the link of an accelerator's rank on pipeline rank `stage` with
// memory map `map`, per direction. Activations that a delayed weight gradient reads come in once
// more.
struct OffloadTraffic {
  int64_t state_in = 0;
  int64_t state_out = 0;
  int64_t activations_in = 0;
  int64_t activations_out = 0;
};
OffloadTraffic offload_traffic(const Recipe& recipe, const MemoryMap& map, int64_t stage = 0);

// Bytes that recomputation removes from the memory map of `recipe`.
int64_t bytes_freed_by_recompute(const Recipe& recipe);

}  // namespace tutti::spec
