#include "tutti/spec/model/params.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/base/check.h"

namespace tutti::spec {
namespace {

// Collects the parameters of one group in forward order.
class GroupBuilder {
 public:
  GroupBuilder(const ModelConfig& model, const LoraConfig& lora)
      : model_(model),
        lora_(lora),
        output_std_(model.init_std / std::sqrt(2.0 * static_cast<double>(model.layers))) {}

  std::vector<Param> take() { return std::move(params_); }

  Param& matrix(const std::string& name, std::vector<int64_t> shape, int shard_dim,
                bool residual_output = false) {
    Param param;
    param.name = name + ".weight";
    param.padded_rows = shape[0];
    param.shape = std::move(shape);
    param.init = Init::normal;
    param.init_std = residual_output ? output_std_ : model_.init_std;
    param.decay = true;
    param.shard_dim = shard_dim;
    param.trainable = !lora_.enabled();
    return params_.emplace_back(std::move(param));
  }

  Param& vector(const std::string& name, int64_t size, Init init, int shard_dim = -1) {
    Param param;
    param.name = name;
    param.shape = {size};
    param.padded_rows = size;
    param.init = init;
    param.shard_dim = shard_dim;
    param.trainable = !lora_.enabled();
    return params_.emplace_back(std::move(param));
  }

  void norm(const std::string& name, int64_t size) {
    vector(name + ".weight", size, model_.norm_offset == 1 ? Init::zeros : Init::ones);
    if (model_.norm_bias) vector(name + ".bias", size, Init::zeros);
  }

  // Column-parallel: outputs split; row-parallel: inputs split, the bias replicated.
  void column_linear(const std::string& name, int64_t out, int64_t in, Projection projection) {
    matrix(name, {out, in}, 0);
    if (has_bias(model_, projection)) vector(name + ".bias", out, Init::zeros, 0);
  }
  void row_linear(const std::string& name, int64_t out, int64_t in, Projection projection) {
    matrix(name, {out, in}, 1, true);
    if (has_bias(model_, projection)) vector(name + ".bias", out, Init::zeros);
  }

  // Split like the projection they adapt: B by its output rows, or A by its input columns.
  void adapters_of(Projection projection) {
    const int64_t in = projection_inputs(model_, projection);
    const bool columns = projection == Projection::qkv || projection == Projection::up;
    for (const Adapter& adapter : adapters(model_, lora_)) {
      if (adapter.projection != projection) continue;
      Param& a = matrix(adapter.name + ".lora_a", {lora_.rank, in}, columns ? -1 : 1);
      a.init = Init::uniform;
      a.init_bound = 1 / std::sqrt(static_cast<double>(in));
      a.trainable = true;
      Param& b = matrix(adapter.name + ".lora_b", {adapter.rows, lora_.rank}, columns ? 0 : -1);
      b.init = Init::zeros;
      b.trainable = true;
      if (projection == Projection::qkv) {
        const int64_t queries = model_.heads * model_.head_dim;
        b.kv_heads = model_.kv_heads;
        b.kv_rows = adapter.first_row + adapter.rows - std::max(adapter.first_row, queries);
        b.kv_rows = std::max<int64_t>(0, b.kv_rows);
        b.kv_parts = b.kv_rows > model_.kv_heads * model_.head_dim ? 2 : 1;
      }
    }
  }

  void grouped_attention() {
    const int64_t kv_rows = 2 * model_.kv_heads * model_.head_dim;
    const int64_t query_rows = model_.heads * model_.head_dim;
    column_linear("attention.qkv", query_rows + kv_rows, model_.hidden, Projection::qkv);
    for (Param& param : params_) {
      if (param.name.starts_with("attention.qkv")) {
        param.kv_heads = model_.kv_heads;
        param.kv_rows = kv_rows;
        param.kv_parts = 2;
      }
    }
    adapters_of(Projection::qkv);
    if (model_.query_key_norm != QueryKeyNorm::none) {
      const bool whole = model_.query_key_norm == QueryKeyNorm::whole;
      norm("attention.query_norm", whole ? query_rows : model_.head_dim);
      norm("attention.key_norm", whole ? kv_rows / 2 : model_.head_dim);
    }
    if (model_.attention_sinks) {
      vector("attention.sinks.weight", model_.heads, Init::normal, 0).init_std = model_.init_std;
    }
    row_linear("attention.output", model_.hidden, query_rows, Projection::output);
    adapters_of(Projection::output);
  }

  void latent_attention() {
    const LatentAttention& latent = model_.latent;
    const int64_t query_rows = model_.heads * (latent.nope_head_dim + latent.rope_head_dim);
    if (latent.query_rank > 0) {
      matrix("attention.query_down", {latent.query_rank, model_.hidden}, -1);
      norm("attention.query_norm", latent.query_rank);
      matrix("attention.query_up", {query_rows, latent.query_rank}, 0);
    } else {
      matrix("attention.query", {query_rows, model_.hidden}, 0);
    }
    matrix("attention.kv_down", {latent.key_value_rank + latent.rope_head_dim, model_.hidden}, -1);
    norm("attention.kv_norm", latent.key_value_rank);
    matrix("attention.kv_up",
           {model_.heads * (latent.nope_head_dim + latent.value_head_dim), latent.key_value_rank},
           0);
    row_linear("attention.output", model_.hidden, model_.heads * latent.value_head_dim,
               Projection::output);
  }

  void mlp(const std::string& name, int64_t width) {
    if (is_gated(model_)) {
      const size_t first = params_.size();
      column_linear(name + ".gate_up", 2 * width, model_.hidden, Projection::up);
      for (size_t i = first; i < params_.size(); ++i) params_[i].parts = 2;
    } else {
      column_linear(name + ".up", width, model_.hidden, Projection::up);
    }
    row_linear(name + ".down", model_.hidden, width, Projection::down);
  }

  // Biases of the experts' projection `weight`, [E, outputs], split like its outputs.
  Param& expert_bias(const Param& weight) {
    Param bias = weight;
    bias.name.replace(bias.name.rfind("weight"), std::string::npos, "bias");
    bias.shape.pop_back();
    bias.init = Init::zeros;
    bias.init_std = 0;
    bias.decay = false;
    return params_.emplace_back(std::move(bias));
  }

  void experts() {
    const MixtureOfExperts& moe = model_.moe;
    const bool gated = is_gated(model_);
    matrix("moe.router", {moe.experts, model_.hidden}, -1);
    if (moe.router_bias || moe.biases) vector("moe.router.bias", moe.experts, Init::zeros);
    Param& up = matrix(gated ? "moe.experts.gate_up" : "moe.experts.up",
                       {moe.experts, (gated ? 2 : 1) * moe.expert_ffn, model_.hidden}, 1);
    up.expert = true;
    up.parts = gated ? 2 : 1;
    if (moe.biases) expert_bias(up);
    Param& down = matrix("moe.experts.down", {moe.experts, model_.hidden, moe.expert_ffn}, 2, true);
    down.expert = true;
    if (moe.biases) expert_bias(down).shard_dim = -1;
    if (moe.shared_experts > 0) mlp("moe.shared", moe.shared_experts * moe.expert_ffn);
  }

  void block(bool routed) {
    const bool before = model_.norm_placement != NormPlacement::after;
    const bool after = model_.norm_placement != NormPlacement::before;
    if (before) norm("norm1", model_.hidden);
    if (model_.attention == Attention::latent) {
      latent_attention();
    } else {
      grouped_attention();
    }
    if (after) norm("attention.branch_norm", model_.hidden);
    if (before) norm("norm2", model_.hidden);
    if (routed) {
      experts();
    } else {
      mlp("mlp", model_.ffn);
      adapters_of(Projection::up);
      adapters_of(Projection::down);
    }
    if (after) norm("mlp.branch_norm", model_.hidden);
  }

 private:
  const ModelConfig& model_;
  const LoraConfig& lora_;
  double output_std_;
  std::vector<Param> params_;
};

ParamGroup make_group(std::string prefix, std::vector<Param> params, int64_t first_layer = 0,
                      int64_t repeats = 1, bool numbered = false) {
  ParamGroup group;
  group.prefix = std::move(prefix);
  group.first_layer = first_layer;
  group.repeats = repeats;
  group.numbered = numbered;
  group.params = std::move(params);
  return group;
}

bool is_prediction(const ParamGroup& group) { return group.prefix == "prediction."; }

int64_t group_count(const ParamGroup& group, bool trainable_only = false) {
  int64_t sum = 0;
  for (const Param& param : group.params) {
    if (param.trainable || !trainable_only) sum += param.count();
  }
  return sum * group.repeats;
}

}  // namespace

int64_t Param::count() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

int64_t Param::padded_count() const { return count() / shape[0] * padded_rows; }

int64_t Param::local_count(const Mesh& mesh) const {
  int64_t local = padded_count();
  if (expert) local /= mesh.ep;
  if (shard_dim < 0) return local;
  const int64_t ways = mesh.size(shard_axis);
  if (kv_rows == 0) return local / ways;
  const int64_t row = local / padded_rows;
  return row * ((padded_rows - kv_rows) / ways + kv_rows / std::min(ways, kv_heads));
}

int64_t ParamTable::count() const {
  int64_t sum = 0;
  for (const ParamGroup& group : groups) {
    if (!is_prediction(group)) sum += group_count(group);
  }
  return sum;
}

int64_t ParamTable::trainable_count() const {
  int64_t sum = 0;
  for (const ParamGroup& group : groups) {
    if (!is_prediction(group)) sum += group_count(group, true);
  }
  return sum;
}

int64_t ParamTable::prediction_count() const {
  int64_t sum = 0;
  for (const ParamGroup& group : groups) {
    if (is_prediction(group)) sum += group_count(group);
  }
  return sum;
}

ParamTable param_table(const ModelConfig& model, int64_t vocabulary_multiple) {
  return param_table(model, LoraConfig{}, vocabulary_multiple);
}

ParamTable param_table(const ModelConfig& model, const LoraConfig& lora,
                       int64_t vocabulary_multiple) {
  TUTTI_CHECK(vocabulary_multiple > 0, "vocabulary multiple {}", vocabulary_multiple);
  const int64_t padded_vocabulary =
      (model.vocabulary + vocabulary_multiple - 1) / vocabulary_multiple * vocabulary_multiple;
  ParamTable table;
  table.lora = lora;
  GroupBuilder build(model, lora);

  build.matrix("embedding.token", {model.vocabulary, model.hidden}, 0).padded_rows =
      padded_vocabulary;
  if (model.positions == Positions::learned) {
    build.matrix("embedding.position", {model.context, model.hidden}, -1);
  }
  table.groups.push_back(make_group("", build.take()));

  const bool routed = model.moe.experts > 0;
  const int64_t dense = routed ? model.moe.first_dense_layers : model.layers;
  if (dense > 0) {
    build.block(false);
    table.groups.push_back(make_group("blocks.", build.take(), 0, dense, true));
  }
  if (dense < model.layers) {
    build.block(true);
    table.groups.push_back(make_group("blocks.", build.take(), dense, model.layers - dense, true));
  }

  build.norm("final_norm", model.hidden);
  if (!model.tied_embeddings) {
    build.matrix("head", {model.vocabulary, model.hidden}, 0).padded_rows = padded_vocabulary;
  }
  table.groups.push_back(make_group("", build.take()));

  if (model.prediction_layers > 0) {
    build.norm("norm_hidden", model.hidden);
    build.norm("norm_embedding", model.hidden);
    build.matrix("projection", {model.hidden, 2 * model.hidden}, -1);
    build.block(routed);
    build.norm("final_norm", model.hidden);
    table.groups.push_back(
        make_group("prediction.", build.take(), 0, model.prediction_layers, true));
  }
  return table;
}

int64_t active_count(const ModelConfig& model) {
  int64_t sum = 0;
  for (const ParamGroup& group : param_table(model).groups) {
    if (is_prediction(group)) continue;
    for (const Param& param : group.params) {
      const int64_t count =
          param.expert ? param.count() / model.moe.experts * model.moe.top_k : param.count();
      sum += count * group.repeats;
    }
  }
  return sum;
}

}  // namespace tutti::spec
