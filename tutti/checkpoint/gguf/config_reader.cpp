#include <cmath>
#include <set>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/checkpoint/gguf/config.h"
#include "tutti/checkpoint/gguf/rope_factors.h"

namespace tutti::checkpoint {
namespace {

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
