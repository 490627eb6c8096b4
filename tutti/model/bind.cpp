#include "tutti/model/bind.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/model/rope_frequency.h"
#include "tutti/model/tensor_parallel.h"

namespace tutti::model {
namespace {

// Where the activations of a layer lie: what it keeps in a slot of its own, what recomputation
// drops in the slot that such layers share.
class LayerSlots {
 public:
  LayerSlots(const Memory& memory, SlotKind kind, int64_t repeat)
      : memory_(memory),
        kept_(slot_name(kind)),
        repeat_(repeat),
        routed_(kind == SlotKind::routed || kind == SlotKind::routed_recomputed),
        recomputes_(kind == SlotKind::block_recomputed || kind == SlotKind::routed_recomputed) {}

  bool routed() const { return routed_; }
  bool has(const std::string& name) const {
    return memory_.has("activations", kept_, name) ||
           (recomputes_ && memory_.has("activations", shared(), name));
  }
  bool dropped(const std::string& name) const {
    return recomputes_ && !memory_.has("activations", kept_, name);
  }
  engine::Matrix matrix(const std::string& name) const {
    return dropped(name) ? memory_.matrix("activations", shared(), 0, name)
                         : memory_.matrix("activations", kept_, repeat_, name);
  }
  engine::Vector vector(const std::string& name) const {
    return dropped(name) ? memory_.vector("activations", shared(), 0, name)
                         : memory_.vector("activations", kept_, repeat_, name);
  }
  // Of a tensor that not every model has.
  engine::Matrix optional(const std::string& name) const {
    return has(name) ? matrix(name) : engine::Matrix{};
  }
  engine::Vector optional_vector(const std::string& name) const {
    return has(name) ? vector(name) : engine::Vector{};
  }

 private:
  const char* shared() const { return routed_ ? "recompute.moe" : "recompute"; }

  const Memory& memory_;
  const char* kept_;
  int64_t repeat_ = 0;
  bool routed_ = false;
  bool recomputes_ = false;
};

// Where backward works: in the workspace, but for what delayed weight gradients read.
class WorkPlaces {
 public:
  WorkPlaces(const Memory& memory, bool routed, int64_t slot)
      : memory_(memory), delayed_(routed ? "delayed.moe" : "delayed"), slot_(slot) {}

  bool has(const char* name) const {
    return lies_delayed(name) || memory_.has("workspace", "step", name);
  }
  engine::Matrix matrix(const char* name) const {
    return lies_delayed(name) ? memory_.matrix("activations", delayed_, slot_, name)
                              : memory_.matrix("workspace", "step", 0, name);
  }
  engine::Matrix optional(const char* name) const {
    return has(name) ? matrix(name) : engine::Matrix{};
  }

 private:
  bool lies_delayed(const char* name) const {
    return slot_ >= 0 && memory_.has("activations", delayed_, name);
  }

  const Memory& memory_;
  const char* delayed_;
  int64_t slot_;
};

NormSaved bind_norm_saved(const spec::ModelConfig& model, const LayerSlots& slots,
                          const std::string& residual, const std::string& norm) {
  NormSaved saved;
  saved.residual = slots.matrix(residual);
  if (model.norm == spec::Norm::layer) saved.mean = slots.vector(norm + ".mean");
  if (slots.has(norm + ".rstd")) saved.rstd = slots.vector(norm + ".rstd");
  saved.y = slots.matrix(norm + ".y");
  saved.amax = slots.optional_vector(norm + ".amax");
  return saved;
}

// Of what a block's norm leaves: its maker knows it where it norms.
engine::Magnitude left_by_norm(const spec::ModelConfig& model, const NormSaved& norm) {
  return {norm.amax, norm.amax && model.norm_placement != spec::NormPlacement::after};
}

engine::Activation activation_of(const spec::ModelConfig& model) {
  switch (model.activation) {
    case spec::Activation::gelu: return engine::Activation::gelu;
    case spec::Activation::swiglu: return engine::Activation::swiglu;
    case spec::Activation::geglu: return engine::Activation::geglu;
  }
  return engine::Activation::gelu;
}

MlpLayer bind_mlp(const spec::ModelConfig& model, const Parameters& parameters,
                  const std::string& name) {
  const bool gelu = model.activation == spec::Activation::gelu;
  return {activation_of(model), parameters.linear(name + (gelu ? ".up" : ".gate_up")),
          parameters.linear(name + ".down")};
}

// A weight whose name.bias, if there is one, is not added to a product.
Linear bind_weight(const Parameters& parameters, const std::string& name) {
  Linear out;
  out.weight = parameters.weight(name + ".weight");
  out.d_weight = parameters.gradient(name + ".weight");
  return out;
}

MoeLayer bind_moe(const spec::ModelConfig& model, const Parameters& parameters,
                  const std::string& name) {
  const bool gelu = model.activation == spec::Activation::gelu;
  const auto layers = static_cast<double>(model.layers - model.moe.first_dense_layers);
  MoeLayer out;
  out.config = model.moe;
  out.activation = activation_of(model);
  out.router = bind_weight(parameters, name + ".router");
  if (model.moe.router_bias) {
    const engine::Matrix bias = parameters.weight(name + ".router.bias");
    out.selection_bias = engine::vector(bias.data, bias.dtype, bias.rows);
  }
  out.up = bind_weight(parameters, name + (gelu ? ".experts.up" : ".experts.gate_up"));
  out.down = bind_weight(parameters, name + ".experts.down");
  if (model.moe.shared_experts > 0) out.shared = bind_mlp(model, parameters, name + ".shared");
  out.balance_loss = static_cast<float>(model.moe.balance_loss / layers);
  out.z_loss = static_cast<float>(model.moe.z_loss / layers);
  return out;
}

MoeSaved bind_moe_saved(const spec::ModelConfig& model, const LayerSlots& slots) {
  MoeSaved out;
  out.probabilities = slots.matrix("moe.probabilities");
  out.lse = slots.vector("moe.lse");
  out.experts = slots.matrix("moe.experts");
  out.weights = slots.matrix("moe.weights");
  out.positions = slots.matrix("moe.positions");
  out.counts = slots.matrix("moe.counts");
  out.offsets = slots.vector("moe.offsets");
  if (slots.has("moe.received")) out.received = slots.vector("moe.received");
  out.input = slots.matrix("moe.input");
  out.pre = slots.matrix("moe.up");
  out.act = slots.matrix("moe.act");
  out.output = slots.matrix("moe.output");
  if (model.moe.shared_experts > 0) {
    out.shared = {slots.matrix("moe.shared.up"), slots.matrix("moe.shared.act")};
  }
  return out;
}

MoeWork bind_moe_work(const spec::ModelConfig& model, const WorkPlaces& places) {
  const bool gelu = model.activation == spec::Activation::gelu;
  MoeWork out;
  out.d_output = places.matrix("moe.d_output");
  out.d_act = places.matrix("moe.d_act");
  out.d_pre = places.matrix(gelu ? "moe.d_act" : "moe.d_up");
  out.d_input = places.matrix("moe.d_input");
  out.d_weights = places.matrix("moe.d_weights");
  out.d_logits = places.matrix("moe.d_logits");
  if (model.moe.shared_experts > 0) {
    out.shared = {places.matrix("moe.shared.d_act"),
                  places.matrix(gelu ? "moe.shared.d_act" : "moe.shared.d_up")};
  }
  return out;
}

// The norm `name` of a block, or one that norms nothing.
NormLayer bind_norm(const spec::ModelConfig& model, const Parameters& parameters,
                    const std::string& name) {
  return make_norm(model, parameters.has(name + ".weight") ? parameters.norm(name) : NormWeights{});
}

void bind_attention_parts(const spec::ModelConfig& model, const Parameters& parameters,
                          int64_t layer, const RopeFrequencies& frequencies, int64_t sequence,
                          const std::string& prefix, AttentionLayer& out) {
  out.scale = static_cast<float>(model.attention_scale);
  out.softcap = static_cast<float>(model.attention_softcap);
  out.windowed = spec::window_of(model, layer, sequence) > 0;
  if (spec::is_rotated(model, layer)) {
    const bool window = spec::has_window_rope(model, layer);
    out.rope_frequency = window ? frequencies.window : frequencies.all;
    out.rotated = spec::rotated_dims(model);
    out.rope_amplitude = rope_amplitude(model, window);
  }
  if (model.query_key_norm == spec::QueryKeyNorm::none) return;
  out.norms = {parameters.norm(prefix + "attention.query_norm"),
               parameters.norm(prefix + "attention.key_norm"),
               static_cast<float>(model.norm_epsilon), static_cast<float>(model.norm_offset)};
}

}  // namespace

Embedding bind_embedding(const spec::ModelConfig& model, const Parameters& parameters,
                         const Groups& groups) {
  Embedding out;
  out.tp = groups.tp;
  out.multiplier = static_cast<float>(model.embedding_multiplier);
  out.token = parameters.weight("embedding.token.weight");
  out.d_token = parameters.gradient("embedding.token.weight");
  if (parameters.has("embedding.position.weight")) {
    out.position = parameters.weight("embedding.position.weight");
    out.d_position = parameters.gradient("embedding.position.weight");
  }
  if (out.tp != nullptr) {
    out.first_token = out.tp->rank() * out.token.rows;
    out.vocabulary = model.vocabulary;
  }
  return out;
}

BlockLayer bind_block(const spec::ModelConfig& model, const Parameters& parameters, int64_t layer,
                      const RopeFrequencies& frequencies, int64_t sequence, uint64_t seed,
                      const Groups& groups) {
  const std::string prefix = "blocks." + std::to_string(layer) + ".";
  BlockLayer out;
  out.norm1 = bind_norm(model, parameters, prefix + "norm1");
  out.attention_norm = bind_norm(model, parameters, prefix + "attention.branch_norm");
  out.mlp_norm = bind_norm(model, parameters, prefix + "mlp.branch_norm");
  out.residual_multiplier = static_cast<float>(model.residual_multiplier);
  out.tp = groups.tp;
  out.attention.qkv = parameters.linear(prefix + "attention.qkv");
  out.attention.output = parameters.linear(prefix + "attention.output");
  out.attention.output.summed_over = groups.tp;
  // Of this rank: query heads are divided evenly, key and value heads may be held several times.
  out.attention.head_dim = model.head_dim;
  out.attention.heads = out.attention.output.weight.cols / model.head_dim;
  out.attention.kv_heads =
      (out.attention.qkv.weight.rows / model.head_dim - out.attention.heads) / 2;
  bind_attention_parts(model, parameters, layer, frequencies, sequence, prefix, out.attention);
  out.norm2 = bind_norm(model, parameters, prefix + "norm2");
  if (spec::is_routed(model, layer)) {
    out.moe = bind_moe(model, parameters, prefix + "moe");
    out.moe.number = layer;
    out.moe.tp = groups.tp;
    out.moe.shared.down.summed_over = groups.tp;
  } else {
    out.mlp = bind_mlp(model, parameters, prefix + "mlp");
    out.mlp.down.summed_over = groups.tp;
  }
  using spec::Projection;
  std::vector<std::pair<Projection, Linear*>> projections = {
      {Projection::qkv, &out.attention.qkv}, {Projection::output, &out.attention.output}};
  if (!out.moe) {
    projections.emplace_back(Projection::up, &out.mlp.up);
    projections.emplace_back(Projection::down, &out.mlp.down);
  }
  for (const auto& [projection, linear] : projections) {
    linear->adapters = parameters.adapters(prefix, model, projection);
    linear->adapters.dropout_key =
        stream_key(seed, "dropout", prefix + spec::projection_name(model, projection) + ".lora");
  }
  out.adapter_dropout = static_cast<float>(parameters.lora().dropout);
  out.dropout = static_cast<float>(model.dropout);
  out.attention_dropout_key = stream_key(seed, "dropout", prefix + "attention");
  out.mlp_dropout_key = stream_key(seed, "dropout", prefix + "mlp");
  return out;
}

NormLayer bind_final_norm(const spec::ModelConfig& model, const Parameters& parameters) {
  return make_norm(model, parameters.norm("final_norm"));
}

LossLayer bind_loss(const spec::ModelConfig& model, const Parameters& parameters,
                    const Groups& groups) {
  LossLayer out;
  out.head = parameters.linear(model.tied_embeddings ? "embedding.token" : "head");
  out.head.alpha = static_cast<float>(1 / model.logit_divisor);
  out.softcap = static_cast<float>(model.logit_softcap);
  out.tp = groups.tp;
  out.all_columns = model.vocabulary;
  out.first_column = tensor_rank(out.tp) * out.head.weight.rows;
  out.vocabulary =
      std::clamp<int64_t>(model.vocabulary - out.first_column, 0, out.head.weight.rows);
  return out;
}

BlockSlot bind_block_slot(const spec::ModelConfig& model, const Memory& memory, SlotKind kind,
                          int64_t slot) {
  const LayerSlots slots(memory, kind, slot);
  BlockSlot out;
  BlockSaved& saved = out.saved;
  saved.norm1 = bind_norm_saved(model, slots, "residual_in", "norm1");
  saved.attention = {slots.matrix("attention.qkv"),
                     slots.vector("attention.lse"),
                     slots.matrix("attention.out"),
                     slots.optional("attention.query_key"),
                     slots.optional("attention.query_key.rstd"),
                     left_by_norm(model, saved.norm1),
                     {slots.optional_vector("attention.amax"), false}};
  if (model.norm_placement != spec::NormPlacement::before) {
    saved.attention_branch = {slots.matrix("attention.branch"),
                              slots.vector("attention.branch.rstd")};
    saved.mlp_branch = {slots.matrix("mlp.branch"), slots.vector("mlp.branch.rstd")};
  }
  saved.norm2 = bind_norm_saved(model, slots, "residual_mid", "norm2");
  if (slots.routed()) {
    saved.moe = bind_moe_saved(model, slots);
  } else {
    saved.mlp = {slots.matrix("mlp.pre"), slots.matrix("mlp.act"), left_by_norm(model, saved.norm2),
                 engine::known_magnitude(slots.optional_vector("mlp.amax"))};
  }
  out.low_rank = {slots.optional("attention.qkv.lora"), slots.optional("attention.output.lora"),
                  slots.optional("mlp.up.lora"), slots.optional("mlp.down.lora")};
  return out;
}

BlockSteps bind_block_restore(const Memory& memory, SlotKind kind) {
  const LayerSlots slots(memory, kind, 0);
  BlockSteps out;
  out.norm1 = slots.dropped("norm1.y");
  out.attention = {slots.dropped("attention.qkv"), slots.dropped("attention.out"),
                   slots.dropped("residual_mid")};
  out.norm2 = slots.dropped("norm2.y");
  if (slots.routed()) {
    out.moe = {slots.dropped("moe.input"),
               slots.dropped("moe.up"),
               slots.dropped("moe.act"),
               slots.dropped("moe.output"),
               false,
               {slots.dropped("moe.shared.up"), slots.dropped("moe.shared.act"), false}};
  } else {
    out.mlp = {slots.dropped("mlp.pre"), slots.dropped("mlp.act"), false};
  }
  return out;
}

engine::Vector bind_step_word(const Memory& memory, const char* name) {
  return memory.has("workspace", "step", name) ? memory.vector("workspace", "step", 0, name)
                                               : engine::Vector{};
}

HeadSlot bind_head_slot(const spec::ModelConfig& model, const Memory& memory, int64_t slot) {
  const LayerSlots slots(memory, SlotKind::head, slot);
  return {bind_norm_saved(model, slots, "residual", "norm"), slots.optional("d_final")};
}

WorkSlot bind_work_slot(const spec::ModelConfig& model, const Memory& memory, bool routed,
                        int64_t slot) {
  const WorkPlaces places(memory, routed, slot);
  WorkSlot out;
  BlockWork& work = out.work;
  work.branch = memory.matrix("workspace", "step", 0, "branch");
  if (slot >= 0) work.d_branch = places.matrix("d_branch");
  work.d_branch_attention = places.matrix("d_branch_attention");
  work.d_norm1 = places.matrix("d_norm1");
  work.d_norm2 = places.matrix("d_norm2");
  work.attention = {places.matrix("d_attention"), places.matrix("d_qkv"),
                    memory.vector("workspace", "step", 0, "delta")};
  if (routed) {
    work.moe = bind_moe_work(model, places);
  } else {
    const bool gelu = model.activation == spec::Activation::gelu;
    work.mlp = {places.matrix("d_act"), places.matrix(gelu ? "d_act" : "d_pre"),
                bind_step_word(memory, "d_pre.amax")};
  }
  work.d_branch_attention_amax = bind_step_word(memory, "d_branch_attention.amax");
  out.d_low_rank = {places.optional("lora.d_qkv"), places.optional("lora.d_output"),
                    places.optional("lora.d_up"), places.optional("lora.d_down")};
  return out;
}

void bind_groups(const Memory& memory, const Groups& groups, ExchangeSizes& sizes,
                 BlockLayer& block) {
  const auto work = [&](const char* name) { return memory.matrix("workspace", "step", 0, name); };
  if (groups.cp != nullptr) {
    block.attention.ring = {groups.cp,
                            {work("attention.kv.0"), work("attention.kv.1")},
                            work("attention.total"),
                            work("attention.d_kv.own"),
                            {work("attention.d_kv.0"), work("attention.d_kv.1")}};
  }
  if (!block.moe) return;
  if (groups.ep != nullptr) {
    ExpertExchange& exchange = block.moe.exchange;
    exchange.group = groups.ep;
    exchange.copies = work("moe.copies");
    exchange.results = work("moe.d_input");
    if (memory.has("workspace", "step", "moe.sizes")) {
      exchange.sizes = memory.vector("workspace", "step", 0, "moe.sizes");
      exchange.host = &sizes;
    } else {
      exchange.piece_rows = exchange.copies.rows / groups.ep->size();
    }
  }
  if (groups.cp != nullptr) {
    block.moe.parts = {groups.cp, work("moe.parts"), work("moe.before")};
  }
}

Unwanted below_lowest_adapter(const spec::ModelConfig& model, const spec::LoraConfig& lora) {
  if (!lora.enabled()) return {};
  const spec::Projection lowest = spec::lowest_projection(model, lora);
  return {true, lowest >= spec::Projection::output, lowest >= spec::Projection::up,
          lowest >= spec::Projection::down};
}

void remove(const Unwanted& unwanted, BlockWork& work) {
  if (unwanted.d_norm1) work.d_norm1 = {};
  if (unwanted.d_attention) work.attention.d_out = work.attention.d_qkv = {};
  if (unwanted.d_norm2) work.d_norm2 = {};
  if (unwanted.d_mlp) work.mlp.d_act = work.mlp.d_pre = {};
}

LossWork bind_loss_work(const Memory& memory) {
  LossWork out = {memory.matrix("loss", "chunk", 0, "logits"),
                  memory.vector("loss", "rows", 0, "loss")};
  if (memory.has("loss", "chunk", "statistics")) {
    out.statistics = memory.vector("loss", "chunk", 0, "statistics");
    out.gathered = memory.matrix("workspace", "step", 0, "branch");
  }
  return out;
}

}  // namespace tutti::model
