#include "tutti/model/bind.h"

#include <string>

#include "tutti/base/rng.h"

namespace tutti::model {
namespace {

NormSaved bind_norm_saved(const spec::ModelConfig& model, const Memory& memory, const char* slot,
                          int64_t layer, const std::string& residual, const std::string& norm) {
  NormSaved saved;
  saved.residual = memory.matrix("activations", slot, layer, residual);
  if (model.norm == spec::Norm::layer) {
    saved.mean = memory.vector("activations", slot, layer, norm + ".mean");
  }
  saved.rstd = memory.vector("activations", slot, layer, norm + ".rstd");
  saved.y = memory.matrix("activations", slot, layer, norm + ".y");
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
  BlockSaved out;
  out.norm1 = bind_norm_saved(model, memory, "block", layer, "residual_in", "norm1");
  out.attention = {memory.matrix("activations", "block", layer, "attention.qkv"),
                   memory.vector("activations", "block", layer, "attention.lse"),
                   memory.matrix("activations", "block", layer, "attention.out")};
  out.norm2 = bind_norm_saved(model, memory, "block", layer, "residual_mid", "norm2");
  out.mlp = {memory.matrix("activations", "block", layer, "mlp.pre"),
             memory.matrix("activations", "block", layer, "mlp.act")};
  return out;
}

NormSaved bind_final_saved(const spec::ModelConfig& model, const Memory& memory) {
  return bind_norm_saved(model, memory, "head", 0, "residual", "norm");
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
