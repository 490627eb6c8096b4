#include "tutti/checkpoint/huggingface/names.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/huggingface/families.h"
#include "tutti/spec/model/params.h"

namespace tutti::checkpoint {
namespace {

using Shape = std::vector<int64_t>;

// "weight" or "bias": the part after the last dot.
std::string_view kind_of(std::string_view name) { return name.substr(name.find_last_of('.') + 1); }

class Mapper {
 public:
  Mapper(const spec::ModelConfig& model, HfFamily family) : model_(model), family_(family) {}

  // The parts of the parameter `name` of a group, whose tensors in transformers start with
  // `prefix`.
  std::vector<HfPart> parts(const std::string& name, const Shape& shape,
                            const std::string& prefix) const {
    const std::string_view kind = kind_of(name);
    const std::string layer(name.substr(0, name.size() - kind.size() - 1));
    return family_ == HfFamily::gpt2 ? gpt2(layer, kind, shape, prefix)
                                     : llama(layer, kind, shape, prefix);
  }

 private:
  static std::vector<HfPart> gpt2(const std::string& layer, std::string_view kind,
                                  const Shape& shape, const std::string& prefix) {
    static const std::map<std::string, std::pair<const char*, bool>> names = {
        {"embedding.token", {"wte", false}},
        {"embedding.position", {"wpe", false}},
        {"norm1", {"ln_1", false}},
        {"norm2", {"ln_2", false}},
        {"attention.qkv", {"attn.c_attn", true}},
        {"attention.output", {"attn.c_proj", true}},
        {"mlp.up", {"mlp.c_fc", true}},
        {"mlp.down", {"mlp.c_proj", true}},
        {"final_norm", {"ln_f", false}},
        {"head", {"lm_head", false}}};
    const auto found = names.find(layer);
    TUTTI_CHECK(found != names.end(), "gpt2 has no {}", layer);
    const auto& [name, linear] = found->second;
    HfPart part = {fmt::format("{}{}.{}", prefix, name, kind), shape, false, false};
    if (linear && shape.size() == 2) {
      std::swap(part.shape[0], part.shape[1]);
      part.transposed = true;
    }
    return {part};
  }

  std::vector<HfPart> llama(const std::string& layer, std::string_view kind, const Shape& shape,
                            const std::string& prefix) const {
    const auto full = [&](std::string_view name) {
      return fmt::format("{}{}.{}", prefix, name, kind);
    };
    // Rows [rows, ...] of a matrix, or elements of a bias.
    const auto rows = [&](std::string_view name, int64_t count, bool rotary = false) {
      Shape part = shape;
      part[0] = count;
      HfPart out = {full(name), std::move(part), false, rotary};
      out.interleaved = rotary && hf_family_names(family_).interleaved;
      out.rotated = rotary ? model_.rotated_dims : 0;
      return out;
    };
    const HfFamilyNames& family = hf_family_names(family_);
    for (const auto& [ours, theirs] : family.norms) {
      if (layer == ours) return {HfPart{full(theirs), shape, false, false}};
    }
    if (model_.attention == spec::Attention::latent) {
      if (auto parts = latent(layer, kind, shape, prefix); !parts.empty()) return parts;
    }
    if (layer == "attention.qkv" && family.fused_qkv) {
      return {HfPart{full("self_attn.qkv_proj"), shape, false, false}};
    }
    if (layer == "mlp.gate_up" && family.fused_gate_up) {
      return {HfPart{full("mlp.gate_up_proj"), shape, false, false}};
    }
    if (layer == "attention.qkv") {
      const int64_t kv_rows = model_.kv_heads * model_.head_dim;
      return {rows("self_attn.q_proj", model_.heads * model_.head_dim, true),
              rows("self_attn.k_proj", kv_rows, true), rows("self_attn.v_proj", kv_rows)};
    }
    if (layer == "mlp.gate_up") {
      return {rows("mlp.gate_proj", shape[0] / 2), rows("mlp.up_proj", shape[0] / 2)};
    }
    if (layer == "moe.router") {
      const HfExpertNames& names = family.experts;
      if (kind == "bias" && names.selection_bias != nullptr) {
        return {HfPart{
            fmt::format("{}{}.{}.{}", prefix, names.module, names.router, names.selection_bias),
            shape}};
      }
      return {HfPart{full(fmt::format("{}.{}", names.module, names.router)), shape, false, false}};
    }
    if (layer == "attention.sinks") return {HfPart{prefix + "self_attn.sinks", shape}};
    const bool expert = layer == "moe.experts.gate_up" || layer == "moe.experts.down";
    if (expert && family.experts.stacked) {
      return {stacked_experts(layer == "moe.experts.down", kind, shape, prefix)};
    }
    if (expert) {
      return experts(layer == "moe.experts.down", prefix);
    }
    const std::string shared = fmt::format("{}.{}", family.experts.module, family.experts.shared);
    if (layer == "moe.shared.gate_up") {
      return {rows(shared + ".gate_proj", shape[0] / 2), rows(shared + ".up_proj", shape[0] / 2)};
    }
    if (layer == "moe.shared.down") return {HfPart{full(shared + ".down_proj"), shape}};
    static const std::map<std::string, const char*> names = {
        {"embedding.token", "embed_tokens"},
        {"attention.output", "self_attn.o_proj"},
        {"attention.query_norm", "self_attn.q_norm"},
        {"attention.key_norm", "self_attn.k_norm"},
        {"mlp.down", "mlp.down_proj"},
        {"final_norm", "norm"},
        {"head", "lm_head"}};
    const auto found = names.find(layer);
    TUTTI_CHECK(found != names.end(), "llama has no {}", layer);
    return {HfPart{full(found->second), shape, false, false}};
  }

  // Of latent attention; none of what it has in common with other attention.
  std::vector<HfPart> latent(const std::string& layer, std::string_view kind, const Shape& shape,
                             const std::string& prefix) const {
    const spec::LatentAttention& sizes = model_.latent;
    // Whose rotated rows come first here, and last in files: rows of a head.
    struct Name {
      const char* theirs;
      int64_t head_rows = 0;
    };
    const int64_t key = sizes.rope_head_dim + sizes.nope_head_dim;
    const std::map<std::string, Name> names = {
        {"attention.query", {"q_proj", key}},
        {"attention.query_down", {"q_a_proj"}},
        {"attention.query_norm", {"q_a_layernorm"}},
        {"attention.query_up", {"q_b_proj", key}},
        {"attention.kv_down", {"kv_a_proj_with_mqa", sizes.rope_head_dim + sizes.key_value_rank}},
        {"attention.kv_norm", {"kv_a_layernorm"}},
        {"attention.kv_up", {"kv_b_proj"}}};
    const auto found = names.find(layer);
    if (found == names.end()) return {};
    const auto& [theirs, head_rows] = found->second;
    HfPart part = {fmt::format("{}self_attn.{}.{}", prefix, theirs, kind), shape};
    if (head_rows > 0) {
      part.rotary = part.interleaved = part.rotated_last = true;
      part.rotated = sizes.rope_head_dim;
      part.head_rows = head_rows;
    }
    return {part};
  }

  HfPart stacked_experts(bool down, std::string_view kind, Shape shape,
                         const std::string& prefix) const {
    const HfExpertNames& names = hf_family_names(family_).experts;
    if (shape.size() == 3) std::swap(shape[1], shape[2]);
    HfPart out = {fmt::format("{}{}.experts.{}{}", prefix, names.module,
                              down ? names.down : names.gate, kind == "bias" ? "_bias" : ""),
                  std::move(shape)};
    out.stacked = true;
    out.alternating = !down;
    return out;
  }

  std::vector<HfPart> experts(bool down, const std::string& prefix) const {
    std::vector<HfPart> parts;
    const HfExpertNames& names = hf_family_names(family_).experts;
    const int64_t width = model_.moe.expert_ffn;
    for (int64_t expert = 0; expert < model_.moe.experts; ++expert) {
      const auto add = [&](const char* name, Shape shape) {
        parts.push_back(
            {fmt::format("{}{}.experts.{}.{}.weight", prefix, names.module, expert, name),
             std::move(shape), false, false});
      };
      if (down) {
        add(names.down, {model_.hidden, width});
      } else {
        add(names.gate, {width, model_.hidden});
        add(names.up, {width, model_.hidden});
      }
    }
    return parts;
  }

  const spec::ModelConfig& model_;
  HfFamily family_;
};

// GPT-2 in transformers always has biases; for a model without them they are zero.
spec::ModelConfig with_biases(spec::ModelConfig model) {
  model.linear_bias = model.norm_bias = true;
  return model;
}

bool is_missing(const spec::ModelConfig& model, std::string_view name) {
  if (kind_of(name) != "bias") return false;  // gpt2's; in other types biases are optional
  return name.find("norm") != std::string_view::npos ? !model.norm_bias : !model.linear_bias;
}

}  // namespace

std::string_view hf_prefix(HfFamily family) {
  return family == HfFamily::gpt2 ? "transformer." : "model.";
}

std::string_view hf_embedding_name(HfFamily family) {
  return family == HfFamily::gpt2 ? "wte.weight" : "embed_tokens.weight";
}

bool is_hf_buffer(std::string_view name) {
  return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
         ends_with(name, ".rotary_emb.inv_freq");
}

std::vector<HfParameter> hf_parameters(const spec::ModelConfig& model, HfFamily family,
                                       std::string_view prefix) {
  const bool gpt2 = family == HfFamily::gpt2;
  const spec::ParamTable table = spec::param_table(gpt2 ? with_biases(model) : model);
  const Mapper mapper(model, family);
  std::vector<HfParameter> out;
  for (const spec::ParamGroup& group : table.groups) {
    for (int64_t repeat = 0; repeat < group.repeats; ++repeat) {
      const int64_t layer = group.first_layer + repeat;
      const std::string ours =
          group.numbered ? fmt::format("{}{}.", group.prefix, layer) : group.prefix;
      const std::string theirs = group.numbered
                                     ? fmt::format("{}{}.{}.", prefix, gpt2 ? "h" : "layers", layer)
                                     : std::string(prefix);
      for (const spec::Param& param : group.params) {
        const bool head = param.name == "head.weight";
        HfParameter& one = out.emplace_back();
        if (!gpt2 || !is_missing(model, param.name)) one.name = ours + param.name;
        one.shape = param.shape;
        one.parts = mapper.parts(param.name, param.shape, head ? "" : theirs);
      }
    }
  }
  return out;
}

}  // namespace tutti::checkpoint
