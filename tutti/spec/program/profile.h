// An implementation as data: which tensors it keeps for backward, what it fuses, what it stores in
// which type. Program and MemoryMap are functions of it. Only `tutti` can be executed; the others
// let the planner be tested on published runs.
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

// Columns of a kept tensor; sizes of the model, split over tp where Split says so.
enum class Width {
  one,               // a number per row
  hidden,            // H
  qkv,               // (A + 2K) D
  query_key,         // (A + K) D
  value,             // K D
  attention_out,     // A D; latent: A * value
  heads,             // A
  normed,            // groups of queries and keys with an RMSNorm each: A + K, or 2
  attention_matrix,  // A T
  latent_query_down,
  latent_query,
  latent_kv_down,
  latent_kv_up,
  latent_key,
  key_value,  // 2 K D
  up,         // F, or 2F for swiglu
  ffn,        // F
  experts,    // E
  top_k,
  expert_bounds,  // E + 1
  expert_up,
  expert_ffn,
  shared_up,
  shared_ffn,
  rope_half,  // half of the rotated head width
  lora_qkv,   // adapters of a projection: rank for each
  lora_output,
  lora_up,
  lora_down,
  lora_input,  // the widest input of a projection with adapters; 0 without their dropout
};

enum class Rows {
  tokens,  // of a micro-batch
  routed,  // room for the token copies of this rank's experts: LocalSizes::routed_tokens
  copies,  // of this rank's tokens: LocalSizes::copies
  sequences,
  sequence_parts,  // two of each sequence on this context parallel rank
  all_parts,       // and on all of them
  single,          // one row
};

// What a kept tensor is divided by: the columns over tp, the rows over tp (with sequence parallel
// only), or nothing. Rows of context parallel ranks are always divided by cp.
enum class Split { none, columns, rows };

// How ranks that hold parts of a sequence attend to all of it: keys and values travel around the
// ranks while each attends to those it has (ring attention), they gather them, or they exchange
// heads for positions before and after the attention (all-to-all).
enum class ContextExchange { ring, gather, heads };

enum class Element {
  compute,
  f32,
  mask,  // one byte
  i32,
  product,  // as products of the recipe's precision read it (narrow.h), scales included
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
inline constexpr Condition kContext = 1U << 10;   // sequences are split over context ranks
inline constexpr Condition kExchange = 1U << 11;  // experts are split over ranks
inline constexpr Condition kGelu = 1U << 12;
// Experts are split over ranks, and hosts count the copies: LocalSizes::piece_rows is 0.
inline constexpr Condition kCounted = 1U << 13;
inline constexpr Condition kInputNorms = 1U << 14;   // NormPlacement before or both
inline constexpr Condition kBranchNorms = 1U << 15;  // after or both
inline constexpr Condition kQueryKeyNorm = 1U << 16;
inline constexpr Condition kWindowRope = 1U << 17;  // layers with a window rotate otherwise

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
  bool sequence_parallel = true;          // where tp > 1
  bool stores_attention_matrix = false;   // [B, A, T, T] scores and masks, not the flash manner
  bool fused_residual = true;             // the branch is added inside the next norm
  bool fuses_norm_gradients = false;      // of a norm's weights, in the pass for its input's
  bool quantizes_gradients_once = false;  // of a block's outputs, straight and transposed, with the
                                          // product for the input's gradient (executable only)
  bool quantizes_weights_once = false;    // of products below 16 bits, straight and transposed, for
                                          // all of a step; both stay (narrow.h; executable only)
  Parts selective_parts = kPartNorms | kPartActivation;  // where a recipe names none
  bool repeats_whole_forward = false;  // full recomputation; else without what no backward reads
  DType residual = DType::f32;         // f32, or bf16: the compute type
  DType gradient = DType::f32;
  int64_t vocabulary_multiple = 64;        // rows of the vocabulary are padded to this, times tp
  int64_t loss_chunk_bytes = 0;            // of f32 logits handled at once; 0: no bound
  int64_t loss_chunk_rows = 0;             // and at most this many rows; 0: all of a micro-batch
  bool loss_compute_logits = false;        // logits in the compute type only, not in f32
  bool loss_keeps_compute_logits = false;  // logits also stored in the compute type
  bool loss_keeps_gradient = false;        // and their gradient beside them, in f32
  bool loss_in_compute_type = false;       // the logits and their gradient, no f32 copy; they lie
                                           // over the workspace, which layers need only later
  bool weight_gradient_stand_ins = false;  // a buffer in the compute type for every shape of weight
  // In 8 bits and fewer (spec/memory/kept_tensors.h): what trained products read is kept in their
  // format, and the input of the activation in one byte; frozen matrices of blocks lie in the
  // format alone.
  bool narrow_kept_inputs = false;
  bool narrow_activation_input = false;
  bool narrow_frozen_weights = false;
  // In mxfp8 the blocks' trained matrices lie in the format alone: the update writes them there,
  // and what ranks gather in 16 bits lies in the buffer of the gradients, which is free by then.
  bool narrow_weights = false;
  // ZeRO-3: elements of gathered weights that may live beside each other, but a single weight may
  // be larger; 0: two layers.
  int64_t gathered_elements = 0;
  ContextExchange context_exchange = ContextExchange::gather;
  bool gathers_narrow = false;  // tensor parallel ranks quantize what they gather for a product in
                                // a narrow precision before they send it, not after
  bool dispatch_once_per_domain =
      false;                            // a token crosses to a domain of the network once, however
                                        // many of its experts are there; else once per expert
  std::vector<SavedTensor> block;       // kept per layer and micro-batch in flight
  std::vector<SavedTensor> checkpoint;  // the same under full recomputation
  std::vector<SavedTensor> embedding;   // kept on the first stage
  std::vector<SavedTensor> head;        // kept on the last stage
  std::vector<SavedTensor> workspace;   // one set per rank
  std::vector<SavedTensor> delayed;     // of it, per layer where weight gradients run apart
  std::vector<SavedTensor> forward_workspace;  // that of it which forward passes use
};

// "tutti", "megatron-2022" (Korthikanti et al. 2022, as published), "megatron-te" (flash attention,
// bf16 residual) or "megatron-te-2.11" (the same with the fused loss and the buffers of
// Transformer Engine 2.11, context parallelism by exchanging heads) or "megatron-bridge" (as
// megatron-te-2.11, with gathered keys, gradients in bf16 and a dispatcher that sends a token to a
// domain once) or
// "nemo-mlperf" (megatron-te with gradients in bf16: MLPerf submissions of 2025) or "nemo-lora"
// (nemo-mlperf with frozen weights and the activation's input in 8 bits: NeMo's tuning with
// adapters) or "torchtitan" (FSDP2 of PyTorch; selective recomputation by operations: every other
// product runs again); throws usage naming the known ones.
const Profile& find_profile(std::string_view name);
const std::vector<std::string>& profile_names();  // that find_profile accepts
const Profile& tutti_profile();
// As executed on the device of a recipe (device_profile.cpp). An accelerator keeps logits in the
// compute type, with their gradient in their place, and handles all rows of a micro-batch at once,
// so that the head's gradient is read and written once per micro-batch. Where that does not fit
// into 15/16 of the device's memory (`device_bytes`; 0: not known, everything fits), it handles as
// many rows at once as do, and 1,024 at least. Gradients of a norm's weights it finds with those of
// the norm's input, and in fp8 quantizes the gradient of an output once for both products that read
// it, but where weight gradients may run apart (zero-bubble). In fp8 it quantizes weights once a
// step and keeps the codes where every rank has room for them beside 1,024 rows of logits; not with
// ZeRO 3, whose ranks have a layer's weights only while it is at work.
Profile tutti_profile_on(const Recipe& recipe, int64_t device_bytes = 0);
// The same with what depends on the device's memory given: whether weights are quantized once, and
// the rows of logits at once (0: all of a micro-batch). On the CPU, where nothing does, as executed
// there. tutti_profile_on takes half of kFewestLossRows or more, where a micro-batch has so many.
Profile tutti_profile_with(const Recipe& recipe, bool quantizes_weights_once,
                           int64_t loss_chunk_rows);
inline constexpr int64_t kFewestLossRows = 1024;  // enough for the speed of the head's products

int64_t padded_vocabulary(const Profile& profile, const ModelConfig& model, const Mesh& mesh);

// Rows of logits handled at once, of `rows` in all: as many multiples of 64 as loss_chunk_bytes
// hold, at least 64, at most loss_chunk_rows and `rows`. `vocabulary` is this rank's padded share.
int64_t loss_chunk_rows(const Profile& profile, int64_t rows, int64_t vocabulary);
// Of the logits that the loss reads.
DType loss_logits_type(const Profile& profile, DType compute);

// Everything a tensor's size depends on: sizes of one rank.
struct LocalSizes {
  const ModelConfig* model = nullptr;
  const LoraConfig* lora = nullptr;
  DType compute = DType::f32;
  int64_t batch = 0;     // B, sequences of a micro-batch
  int64_t sequence = 0;  // T, all of it
  int64_t tp = 1, cp = 1, ep = 1;
  bool sequence_parallel = false;
  int64_t tokens = 0;        // B * T / cp
  int64_t shard_tokens = 0;  // tokens / tp with sequence parallel, else tokens
  // The most copies that this rank's tokens can have: top_k of each, or fewer where the capacity
  // says so. Over ep ranks also what a rank receives on average.
  int64_t chosen_copies = 0;
  // Rows::copies. Room for them: as many, or ep pieces.
  int64_t copies = 0;
  // > 0: what goes to a rank with experts lies in a piece of so many rows, and all of it is sent,
  // so that no host needs to know how many copies there are. Done where a capacity sees to it that
  // pieces are little more than the copies in them.
  int64_t piece_rows = 0;
  // Rows::routed. The bound of what this rank's experts get: of any routing, or with
  // Mesh::expert_room_percent (and in profiles that are not executable) of one so unbalanced, where
  // the trainer refuses others. Equal to `copies` with all experts on one rank.
  int64_t routed_tokens = 0;
  int64_t heads = 0, kv_heads = 0;  // of this tp rank
  int64_t vocabulary = 0;           // padded rows of this tp rank

  int64_t rows(Rows kind, Split split) const;
  int64_t width(Width kind, Split split) const;
  int64_t adapter_input_width() const;
  DType dtype(Element element) const;
  double product_bytes = 2;  // of an element that products read
  bool holds(unsigned conditions, bool routed_layer) const;
};

// Parts that a recomputing layer computes again; full: all of them.
Parts repeated_parts(const Profile& profile, const Recompute& recompute);

// Whether a recomputing layer drops `saved`, a tensor of profile.block.
bool is_dropped(const Profile& profile, const Recompute& recompute, const SavedTensor& saved);

DType compute_type(Precision precision);
// Whether AdamW keeps f32 copies of the parameters beside the weights.
bool has_masters(const Recipe& recipe);
LocalSizes local_sizes(const Recipe& recipe, const Profile& profile);

}  // namespace tutti::spec
