#include <limits>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/checkpoint/gguf/config.h"
#include "tutti/checkpoint/gguf/rope_factors.h"

namespace tutti::checkpoint {
namespace {

class ConfigWriter {
 public:
  ConfigWriter(const Json& config, const std::string& path, GgufConfig& out)
      : config_(config), path_(path), out_(out) {}

  [[noreturn]] void refuse(const char* key, const std::string& why) const {
    const auto found = config_.find(key);
    fail(ErrorKind::unsupported, "{}: '{}' is {}: {}; export as a Hugging Face folder instead",
         path_, key, found == config_.end() ? "absent" : found->dump(), why);
  }
  bool has(const char* key) const {
    const auto found = config_.find(key);
    return found != config_.end() && !found->is_null();
  }
  int64_t count(const char* key) const {
    if (!has(key) || !config_[key].is_number_integer()) refuse(key, "a GGUF file needs a number");
    return config_[key].get<int64_t>();
  }
  double real(const char* key) const {
    if (!has(key) || !config_[key].is_number()) refuse(key, "a GGUF file needs a number");
    return config_[key].get<double>();
  }
  double real(const char* key, double fallback) const { return has(key) ? real(key) : fallback; }
  void put(const std::string& key, GgufValue value) {
    const std::string architecture = gguf_architecture_name(out_.architecture);
    out_.metadata.emplace_back(architecture + "." + key, std::move(value));
  }
  void put_count(const std::string& name, const char* key) { put(name, gguf_u32(count(key))); }

  void gpt2() {
    put_count("context_length", "n_positions");
    put_count("embedding_length", "n_embd");
    put_count("block_count", "n_layer");
    put("feed_forward_length", gguf_u32(has("n_inner") ? count("n_inner") : 4 * count("n_embd")));
    put_count("attention.head_count", "n_head");
    put("attention.layer_norm_epsilon", gguf_f32(real("layer_norm_epsilon", 1e-5)));
  }

  void llama() {
    const int64_t heads = count("num_attention_heads");
    const int64_t head_dim = has("head_dim") ? count("head_dim") : count("hidden_size") / heads;
    put_count("context_length", "max_position_embeddings");
    put_count("embedding_length", "hidden_size");
    put_count("block_count", "num_hidden_layers");
    put_count("feed_forward_length", "intermediate_size");
    put("attention.head_count", gguf_u32(heads));
    put("attention.head_count_kv",
        gguf_u32(has("num_key_value_heads") ? count("num_key_value_heads") : heads));
    put("attention.layer_norm_rms_epsilon", gguf_f32(real("rms_norm_eps", 1e-6)));
    put("attention.key_length", gguf_u32(head_dim));
    put("attention.value_length", gguf_u32(head_dim));
    put("rope.freq_base", gguf_f32(real("rope_theta", 1e4)));
    put("rope.dimension_count", gguf_u32(head_dim));
    if (out_.architecture == GgufArchitecture::llama) put_count("vocab_size", "vocab_size");
    gemma(head_dim);
    scaling(head_dim);
  }

 private:
  void gemma(int64_t head_dim) {
    const bool gemma2 = out_.architecture == GgufArchitecture::gemma2;
    const bool gemma3 = out_.architecture == GgufArchitecture::gemma3;
    const bool windows = has("sliding_window") &&
                         (!has("use_sliding_window") || config_["use_sliding_window"] == true);
    if (!gemma2 && !gemma3) {
      if (windows) refuse("sliding_window", "llama.cpp has no window in this architecture");
      return;
    }
    if (!windows) refuse("sliding_window", "llama.cpp requires a window in this architecture");
    put_count("attention.sliding_window", "sliding_window");
    if (real("query_pre_attn_scalar") != static_cast<double>(head_dim)) {
      refuse("query_pre_attn_scalar", "llama.cpp scales scores by the head dimension");
    }
    check_pattern(gemma2 ? 2 : 6);
    if (gemma2) {
      put("attn_logit_softcapping", gguf_f32(real("attn_logit_softcapping")));
      put("final_logit_softcapping", gguf_f32(real("final_logit_softcapping")));
      return;
    }
    if (has("attn_logit_softcapping"))
      refuse("attn_logit_softcapping", "llama.cpp has no softcap in this architecture");
    if (has("final_logit_softcapping"))
      refuse("final_logit_softcapping", "llama.cpp has no softcap in this architecture");
    if (real("rope_local_base_freq", kGemmaLocalTheta) != kGemmaLocalTheta) {
      refuse("rope_local_base_freq", "llama.cpp uses 10000 there");
    }
  }

  // One in every so many layers has no window.
  void check_pattern(int64_t pattern) {
    const auto types = config_.find("layer_types");
    if (types == config_.end() || !types->is_array()) return;
    for (size_t i = 0; i < types->size(); ++i) {
      const bool full = (static_cast<int64_t>(i) + 1) % pattern == 0;
      if ((*types)[i] == (full ? "full_attention" : "sliding_attention")) continue;
      refuse("layer_types", fmt::format("llama.cpp has no window in every layer of {}", pattern));
    }
  }

  void scaling(int64_t head_dim) {
    if (!has("rope_scaling")) return;
    const Json& scaling = config_["rope_scaling"];
    const std::string type = scaling.value("rope_type", scaling.value("type", std::string()));
    const double factor = scaling.value("factor", 1.0);
    if (type == "llama3") {
      const auto context = scaling.value("original_max_position_embeddings", 8192.0);
      out_.rope_factors = llama3_factors(real("rope_theta", 1e4), head_dim, factor,
                                         scaling.value("low_freq_factor", 1.0),
                                         scaling.value("high_freq_factor", 4.0), context);
      return;
    }
    const bool plain_yarn = !scaling.contains("attention_factor") &&
                            scaling.value("beta_fast", 32.0) == 32 &&
                            scaling.value("beta_slow", 1.0) == 1;
    if (type != "linear" && !(type == "yarn" && plain_yarn)) {
      refuse("rope_scaling", "accepted: linear, llama3 and yarn with its default constants");
    }
    put("rope.scaling.type", gguf_text(type));
    put("rope.scaling.factor", gguf_f32(factor));
    if (type != "yarn") return;
    put("rope.scaling.original_context_length",
        gguf_u32(
            scaling.value("original_max_position_embeddings", count("max_position_embeddings"))));
  }

  const Json& config_;
  const std::string& path_;
  GgufConfig& out_;
};

}  // namespace

GgufValue gguf_u32(int64_t value) {
  if (value < 0 || value > std::numeric_limits<uint32_t>::max()) {
    fail(ErrorKind::unsupported, "{} does not fit into the 32 bits of a GGUF key", value);
  }
  return {GgufKind::u32, GgufKind::u32, static_cast<uint32_t>(value)};
}
GgufValue gguf_f32(double value) { return {GgufKind::f32, GgufKind::f32, value}; }
GgufValue gguf_text(std::string value) {
  return {GgufKind::string, GgufKind::string, std::move(value)};
}
GgufValue gguf_flag(bool value) { return {GgufKind::boolean, GgufKind::boolean, value}; }

GgufConfig gguf_config(const Json& config, const std::string& path) {
  const std::string type = config.value("model_type", std::string());
  const auto architecture = gguf_architecture_of_type(type);
  if (!architecture) {
    fail(ErrorKind::unsupported,
         "{}: 'model_type' is \"{}\"; accepted for GGUF files: gpt2, llama, mistral, qwen2, qwen3, "
         "gemma2, gemma3_text",
         path, type);
  }
  GgufConfig out;
  out.architecture = *architecture;
  out.metadata.emplace_back("general.architecture",
                            gguf_text(gguf_architecture_name(*architecture)));
  ConfigWriter writer(config, path, out);
  if (*architecture == GgufArchitecture::gpt2) {
    writer.gpt2();
  } else {
    writer.llama();
  }
  return out;
}

}  // namespace tutti::checkpoint
