#include "tutti/checkpoint/gguf/names.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "tutti/base/text.h"

namespace tutti::checkpoint {
namespace {

struct ArchitectureNames {
  GgufArchitecture architecture;
  const char* name;
  std::vector<const char*> model_types;
};

const std::vector<ArchitectureNames>& architectures() {
  static const std::vector<ArchitectureNames> all = {
      {GgufArchitecture::gpt2, "gpt2", {"gpt2"}},
      {GgufArchitecture::llama, "llama", {"llama", "mistral"}},
      {GgufArchitecture::qwen2, "qwen2", {"qwen2"}},
      {GgufArchitecture::qwen3, "qwen3", {"qwen3"}},
      {GgufArchitecture::gemma2, "gemma2", {"gemma2"}},
      {GgufArchitecture::gemma3, "gemma3", {"gemma3_text"}}};
  return all;
}

struct NamePair {
  const char* hf_name;    // in transformers
  const char* gguf_name;  // in GGUF
};

constexpr NamePair kGpt2Layer[] = {{"ln_1", "attn_norm"},       {"ln_2", "ffn_norm"},
                                   {"attn.c_attn", "attn_qkv"}, {"attn.c_proj", "attn_output"},
                                   {"mlp.c_fc", "ffn_up"},      {"mlp.c_proj", "ffn_down"}};
constexpr NamePair kGpt2Outside[] = {{"transformer.wte", "token_embd"},
                                     {"transformer.wpe", "position_embd"},
                                     {"transformer.ln_f", "output_norm"},
                                     {"lm_head", "output"}};
constexpr NamePair kLlamaLayer[] = {
    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},       {"input_layernorm", "attn_norm"}};
constexpr NamePair kPlainNorms[] = {{"post_attention_layernorm", "ffn_norm"}};
constexpr NamePair kGemmaNorms[] = {{"post_attention_layernorm", "post_attention_norm"},
                                    {"pre_feedforward_layernorm", "ffn_norm"},
                                    {"post_feedforward_layernorm", "post_ffw_norm"}};
constexpr NamePair kLlamaOutside[] = {
    {"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}};

bool is_gemma(GgufArchitecture architecture) {
  return architecture == GgufArchitecture::gemma2 || architecture == GgufArchitecture::gemma3;
}

template <typename Pairs>
void append_pairs(const Pairs& pairs, std::vector<NamePair>& out) {
  out.insert(out.end(), std::begin(pairs), std::end(pairs));
}

std::vector<NamePair> layer_names(GgufArchitecture architecture) {
  std::vector<NamePair> out;
  if (architecture == GgufArchitecture::gpt2) {
    append_pairs(kGpt2Layer, out);
    return out;
  }
  append_pairs(kLlamaLayer, out);
  if (is_gemma(architecture)) {
    append_pairs(kGemmaNorms, out);
  } else {
    append_pairs(kPlainNorms, out);
  }
  return out;
}

std::vector<NamePair> outside_names(GgufArchitecture architecture) {
  std::vector<NamePair> out;
  if (architecture == GgufArchitecture::gpt2) {
    append_pairs(kGpt2Outside, out);
  } else {
    append_pairs(kLlamaOutside, out);
  }
  return out;
}

const char* layer_prefix(GgufArchitecture architecture) {
  return architecture == GgufArchitecture::gpt2 ? "transformer.h." : "model.layers.";
}

}  // namespace

const char* gguf_architecture_name(GgufArchitecture architecture) {
  return architectures()[static_cast<size_t>(architecture)].name;
}

std::optional<GgufArchitecture> gguf_architecture_of(const std::string& name) {
  for (const ArchitectureNames& known : architectures()) {
    if (name == known.name) return known.architecture;
  }
  return std::nullopt;
}

std::optional<GgufArchitecture> gguf_architecture_of_type(const std::string& model_type) {
  for (const ArchitectureNames& known : architectures()) {
    for (const char* type : known.model_types) {
      if (model_type == type) return known.architecture;
    }
  }
  return std::nullopt;
}

std::string gguf_architecture_names() {
  std::vector<std::string> names;
  for (const ArchitectureNames& known : architectures()) names.emplace_back(known.name);
  return join(names, ", ");
}

std::optional<GgufPart> gguf_part(GgufArchitecture architecture, const std::string& name,
                                  int64_t heads, int64_t kv_heads) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const std::string kind = name.substr(dot);  // .weight or .bias
  if (kind != ".weight" && kind != ".bias") return std::nullopt;
  std::string_view base = std::string_view(name).substr(0, dot);
  for (const NamePair& pair : outside_names(architecture)) {
    if (base != pair.hf_name) continue;
    GgufPart part{pair.gguf_name + kind};
    part.plus_one = is_gemma(architecture) && part.name == "output_norm.weight";
    return part;
  }
  const std::string_view prefix = layer_prefix(architecture);
  if (!base.starts_with(prefix)) return std::nullopt;
  base.remove_prefix(prefix.size());
  int64_t layer = 0;
  const auto number = std::from_chars(base.data(), base.data() + base.size(), layer);
  if (number.ec != std::errc() || number.ptr == base.data() + base.size() || *number.ptr != '.') {
    return std::nullopt;
  }
  base.remove_prefix(static_cast<size_t>(number.ptr - base.data()) + 1);
  for (const NamePair& pair : layer_names(architecture)) {
    if (base != pair.hf_name) continue;
    GgufPart part{fmt::format("blk.{}.{}{}", layer, pair.gguf_name, kind)};
    const std::string_view gguf_name = pair.gguf_name;
    part.transposed = architecture == GgufArchitecture::gpt2 && kind == ".weight" &&
                      gguf_name.find("norm") == std::string_view::npos;
    // Other architectures rotate the halves of a head, like transformers.
    if (architecture == GgufArchitecture::llama && gguf_name == "attn_q") part.heads = heads;
    if (architecture == GgufArchitecture::llama && gguf_name == "attn_k") part.heads = kv_heads;
    part.plus_one = is_gemma(architecture) && gguf_name.ends_with("norm");
    return part;
  }
  return std::nullopt;
}

std::vector<std::string> hf_names(GgufArchitecture architecture, int64_t layers) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& base) {
    out.push_back(base + ".weight");
    out.push_back(base + ".bias");
  };
  for (const NamePair& pair : outside_names(architecture)) add(pair.hf_name);
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const NamePair& pair : layer_names(architecture)) {
      add(fmt::format("{}{}.{}", layer_prefix(architecture), layer, pair.hf_name));
    }
  }
  return out;
}

}  // namespace tutti::checkpoint
