#include "tutti/spec/program/profile.h"

#include <algorithm>
#include <cmath>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/spec/program/profile_tables.h"

namespace tutti::spec {

const Profile& tutti_profile() {
  static const Profile profile = make_tutti_profile();
  return profile;
}

namespace {

const std::vector<Profile>& published_profiles() {
  static const std::vector<Profile> published = {make_megatron_2021_profile(),
                                                 make_megatron_2022_profile(),
                                                 make_megatron_deepspeed_profile(),
                                                 make_megatron_te_profile(),
                                                 make_megatron_te_2_11_profile(),
                                                 make_megatron_bridge_profile(),
                                                 make_nemo_mlperf_profile(),
                                                 make_nemo_lora_profile(),
                                                 make_llama3_profile(),
                                                 make_torchtitan_profile()};
  return published;
}

}  // namespace

const std::vector<std::string>& profile_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {tutti_profile().name};
    for (const Profile& profile : published_profiles()) all.push_back(profile.name);
    return all;
  }();
  return names;
}

const Profile& find_profile(std::string_view name) {
  if (name == tutti_profile().name) return tutti_profile();
  for (const Profile& profile : published_profiles()) {
    if (profile.name == name) return profile;
  }
  const std::string suggestion = nearest_word(name, profile_names());
  fail(ErrorKind::usage, "profile: '{}' is unknown;{} accepted: {}", name,
       suggestion.empty() ? "" : " did you mean '" + suggestion + "'?",
       join(profile_names(), ", "));
}

int64_t held_zero(const Mesh& mesh, const Profile& profile) {
  const bool keeps = mesh.pp > 1 && profile.pipelined_zero != PipelinedZero::micro_batch;
  return keeps ? std::min<int64_t>(mesh.zero, 1) : mesh.zero;
}

bool reduces_rounds(const Mesh& mesh, const Profile& profile) {
  return profile.pipelined_zero == PipelinedZero::round && mesh.zero >= 2 && mesh.pp > 1 &&
         mesh.vpp > 1;
}

int64_t padded_vocabulary(const Profile& profile, const ModelConfig& model, const Mesh& mesh) {
  const int64_t multiple = profile.vocabulary_multiple * mesh.tp;
  return (model.vocabulary + multiple - 1) / multiple * multiple;
}

int64_t loss_chunk_rows(const Profile& profile, int64_t rows, int64_t vocabulary) {
  const int64_t most = profile.loss_chunk_rows == 0 ? rows : profile.loss_chunk_rows;
  if (profile.loss_chunk_bytes == 0) return std::min(rows, most);
  const int64_t fitting = profile.loss_chunk_bytes / (vocabulary * dtype_bytes(DType::f32));
  return std::min({rows, most, std::max<int64_t>(64, fitting / 64 * 64)});
}

DType loss_logits_type(const Profile& profile, DType compute) {
  return profile.loss_compute_logits ? compute : DType::f32;
}

Parts repeated_parts(const Profile& profile, const Recompute& recompute) {
  switch (recompute.mode) {
    case RecomputeMode::none: return 0;
    case RecomputeMode::selective:
      return recompute.parts != 0 ? recompute.parts : profile.selective_parts;
    case RecomputeMode::full: return ~Parts{0};
  }
  return 0;
}

bool is_dropped(const Profile& profile, const Recompute& recompute, const SavedTensor& saved) {
  if (recompute.mode == RecomputeMode::full) {
    return std::none_of(
        profile.checkpoint.begin(), profile.checkpoint.end(),
        [&](const SavedTensor& kept) { return std::string_view(kept.name) == saved.name; });
  }
  return (saved.parts & repeated_parts(profile, recompute)) != 0;
}

DType compute_type(Precision precision) {
  return precision == Precision::f32 ? DType::f32 : DType::bf16;
}

bool has_masters(const Recipe& recipe) {
  return compute_type(recipe.precision) != DType::f32 && recipe.optimizer.master == Master::f32;
}

namespace {

// Most dp coordinates, each with its own sequences, of one expert group (comm/world/axes.h), which
// is ep consecutive ranks of dp x cp.
int64_t dp_coordinates_of_experts(const Mesh& mesh) {
  if (mesh.ep % mesh.cp == 0) return mesh.ep / mesh.cp;
  return mesh.cp % mesh.ep == 0 ? 1 : (mesh.ep + mesh.cp - 2) / mesh.cp + 1;
}

// Exchanged pieces may be larger than the copies in them by this factor: on fast networks that
// costs less time than synchronizing the hosts of all ranks in every layer.
constexpr int64_t kPaddedCopies = 2;

void bound_routing(const Recipe& recipe, const Profile& profile, LocalSizes& sizes) {
  const MixtureOfExperts& moe = recipe.model.moe;
  const Mesh& mesh = recipe.parallel;
  if (moe.experts == 0) return;
  const int64_t all = sizes.tokens * moe.top_k;
  const double factor = moe.capacity_factor;
  if (mesh.ep > 1 && !profile.executable) {
    const double balanced = static_cast<double>(all) * (factor > 0 ? factor : 1);
    sizes.chosen_copies = static_cast<int64_t>(std::ceil(balanced));
    sizes.copies = sizes.routed_tokens = sizes.chosen_copies;
    return;
  }
  const int64_t capacity = factor > 0 ? expert_capacity(moe, sizes.sequence) : all;
  sizes.chosen_copies = std::min(all, sizes.batch * moe.experts * capacity);
  sizes.copies = sizes.routed_tokens = sizes.chosen_copies;
  if (mesh.ep == 1) return;
  const int64_t experts = moe.experts / mesh.ep;
  sizes.routed_tokens = mesh.ep * sizes.tokens * std::min(moe.top_k, experts);
  if (factor > 0) {
    sizes.routed_tokens = std::min(
        sizes.routed_tokens, dp_coordinates_of_experts(mesh) * sizes.batch * experts * capacity);
  }
  if (mesh.expert_room_percent > 0) {
    const int64_t most_rows = (sizes.copies * mesh.expert_room_percent + 99) / 100;
    sizes.routed_tokens = std::min(sizes.routed_tokens, most_rows);
    return;
  }
  // Here the capacity is that of pieces: a rank receives as many from each rank as it sends to it.
  if (factor > 0 && mesh.cp == 1 && sizes.routed_tokens <= kPaddedCopies * sizes.chosen_copies) {
    sizes.piece_rows = sizes.routed_tokens / mesh.ep;
    sizes.copies = sizes.routed_tokens;
  }
}

}  // namespace

LocalSizes local_sizes(const Recipe& recipe, const Profile& profile) {
  const ModelConfig& model = recipe.model;
  const Mesh& mesh = recipe.parallel;
  LocalSizes sizes;
  sizes.model = &model;
  sizes.lora = &recipe.lora;
  sizes.compute = compute_type(recipe.precision);
  sizes.product_bytes = recipe.precision == Precision::f32 ? 4 : operand_bytes(recipe.precision);
  sizes.batch = recipe.batch.micro;
  sizes.sequence = recipe.batch.sequence;
  sizes.tp = mesh.tp;
  sizes.cp = mesh.cp;
  sizes.ep = mesh.ep;
  sizes.sequence_parallel = profile.sequence_parallel && mesh.tp > 1;
  sizes.tokens = sizes.batch * sizes.sequence / mesh.cp;
  sizes.shard_tokens = sizes.sequence_parallel ? sizes.tokens / mesh.tp : sizes.tokens;
  bound_routing(recipe, profile, sizes);
  sizes.heads = model.heads / mesh.tp;
  sizes.kv_heads = std::max<int64_t>(1, model.kv_heads / mesh.tp);
  sizes.vocabulary = padded_vocabulary(profile, model, mesh) / mesh.tp;
  return sizes;
}

int64_t LocalSizes::rows(Rows kind, Split split) const {
  switch (kind) {
    case Rows::tokens: return split == Split::rows ? shard_tokens : tokens;
    case Rows::routed: return routed_tokens;
    case Rows::copies: return copies;
    case Rows::sequences: return batch;
    case Rows::sequence_parts: return 2 * batch;
    case Rows::all_parts: return 2 * batch * cp;
    case Rows::single: return 1;
  }
  return 0;
}

int64_t LocalSizes::width(Width kind, Split split) const {
  const int64_t ways = split == Split::columns ? tp : 1;
  const int64_t a = split == Split::columns ? heads : model->heads;
  const int64_t k = split == Split::columns ? kv_heads : model->kv_heads;
  const int64_t d = model->head_dim;
  const int64_t gate = is_gated(*model) ? 2 : 1;
  const LatentAttention& latent = model->latent;
  const int64_t latent_key = latent.nope_head_dim + latent.rope_head_dim;
  const bool is_latent = model->attention == Attention::latent;
  switch (kind) {
    case Width::one: return 1;
    case Width::hidden: return model->hidden / ways;
    case Width::qkv: return (a + 2 * k) * d;
    case Width::query_key: return (a + k) * d;
    case Width::value: return k * d;
    case Width::key_value: return 2 * k * d;
    case Width::attention_out: return a * (is_latent ? latent.value_head_dim : d);
    case Width::heads: return a;
    case Width::normed: return model->query_key_norm == QueryKeyNorm::whole ? 2 : a + k;
    case Width::attention_matrix: return a * sequence;
    case Width::latent_query_down: return latent.query_rank;
    case Width::latent_query: return a * latent_key;
    case Width::latent_kv_down: return latent.key_value_rank + latent.rope_head_dim;
    case Width::latent_kv_up: return a * (latent.nope_head_dim + latent.value_head_dim);
    case Width::latent_key: return a * latent_key;
    case Width::latent_qkv: return a * (2 * latent_key + latent.value_head_dim);
    case Width::up: return gate * model->ffn / ways;
    case Width::ffn: return model->ffn / ways;
    case Width::experts: return model->moe.experts;
    case Width::top_k: return model->moe.top_k;
    case Width::expert_bounds: return model->moe.experts + (piece_rows > 0 ? ep : 1);
    case Width::expert_up: return gate * model->moe.expert_ffn / ways;
    case Width::expert_ffn: return model->moe.expert_ffn / ways;
    case Width::shared_up: return gate * model->moe.shared_experts * model->moe.expert_ffn / ways;
    case Width::shared_ffn: return model->moe.shared_experts * model->moe.expert_ffn / ways;
    case Width::rope_half: return (is_latent ? latent.rope_head_dim : rotated_dims(*model)) / 2;
    case Width::lora_qkv: return adapter_columns(*model, *lora, Projection::qkv);
    case Width::lora_output: return adapter_columns(*model, *lora, Projection::output);
    case Width::lora_up: return adapter_columns(*model, *lora, Projection::up);
    case Width::lora_down: return adapter_columns(*model, *lora, Projection::down);
    case Width::lora_input: return adapter_input_width();
  }
  return 0;
}

int64_t LocalSizes::adapter_input_width() const {
  int64_t widest = 0;
  if (lora->dropout == 0) return widest;
  for (const Adapter& adapter : adapters(*model, *lora)) {
    const Projection at = adapter.projection;
    const bool row_parallel = at == Projection::output || at == Projection::down;
    widest = std::max(widest, projection_inputs(*model, at) / (row_parallel ? tp : 1));
  }
  return widest;
}

DType LocalSizes::dtype(Element element) const {
  switch (element) {
    case Element::compute: return compute;
    case Element::f32: return DType::f32;
    case Element::mask: return DType::u8;
    case Element::i32: return DType::i32;
    case Element::product: return DType::u8;
  }
  return DType::f32;
}

bool LocalSizes::holds(unsigned conditions, bool routed_layer) const {
  const bool is_latent = model->attention == Attention::latent;
  const auto unmet = [conditions](Condition bit, bool value) {
    return (conditions & bit) != 0 && !value;
  };
  return !(unmet(kLayerNorm, model->norm == Norm::layer) || unmet(kDropout, model->dropout > 0) ||
           unmet(kSwiglu, is_gated(*model)) ||
           unmet(kGelu, model->activation == Activation::gelu) || unmet(kGrouped, !is_latent) ||
           unmet(kLatent, is_latent) ||
           unmet(kCompressedQuery, is_latent && model->latent.query_rank > 0) ||
           unmet(kDense, !routed_layer) || unmet(kRouted, routed_layer) ||
           unmet(kShared, routed_layer && model->moe.shared_experts > 0) ||
           unmet(kRope, model->positions == Positions::rope) || unmet(kContext, cp > 1) ||
           unmet(kInputNorms, model->norm_placement != NormPlacement::after) ||
           unmet(kBranchNorms, model->norm_placement != NormPlacement::before) ||
           unmet(kQueryKeyNorm, model->query_key_norm != QueryKeyNorm::none) ||
           unmet(kWindowRope, model->window_rope_theta > 0) || unmet(kExchange, ep > 1) ||
           unmet(kCounted, ep > 1 && piece_rows == 0));
}

}  // namespace tutti::spec
