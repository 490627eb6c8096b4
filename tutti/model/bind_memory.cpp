// Binds saved tensors and workspace of a layer to memory (bind.h).
#include <string>

#include "tutti/model/bind.h"

namespace tutti::model {
namespace {

// The activations of a layer: kept tensors in its own slot, dropped tensors in the slot that
// recomputing layers share.
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
  // A tensor that not every model has.
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

// Tensors of the backward pass: in the workspace, except those that delayed weight gradients read.
class WorkTensors {
 public:
  WorkTensors(const Memory& memory, bool routed, int64_t slot)
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

// The amax of a block's norm output: the norm stores it if the model has a norm there.
engine::Magnitude left_by_norm(const spec::ModelConfig& model, const NormSaved& norm) {
  return {norm.amax, norm.amax && model.norm_placement != spec::NormPlacement::after};
}

LatentSaved bind_latent_saved(const LayerSlots& slots) {
  return {
      slots.optional("attention.query_down"),   slots.optional_vector("attention.query_norm.rstd"),
      slots.optional("attention.query_norm.y"), slots.matrix("attention.kv_down"),
      slots.vector("attention.kv_norm.rstd"),   slots.matrix("attention.kv_norm.y")};
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

MoeWork bind_moe_work(const spec::ModelConfig& model, const WorkTensors& tensors) {
  const bool gelu = model.activation == spec::Activation::gelu;
  MoeWork out;
  out.d_output = tensors.matrix("moe.d_output");
  out.d_act = tensors.matrix("moe.d_act");
  out.d_pre = tensors.matrix(gelu ? "moe.d_act" : "moe.d_up");
  out.d_input = tensors.matrix("moe.d_input");
  out.d_weights = tensors.matrix("moe.d_weights");
  out.d_logits = tensors.matrix("moe.d_logits");
  if (model.moe.shared_experts > 0) {
    out.shared = {tensors.matrix("moe.shared.d_act"),
                  tensors.matrix(gelu ? "moe.shared.d_act" : "moe.shared.d_up")};
  }
  return out;
}

}  // namespace

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
  if (slots.has("attention.kv_down")) saved.attention.latent = bind_latent_saved(slots);
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
                   slots.dropped("residual_mid"), slots.dropped("attention.kv_down")};
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
  const WorkTensors tensors(memory, routed, slot);
  WorkSlot out;
  BlockWork& work = out.work;
  work.branch = memory.matrix("workspace", "step", 0, "branch");
  if (slot >= 0) work.d_branch = tensors.matrix("d_branch");
  work.d_branch_attention = tensors.matrix("d_branch_attention");
  work.d_norm1 = tensors.matrix("d_norm1");
  work.d_norm2 = tensors.matrix("d_norm2");
  work.attention = {tensors.matrix("d_attention"), tensors.matrix("d_qkv"),
                    memory.vector("workspace", "step", 0, "delta")};
  work.attention.latent = {tensors.optional("d_kv_down"), tensors.optional("d_query_down")};
  if (routed) {
    work.moe = bind_moe_work(model, tensors);
  } else {
    const bool gelu = model.activation == spec::Activation::gelu;
    work.mlp = {tensors.matrix("d_act"), tensors.matrix(gelu ? "d_act" : "d_pre"),
                bind_step_word(memory, "d_pre.amax")};
  }
  work.d_branch_attention_amax = bind_step_word(memory, "d_branch_attention.amax");
  out.d_low_rank = {tensors.optional("lora.d_qkv"), tensors.optional("lora.d_output"),
                    tensors.optional("lora.d_up"), tensors.optional("lora.d_down")};
  return out;
}

void bind_groups(const Memory& memory, const Groups& groups, ExchangeSizes& sizes,
                 BlockLayer& block) {
  const auto work = [&](const char* name) { return memory.matrix("workspace", "step", 0, name); };
  if (block.attention.latent) block.attention.latent.up = work("attention.kv_up");
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
