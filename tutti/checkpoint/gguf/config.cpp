#include "tutti/checkpoint/gguf/config.h"

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "tutti/base/error.h"

namespace tutti::checkpoint {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kGemmaLocalTheta = 10000;  // llama.cpp's constant for layers with a window

// The divisor of every frequency. Source: transformers' _compute_llama3_parameters.
std::vector<float> llama3_factors(double theta, int64_t head_dim, double factor, double low,
                                  double high, double context) {
  std::vector<float> out;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double frequency =
        1 / std::pow(theta, static_cast<double>(i) / static_cast<double>(head_dim));
    const double wavelength = 2 * kPi / frequency;
    if (wavelength < context / high) {
      out.push_back(1);
    } else if (wavelength > context / low) {
      out.push_back(static_cast<float>(factor));
    } else {
      const double smooth = (context / wavelength - low) / (high - low);
      out.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
    }
  }
  return out;
}

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

class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, GgufArchitecture architecture)
      : file_(file),
        architecture_(architecture),
        prefix_(std::string(gguf_architecture_name(architecture)) + ".") {}

  Json read() {
    if (architecture_ == GgufArchitecture::gpt2) {
      gpt2();
    } else {
      llama();
    }
    const GgufTensor* embedding = file_.tensor("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2) {
      fail(ErrorKind::corrupt, "'{}': no tensor 'token_embd.weight' with two dimensions",
           file_.path());
    }
    out_["vocab_size"] = embedding->shape[0];
    out_["tie_word_embeddings"] = file_.tensor("output.weight") == nullptr;
    refuse_unknown();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    const Json* value = file_.find(prefix_ + key);
    fail(ErrorKind::unsupported, "'{}': '{}{}' is {}: {}", file_.path(), prefix_, key,
         value == nullptr ? "absent" : value->dump().substr(0, 80), why);
  }
  const Json* find(const std::string& key) {
    known_.insert(prefix_ + key);
    return file_.find(prefix_ + key);
  }
  int64_t count(const std::string& key) {
    const Json* value = find(key);
    const bool good =
        value != nullptr && value->is_number_integer() && *value > 0 && *value < int64_t{1} << 40;
    if (!good) refuse(key, "expected a positive number");
    return value->get<int64_t>();
  }
  int64_t count(const std::string& key, int64_t fallback) {
    return find(key) == nullptr ? fallback : count(key);
  }
  double real(const std::string& key) {
    const Json* value = find(key);
    if (value == nullptr || !value->is_number()) refuse(key, "expected a number");
    return shortest(value->get<double>());
  }
  double real(const std::string& key, double fallback) {
    return find(key) == nullptr ? fallback : real(key);
  }
  // The shortest decimal with the same value in single precision: 1e-5, not 9.99999974e-06.
  static double shortest(double value) {
    return std::stod(fmt::format("{}", static_cast<float>(value)));
  }

  void gpt2() {
    out_ = {{"architectures", {"GPT2LMHeadModel"}}, {"model_type", "gpt2"}};
    out_["n_positions"] = count("context_length");
    out_["n_ctx"] = out_["n_positions"];
    out_["n_embd"] = count("embedding_length");
    out_["n_layer"] = count("block_count");
    out_["n_head"] = count("attention.head_count");
    out_["n_inner"] = count("feed_forward_length");
    out_["activation_function"] = "gelu_new";
    out_["layer_norm_epsilon"] = real("attention.layer_norm_epsilon");
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) out_[key] = 0.0;
    count("attention.head_count_kv", 1);
  }

  void llama() {
    struct Names {
      const char* type;
      const char* architecture;
    };
    static const std::map<GgufArchitecture, Names> names = {
        {GgufArchitecture::llama, {"llama", "LlamaForCausalLM"}},
        {GgufArchitecture::qwen2, {"qwen2", "Qwen2ForCausalLM"}},
        {GgufArchitecture::qwen3, {"qwen3", "Qwen3ForCausalLM"}},
        {GgufArchitecture::gemma2, {"gemma2", "Gemma2ForCausalLM"}},
        {GgufArchitecture::gemma3, {"gemma3_text", "Gemma3ForCausalLM"}}};
    const Names& own = names.at(architecture_);
    out_ = {{"architectures", {own.architecture}}, {"model_type", own.type}};
    const int64_t heads = count("attention.head_count");
    const int64_t hidden = count("embedding_length");
    const int64_t head_dim = count("attention.key_length", hidden / heads);
    if (count("attention.value_length", head_dim) != head_dim) {
      refuse("attention.value_length", "keys have another length");
    }
    if (count("rope.dimension_count", head_dim) != head_dim) {
      refuse("rope.dimension_count", "RoPE applies to whole heads in this architecture");
    }
    out_["max_position_embeddings"] = count("context_length");
    out_["hidden_size"] = hidden;
    out_["num_hidden_layers"] = count("block_count");
    out_["num_attention_heads"] = heads;
    out_["num_key_value_heads"] = count("attention.head_count_kv", heads);
    out_["head_dim"] = head_dim;
    out_["intermediate_size"] = count("feed_forward_length");
    out_["rms_norm_eps"] = real("attention.layer_norm_rms_epsilon");
    out_["rope_theta"] = real("rope.freq_base", 10000);
    out_["rope_scaling"] = nullptr;
    count("vocab_size", 1);
    if (const int64_t experts = count_or_zero("expert_count"); experts > 0) {
      refuse("expert_count", "experts are only imported from Hugging Face folders");
    }
    count_or_zero("expert_used_count");
    if (architecture_ == GgufArchitecture::llama) {
      out_["hidden_act"] = "silu";
      out_["attention_bias"] = file_.tensor("blk.0.attn_q.bias") != nullptr;
      out_["mlp_bias"] = file_.tensor("blk.0.ffn_up.bias") != nullptr;
    } else if (architecture_ == GgufArchitecture::qwen2 ||
               architecture_ == GgufArchitecture::qwen3) {
      out_["hidden_act"] = "silu";
      out_["use_sliding_window"] = false;
    } else {
      gemma(head_dim);
    }
    scaling();
  }

  void gemma(int64_t head_dim) {
    const bool gemma2 = architecture_ == GgufArchitecture::gemma2;
    const int64_t layers = out_["num_hidden_layers"].get<int64_t>();
    out_["hidden_activation"] = "gelu_pytorch_tanh";
    out_["sliding_window"] = count("attention.sliding_window", gemma2 ? 4096 : 1024);
    // The largest model of either generation scales by hidden / heads.
    const bool largest = layers == (gemma2 ? 46 : 62);
    const int64_t width =
        out_["hidden_size"].get<int64_t>() / out_["num_attention_heads"].get<int64_t>();
    out_["query_pre_attn_scalar"] = largest ? width : head_dim;
    Json types = Json::array();
    for (int64_t i = 0; i < layers; ++i) {
      types.push_back((i + 1) % (gemma2 ? 2 : 6) == 0 ? "full_attention" : "sliding_attention");
    }
    out_["layer_types"] = std::move(types);
    if (gemma2) {
      out_["attn_logit_softcapping"] = real("attn_logit_softcapping", 50);
      out_["final_logit_softcapping"] = real("final_logit_softcapping", 30);
    } else {
      out_["rope_local_base_freq"] = kGemmaLocalTheta;
      out_["attn_logit_softcapping"] = nullptr;
      out_["final_logit_softcapping"] = nullptr;
    }
  }

  int64_t count_or_zero(const std::string& key) {
    const Json* value = find(key);
    return value != nullptr && value->is_number_integer() ? value->get<int64_t>() : 0;
  }

  void scaling() {
    const Json* type = find("rope.scaling.type");
    const bool has = type != nullptr && type->is_string() && *type != "none";
    if (has) {
      const auto name = type->get<std::string>();
      if (name != "linear" && name != "yarn") refuse("rope.scaling.type", "accepted: linear, yarn");
      out_["rope_scaling"] = {{"rope_type", name}, {"factor", real("rope.scaling.factor")}};
      if (name == "yarn") {
        out_["rope_scaling"]["original_max_position_embeddings"] =
            count("rope.scaling.original_context_length");
      }
    }
    const GgufTensor* factors = file_.tensor(kGgufRopeFactors);
    if (factors != nullptr) out_["rope_scaling"] = llama3_scaling(*factors);
  }

  // Finds the Llama 3 settings of the factors.
  Json llama3_scaling(const GgufTensor& tensor) const {
    const auto head_dim = out_["head_dim"].get<int64_t>();
    const auto elements = static_cast<size_t>(head_dim / 2);
    if (tensor.type == GgufType::f32 && tensor.shape == std::vector<int64_t>{head_dim / 2}) {
      std::vector<float> stored(elements);
      decode_gguf(tensor.type, file_.bytes(tensor).data(), head_dim / 2, stored.data(),
                  kGgufRopeFactors);
      for (const double factor : {8.0, 32.0, 16.0, 4.0, 2.0, 64.0}) {
        for (const double context :
             {8192.0, 4096.0, 2048.0, 16384.0, 32768.0, 1024.0, 512.0, 256.0, 128.0, 64.0, 32.0}) {
          const std::vector<float> expected =
              llama3_factors(out_["rope_theta"].get<double>(), head_dim, factor, 1, 4, context);
          bool same = true;
          for (size_t i = 0; i < elements; ++i) {
            same = same && std::fabs(stored[i] - expected[i]) <= 1e-4F * expected[i];
          }
          if (!same) continue;
          return {{"rope_type", "llama3"},
                  {"factor", factor},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 4.0},
                  {"original_max_position_embeddings", static_cast<int64_t>(context)}};
        }
      }
    }
    fail(ErrorKind::unsupported,
         "'{}': the factors of tensor '{}' match no published scaling of Llama 3; import the "
         "Hugging Face folder of the model",
         file_.path(), kGgufRopeFactors);
  }

  void refuse_unknown() const {
    for (const auto& [key, value] : file_.metadata()) {
      if (!key.starts_with(prefix_) || known_.count(key) > 0) continue;
      fail(ErrorKind::unsupported, "'{}': the key '{}' ({}) is unknown for this architecture",
           file_.path(), key, value.value.dump().substr(0, 80));
    }
  }

  const GgufFile& file_;
  GgufArchitecture architecture_;
  std::string prefix_;
  std::set<std::string> known_;
  Json out_;
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

Json config_of_gguf(const GgufFile& file) {
  const Json* name = file.find("general.architecture");
  const auto architecture = name == nullptr || !name->is_string()
                                ? std::nullopt
                                : gguf_architecture_of(name->get<std::string>());
  if (!architecture) {
    fail(ErrorKind::unsupported, "'{}': 'general.architecture' is {}; accepted: {}", file.path(),
         name == nullptr ? "absent" : name->dump().substr(0, 80), gguf_architecture_names());
  }
  return ConfigReader(file, *architecture).read();
}

}  // namespace tutti::checkpoint
