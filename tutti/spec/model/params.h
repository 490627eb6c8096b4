// All parameter tensors of a model, as groups of equal layers.
//
// Names: embedding.token.weight [V,H], embedding.position.weight [context,H];
// blocks.N.norm1.{weight,bias} [H], blocks.N.attention.qkv.{weight,bias} [(A+2K)D, H] (query rows,
// then key, then value), blocks.N.attention.output.{weight,bias} [H, A*D], blocks.N.norm2.*,
// blocks.N.mlp.up.{weight,bias} [F,H] (gelu) or blocks.N.mlp.gate_up.weight [2F,H] (swiglu: gate
// rows, then up rows), blocks.N.mlp.down.{weight,bias} [H,F]; final_norm.{weight,bias};
// head.weight [V,H] unless tied. Linear weights are [out, in], as in PyTorch. Optional
// parts: attention.query_norm.weight and attention.key_norm.weight [D], or [A*D] and [K*D];
// attention.branch_norm.weight and mlp.branch_norm.weight [H], norms after attention and MLP,
// instead of norm1 and norm2 or besides them; attention.sinks.weight [A].
//
// Mixture of experts (E experts of width Fe), instead of mlp: moe.router.weight [E,H],
// moe.router.bias [E], moe.experts.{up.weight [E,Fe,H] | gate_up.weight [E,2Fe,H]},
// moe.experts.down.weight [E,H,Fe], with biases moe.experts.*.bias [E,2Fe] and [E,H], moe.shared.*
// like mlp.* with width shared*Fe. Latent attention (query rank Rq, key/value rank Rk), instead of
// attention.qkv: attention.query_down.weight [Rq,H], attention.query_norm.*,
// attention.query_up.weight [A*(nope+rope),Rq] (or attention.query.weight [A*(nope+rope),H]),
// attention.kv_down.weight [Rk+rope,H], attention.kv_norm.*, attention.kv_up.weight
// [A*(nope+value),Rk], attention.output.weight [H,A*value]. Multi-token prediction: groups named
// "prediction.", their block as above plus norm_hidden, norm_embedding, projection.weight [H,2H],
// final_norm.
//
// Adapters (spec/recipe/lora.h; r is the rank), beside the projection they adapt:
// NAME.lora_a.weight [r,in] and NAME.lora_b.weight [rows,r], where NAME is blocks.N. and
// attention.qkv, or attention.query, attention.key, attention.value (in H; rows A*D, K*D, K*D);
// attention.output; mlp.up, mlp.gate, mlp.down. They are then the only trainable parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/model/config.h"
#include "tutti/spec/model/shard.h"
#include "tutti/spec/recipe/lora.h"

namespace tutti::spec {

struct Recipe;  // spec/recipe/recipe.h

enum class Init { zeros, ones, normal, uniform };

struct Param {
  std::string name;            // within its group: "attention.qkv.weight"
  std::vector<int64_t> shape;  // logical, before sharding
  int64_t padded_rows = 0;     // rows of dim 0 in the arena (vocabulary padding), >= shape[0]
  Init init = Init::zeros;
  double init_std = 0;    // with Init::normal; residual outputs get init_std / sqrt(2 L)
  double init_bound = 0;  // with Init::uniform: in [-bound, bound)
  bool trainable = true;  // else frozen: no gradient, master or moments
  bool decay = false;     // weight decay applies (matrices)
  int shard_dim = -1;     // dim split over shard_axis; -1: replicated
  Axis shard_axis = Axis::tp;
  bool expert = false;   // dim 0 is split over ep (besides shard_dim over tp)
  int64_t parts = 1;     // equal parts of shard_dim, each split separately (gate and up rows)
  int64_t kv_heads = 0;  // of the rows, the last kv_rows belong to this many key/value heads, which
  int64_t kv_rows = 0;   // are replicated where tp exceeds them (gradients then summed)
  int64_t kv_parts = 1;  // keys, then values

  int64_t count() const;         // product of shape
  int64_t padded_count() const;  // with padded rows
  // Elements that each rank of `mesh` holds, before ZeRO. Over all tp (and ep) ranks they sum to
  // padded_count(), times the replication of what is not split.
  int64_t local_count(const Mesh& mesh) const;
};

// `repeats` equal layers, the first being number first_layer; their parameters are named
// prefix + layer + "." + name when repeated ("blocks."), or prefix + name otherwise.
struct ParamGroup {
  std::string prefix;
  int64_t first_layer = 0;
  int64_t repeats = 1;
  bool numbered = false;
  std::vector<Param> params;
};

struct ParamTable {
  std::vector<ParamGroup> groups;    // in forward order
  LoraConfig lora;                   // of its adapters
  int64_t count() const;             // logical parameters, without multi-token prediction modules
  int64_t trainable_count() const;   // of those
  int64_t prediction_count() const;  // of those modules, without shared tensors
};

// Vocabulary rows are padded to a multiple of `vocabulary_multiple` (in the arena only).
ParamTable param_table(const ModelConfig& model, int64_t vocabulary_multiple = 64);
// With adapters, everything else is frozen; without adapters, the same as above.
ParamTable param_table(const ModelConfig& model, const LoraConfig& lora,
                       int64_t vocabulary_multiple = 64);

// Parameters that act on one token: routed experts count top_k times, not `experts` times.
int64_t active_count(const ModelConfig& model);

// Alignment of parameters in elements: 256 bytes of f32.
inline constexpr int64_t kParamAlignment = 64;
int64_t align_elements(int64_t count);

// One parameter with its full name and its offset in the flat arenas (weights, gradients, master
// and moments share the element offsets). Order: as gradients complete in the backward pass (final
// norm and head first, then blocks from last to first, embeddings last), each padded to 64
// elements. Padding elements are zero and stay zero. Frozen parameters follow the trainable ones:
// only the weights arena holds them.
struct PlacedParam {
  std::string name;
  Param param;
  int64_t element_offset = 0;
  ParamShard shard;  // this rank's part: shard.count() elements from element_offset
};

struct ParamLayout {
  std::vector<PlacedParam> params;
  int64_t elements = 0;            // of the weights arena, padding included
  int64_t trainable_elements = 0;  // of the other flat arenas; these come first
  int64_t expert_offset = 0;       // among those; trainable_elements unless ep > 1
  LoraConfig lora;

  const PlacedParam& find(const std::string& name) const;  // aborts when absent
};

// Expands the names. The layout of a single rank, or of rank `at` of a mesh: its shards of the
// parameters of its layers. With tied embeddings and several stages the last stage holds the token
// table too. With expert parallelism the experts' parameters come after all other trainable ones,
// from expert_offset on: their gradients are reduced over other ranks.
ParamLayout param_layout(const ParamTable& table);
ParamLayout param_layout(const ParamTable& table, const Mesh& mesh, const Coordinates& at);

// The trainable parameter of rank `at` that is a copy of one of the first stage of its pipeline:
// the token table of a last stage with tied embeddings. Empty on other ranks.
std::string tied_copy(const Recipe& recipe, const Coordinates& at);

}  // namespace tutti::spec
