// An implementation as data: the tensors it keeps for the backward pass, its fused operations, its
// storage types. Program and MemoryMap are functions of it. Only `tutti` is executable; the other
// profiles allow the planner to be tested against published runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/model/config.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

// Columns of a kept tensor: sizes of the model, split over tp as Split says.
enum class Width {
  one,               // a number per row
  hidden,            // H
  qkv,               // (A + 2K) D
  query_key,         // (A + K) D
  value,             // K D
  attention_out,     // A D; latent: A * value
  heads,             // A
  normed,            // groups of queries and keys with an RMSNorm: A + K, or 2
  attention_matrix,  // A T
  latent_query_down,
  latent_query,
  latent_kv_down,
  latent_kv_up,
  latent_key,
  latent_qkv,  // queries, keys and values
  key_value,   // 2 K D
  up,          // F, or 2F for swiglu
  ffn,         // F
  experts,     // E
  top_k,
  expert_bounds,  // E + 1
  expert_up,
  expert_ffn,
  shared_up,
  shared_ffn,
  rope_half,  // half of the rotated head width
  lora_qkv,   // adapters of a projection: rank columns each
  lora_output,
  lora_up,
  lora_down,
  lora_input,  // the widest input of a projection with adapters; 0 without their dropout
};

enum class Rows {
  tokens,  // of a micro-batch
  routed,  // capacity for the token copies of this rank's experts: LocalSizes::routed_tokens
  copies,  // of this rank's tokens: LocalSizes::copies
  sequences,
  sequence_parts,  // two per sequence on this context parallel rank
  all_parts,       // the same on all of them
  single,          // one row
};

// How a kept tensor is split: columns over tp, rows over tp (only with sequence parallelism), or
// not at all. Rows of context parallel ranks are always split over cp.
enum class Split { none, columns, rows };

// How context parallel ranks attend to whole sequences: keys and values travel around the ranks,
// and each attends to those it has (ring attention); ranks all-gather them; or they exchange heads
// for positions before and after the attention (all-to-all).
enum class ContextExchange { ring, gather, heads };

// What programs that pipeline micro-batches do with weights (ZeRO 3) and gradients (2 and 3). It
// decides what a rank holds as well as what it sends.
enum class PipelinedZero {
  micro_batch,  // gather weights and reduce gradients in every micro-batch: ranks hold shards
  round,  // keep gathered weights; with virtual stages reduce a stage's gradients, layer by layer,
          // in the last of its pp consecutive micro-batches
  step,   // keep gathered weights and unreduced gradients until the last micro-batch
};

enum class Element {
  compute,
  f32,
  mask,  // one byte
  i32,
  product,  // in the format of the recipe's products (narrow.h), scales included
};

// When a tensor exists; all bits set must hold.
using Condition = unsigned;
inline constexpr Condition kAlways = 0;
inline constexpr Condition kLayerNorm = 1U << 0;
inline constexpr Condition kDropout = 1U << 1;
inline constexpr Condition kSwiglu = 1U << 2;  // or another gate (is_gated)
inline constexpr Condition kGrouped = 1U << 3;
inline constexpr Condition kLatent = 1U << 4;
inline constexpr Condition kCompressedQuery = 1U << 5;
inline constexpr Condition kDense = 1U << 6;
inline constexpr Condition kRouted = 1U << 7;
inline constexpr Condition kShared = 1U << 8;
inline constexpr Condition kRope = 1U << 9;
inline constexpr Condition kContext = 1U << 10;   // sequences are split over context parallel ranks
inline constexpr Condition kExchange = 1U << 11;  // experts are split over ranks
inline constexpr Condition kGelu = 1U << 12;
// Experts are split over ranks, and hosts count the copies: LocalSizes::piece_rows is 0.
inline constexpr Condition kCounted = 1U << 13;
inline constexpr Condition kInputNorms = 1U << 14;   // NormPlacement before or both
inline constexpr Condition kBranchNorms = 1U << 15;  // after or both
inline constexpr Condition kQueryKeyNorm = 1U << 16;
inline constexpr Condition kWindowRope = 1U << 17;  // layers with a window have their own RoPE base

struct SavedTensor {
  const char* name;
  Rows rows;
  Width width;
  Element element;
  Split split;
  unsigned conditions;
  Parts parts = 0;  // selective recomputation of any of these drops it
};

struct Profile {
  std::string name;
  bool executable = false;
  bool sequence_parallel = true;          // if tp > 1
  bool stores_attention_matrix = false;   // [B, A, T, T] scores and masks; no flash attention
  bool fused_residual = true;             // the next norm adds the branch
  bool fuses_norm_gradients = false;      // of a norm's weights, in its backward_input pass
  bool quantizes_gradients_once = false;  // of a block's outputs, straight and transposed, with the
                                          // product for the input's gradient (executable only)
  bool quantizes_weights_once = false;    // of products below 16 bits, straight and transposed, for
                                          // a whole step; keeps both (narrow.h; executable only)
  Parts selective_parts = kPartNorms | kPartActivation;  // if the recipe names none
  bool repeats_whole_forward = false;  // full recomputation; else only what backward passes read
  DType residual = DType::f32;         // f32, or bf16: the compute type
  DType gradient = DType::f32;
  int64_t vocabulary_multiple = 64;        // rows of the vocabulary are padded to this, times tp
  int64_t loss_chunk_bytes = 0;            // of f32 logits processed at once; 0: no bound
  int64_t loss_chunk_rows = 0;             // and at most this many rows; 0: all of a micro-batch
  bool loss_compute_logits = false;        // logits in the compute type only, not in f32
  bool loss_keeps_compute_logits = false;  // logits also stored in the compute type
  bool loss_keeps_gradient = false;        // also their gradient, in f32
  bool loss_in_compute_type = false;       // logits and their gradient, no f32 copy; they overlay
                                           // the workspace, which layers need only later
  bool weight_gradient_stand_ins = false;  // a buffer in the compute type for every shape of weight
  // In 8 bits and fewer (spec/memory/kept_tensors.h): inputs of trained products are kept in the
  // products' format, and the input of the activation in one byte; frozen matrices of blocks are
  // stored in the format only.
  bool narrow_kept_inputs = false;
  bool narrow_activation_input = false;
  bool narrow_frozen_weights = false;
  // In mxfp8 the blocks' trained matrices are stored in the format only: the update writes them in
  // it, and the 16-bit weights that ranks gather use the gradients' buffer, which is free by then.
  bool narrow_weights = false;
  // ZeRO-3: elements of gathered weights that may be live at a time, though a single weight may be
  // larger; 0: two layers.
  int64_t gathered_elements = 0;
  PipelinedZero pipelined_zero = PipelinedZero::step;
  ContextExchange context_exchange = ContextExchange::gather;
  bool gathers_narrow = false;  // tensor parallel ranks quantize the inputs of narrow products
                                // before the all-gather, not after it
  // A token is sent to a domain of the network once, however many of its experts are there; else
  // once per expert.
  bool dispatch_once_per_domain = false;
  std::vector<SavedTensor> block;       // kept per layer and in-flight micro-batch
  std::vector<SavedTensor> checkpoint;  // the same under full recomputation
  std::vector<SavedTensor> embedding;   // kept on the first stage
  std::vector<SavedTensor> head;        // kept on the last stage
  std::vector<SavedTensor> workspace;   // one set per rank
  std::vector<SavedTensor> delayed;     // part of it, per layer if weight gradients run separately
  std::vector<SavedTensor> forward_workspace;  // the part that forward passes use
};

// "tutti", "megatron-2022" (Korthikanti et al. 2022, as published), "megatron-te" (flash attention,
// bf16 residual) or "megatron-te-2.11" (the same with the fused loss and the buffers of Transformer
// Engine 2.11, context parallelism by all-to-all of heads) or "megatron-bridge" (megatron-te-2.11
// with all-gathered keys, bf16 gradients and a dispatcher that sends a token once per domain) or
// "nemo-mlperf" (megatron-te with bf16 gradients: MLPerf submissions of 2025) or "nemo-lora"
// (nemo-mlperf with frozen weights and the activation's input in 8 bits: NeMo's adapter tuning) or
// "llama3" (megatron-te with Meta's FSDP: PipelinedZero::round) or "torchtitan" (FSDP2 of PyTorch;
// selective recomputation by operations: every other product runs again); throws usage naming the
// known ones.
const Profile& find_profile(std::string_view name);
const std::vector<std::string>& profile_names();  // accepted by find_profile
const Profile& tutti_profile();

// The ZeRO stage by which ranks of a run hold weights and gradients between micro-batches, and move
// them in every micro-batch: the mesh's, or at most 1 if pipelines keep them (PipelinedZero).
int64_t held_zero(const Mesh& mesh, const Profile& profile);
// Whether gradients are reduced after rounds of pp micro-batches: PipelinedZero::round with ZeRO 2
// or 3 and virtual stages. Without virtual stages there is one round.
bool reduces_rounds(const Mesh& mesh, const Profile& profile);
// Profile tutti as executed on the device of a recipe (device_profile.cpp). On an accelerator
// logits are in the compute type, overwritten by their gradient, and all rows of a micro-batch are
// processed at once, so that the head's gradient is read and written once per micro-batch. If that
// does not fit into 15/16 of the device's memory (`device_bytes`; 0: unknown, everything fits), it
// processes as many rows at once as fit, and at least 1,024. It computes gradients of a norm's
// weights together with the gradient of the norm's input, and in fp8 quantizes the gradient of an
// output once for both products that read it, unless weight gradients may run separately
// (zero-bubble). In fp8 it quantizes weights once a step and keeps the codes if every rank has
// memory for them besides 1,024 rows of logits; not with ZeRO 3, whose ranks have a layer's weights
// only while the layer is active.
Profile tutti_profile_on(const Recipe& recipe, int64_t device_bytes = 0);
// The same with the choices that depend on the device's memory given: whether weights are quantized
// once, and the rows of logits at once (0: all of a micro-batch). On the CPU, where nothing depends
// on it, the profile as executed there. tutti_profile_on chooses at least half of kFewestLossRows,
// if a micro-batch has as many.
Profile tutti_profile_with(const Recipe& recipe, bool quantizes_weights_once,
                           int64_t loss_chunk_rows);
inline constexpr int64_t kFewestLossRows = 1024;  // enough for the speed of the head's products

int64_t padded_vocabulary(const Profile& profile, const ModelConfig& model, const Mesh& mesh);

// Rows of logits processed at once, of `rows` in all: as many multiples of 64 as fit into
// loss_chunk_bytes, at least 64, at most loss_chunk_rows and `rows`. `vocabulary` is this rank's
// padded share.
int64_t loss_chunk_rows(const Profile& profile, int64_t rows, int64_t vocabulary);
// Type of the logits that the loss reads.
DType loss_logits_type(const Profile& profile, DType compute);

// Sizes on one rank: everything that tensor sizes depend on.
struct LocalSizes {
  const ModelConfig* model = nullptr;
  const LoraConfig* lora = nullptr;
  DType compute = DType::f32;
  int64_t batch = 0;     // B, sequences of a micro-batch
  int64_t sequence = 0;  // T, the full sequence
  int64_t tp = 1, cp = 1, ep = 1;
  bool sequence_parallel = false;
  int64_t tokens = 0;        // B * T / cp
  int64_t shard_tokens = 0;  // tokens / tp with sequence parallel, else tokens
  // Most copies of this rank's tokens: top_k per token, or fewer with a capacity. With several ep
  // ranks also the average that a rank receives.
  int64_t chosen_copies = 0;
  // Rows::copies: their capacity, the same number or ep pieces.
  int64_t copies = 0;
  // > 0: the tokens for each rank with experts are in a piece of this many rows and all of it is
  // sent, so that no host needs to know the number of copies. Used if a capacity guarantees that
  // pieces are little larger than the copies in them.
  int64_t piece_rows = 0;
  // Rows::routed. Upper bound of the copies that this rank's experts receive: of any routing, or
  // with Mesh::expert_room_percent (and in profiles that are not executable) of a routing with that
  // imbalance; the trainer refuses others. Equal to `copies` with all experts on one rank.
  int64_t routed_tokens = 0;
  int64_t heads = 0, kv_heads = 0;  // of this tp rank
  int64_t vocabulary = 0;           // padded rows of this tp rank

  int64_t rows(Rows kind, Split split) const;
  int64_t width(Width kind, Split split) const;
  int64_t adapter_input_width() const;
  DType dtype(Element element) const;
  double product_bytes = 2;  // of an operand's element
  bool holds(unsigned conditions, bool routed_layer) const;
};

// Parts that a recomputing layer computes again; full: all.
Parts repeated_parts(const Profile& profile, const Recompute& recompute);

// Whether a recomputing layer drops `saved`, a tensor of profile.block.
bool is_dropped(const Profile& profile, const Recompute& recompute, const SavedTensor& saved);

DType compute_type(Precision precision);
// Whether AdamW keeps f32 copies of the parameters besides the weights.
bool has_masters(const Recipe& recipe);
LocalSizes local_sizes(const Recipe& recipe, const Profile& profile);

}  // namespace tutti::spec
