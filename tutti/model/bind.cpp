#include "tutti/model/bind.h"

#include <string>

#include "tutti/base/rng.h"

namespace tutti::model {
namespace {

// Where the activations of one layer lie: the layers of a stage that recompute come first, and what
// they drop is in the slot that they share.
class LayerSlots {
 public:
  LayerSlots(const Memory& memory, int64_t layer) : memory_(memory) {
    const int64_t recomputing = memory.repeats("activations", "block.recomputed");
    recomputes_ = layer < recomputing;
    kept_ = recomputes_ ? "block.recomputed" : "block";
    repeat_ = recomputes_ ? layer : layer - recomputing;
  }
  explicit LayerSlots(const Memory& memory) : memory_(memory), kept_("head") {}

  bool dropped(const std::string& name) const {
    return recomputes_ && !memory_.has("activations", kept_, name);
  }
  engine::Matrix matrix(const std::string& name) const {
    return dropped(name) ? memory_.matrix("activations", "recompute", 0, name)
                         : memory_.matrix("activations", kept_, repeat_, name);
  }
  engine::Vector vector(const std::string& name) const {
    return dropped(name) ? memory_.vector("activations", "recompute", 0, name)
                         : memory_.vector("activations", kept_, repeat_, name);
  }

 private:
  const Memory& memory_;
  const char* kept_;
  int64_t repeat_ = 0;
  bool recomputes_ = false;
};

NormSaved bind_norm_saved(const spec::ModelConfig& model, const LayerSlots& slots,
                          const std::string& residual, const std::string& norm) {
  NormSaved saved;
  saved.residual = slots.matrix(residual);
  if (model.norm == spec::Norm::layer) saved.mean = slots.vector(norm + ".mean");
  saved.rstd = slots.vector(norm + ".rstd");
  saved.y = slots.matrix(norm + ".y");
  return saved;
}

}  // namespace

Embedding bind_embedding(const Parameters& parameters) {
  Embedding out;
  out.token = parameters.weight("embedding.token.weight");
  out.d_token = parameters.gradient("embedding.token.weight");
  if (parameters.has("embedding.position.weight")) {
    out.position = parameters.weight("embedding.position.weight");
    out.d_position = parameters.gradient("embedding.position.weight");
  }
  return out;
}

BlockLayer bind_block(const spec::ModelConfig& model, const Parameters& parameters, int64_t layer,
                      engine::Vector rope_frequency, uint64_t seed) {
  const std::string prefix = "blocks." + std::to_string(layer) + ".";
  const bool gelu = model.activation == spec::Activation::gelu;
  BlockLayer out;
  out.norm1 = make_norm(model, parameters.norm(prefix + "norm1"));
  out.attention = {model.heads,
                   model.kv_heads,
                   model.head_dim,
                   parameters.linear(prefix + "attention.qkv"),
                   parameters.linear(prefix + "attention.output"),
                   rope_frequency};
  out.norm2 = make_norm(model, parameters.norm(prefix + "norm2"));
  out.mlp = {gelu ? engine::Activation::gelu : engine::Activation::swiglu,
             parameters.linear(prefix + (gelu ? "mlp.up" : "mlp.gate_up")),
             parameters.linear(prefix + "mlp.down")};
  out.dropout = static_cast<float>(model.dropout);
  out.attention_dropout_key = stream_key(seed, "dropout", prefix + "attention");
  out.mlp_dropout_key = stream_key(seed, "dropout", prefix + "mlp");
  return out;
}

NormLayer bind_final_norm(const spec::ModelConfig& model, const Parameters& parameters) {
  return make_norm(model, parameters.norm("final_norm"));
}

LossLayer bind_loss(const spec::ModelConfig& model, const Parameters& parameters) {
  return {model.vocabulary, parameters.linear(model.tied_embeddings ? "embedding.token" : "head")};
}

BlockSaved bind_block_saved(const spec::ModelConfig& model, const Memory& memory, int64_t layer) {
  const LayerSlots slots(memory, layer);
  BlockSaved out;
  out.norm1 = bind_norm_saved(model, slots, "residual_in", "norm1");
  out.attention = {slots.matrix("attention.qkv"), slots.vector("attention.lse"),
                   slots.matrix("attention.out")};
  out.norm2 = bind_norm_saved(model, slots, "residual_mid", "norm2");
  out.mlp = {slots.matrix("mlp.pre"), slots.matrix("mlp.act")};
  return out;
}

BlockSteps bind_block_restore(const Memory& memory, int64_t layer) {
  const LayerSlots slots(memory, layer);
  BlockSteps out;
  out.norm1 = slots.dropped("norm1.y");
  out.attention = {slots.dropped("attention.qkv"), slots.dropped("attention.out"),
                   slots.dropped("residual_mid")};
  out.norm2 = slots.dropped("norm2.y");
  out.mlp = {slots.dropped("mlp.pre"), slots.dropped("mlp.act"), false};
  return out;
}

NormSaved bind_final_saved(const spec::ModelConfig& model, const Memory& memory) {
  return bind_norm_saved(model, LayerSlots(memory), "residual", "norm");
}

BlockWork bind_block_work(const spec::ModelConfig& model, const Memory& memory, int64_t layer) {
  const auto work = [&](const char* name) { return memory.matrix("workspace", "step", 0, name); };
  // The gradient that leaves a block must not overwrite the one that its weight gradients still
  // need: the two buffers swap roles from block to block.
  const bool even = layer % 2 == 0;
  BlockWork out;
  out.branch = work("branch");
  out.d_residual = work("d_residual");
  out.d_branch = work(even ? "d_branch.0" : "d_branch.1");
  if (layer > 0) out.d_branch_next = work(even ? "d_branch.1" : "d_branch.0");
  out.d_branch_attention = work("d_branch_attention");
  out.d_norm1 = work("d_norm1");
  out.d_norm2 = work("d_norm2");
  out.attention = {work("d_attention"), work("d_qkv"),
                   memory.vector("workspace", "step", 0, "delta")};
  const bool gelu = model.activation == spec::Activation::gelu;
  out.mlp = {work("d_act"), work(gelu ? "d_act" : "d_pre")};
  return out;
}

LossWork bind_loss_work(const Memory& memory) {
  return {memory.matrix("loss", "chunk", 0, "logits"), memory.vector("loss", "rows", 0, "loss")};
}

}  // namespace tutti::model
