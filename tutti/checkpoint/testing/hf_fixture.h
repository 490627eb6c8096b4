// Small Hugging Face models with random weights in memory, for the tests of this folder.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/huggingface/names.h"
#include "tutti/checkpoint/store/safetensors.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"

namespace tutti::checkpoint {

// Heads of an odd count and of 6 elements, key-value groups, sizes that are not powers of two.
inline Json llama_json() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 37},
          {"max_position_embeddings", 64},
          {"hidden_size", 36},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 6},
          {"num_key_value_heads", 2},
          {"intermediate_size", 50},
          {"hidden_act", "silu"},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 5e5},
          {"rope_scaling",
           {{"rope_type", "llama3"},
            {"factor", 8.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 32}}},
          {"attention_bias", false},
          {"tie_word_embeddings", false},
          {"bos_token_id", 5},
          {"torch_dtype", "float32"}};
}

inline Json gpt2_json() {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", 41},
          {"n_positions", 24},
          {"n_embd", 30},
          {"n_layer", 2},
          {"n_head", 3},
          {"activation_function", "gelu_new"}};
}

inline Json mixtral_json() {
  Json config = llama_json();
  config["architectures"] = {"MixtralForCausalLM"};
  config["model_type"] = "mixtral";
  config.erase("rope_scaling");
  config.erase("attention_bias");
  config["num_local_experts"] = 3;
  config["num_experts_per_tok"] = 2;
  config["sliding_window"] = nullptr;
  return config;
}

// A folder of transformers: its files by name, made of tensors that can be changed before.
class FakeHfModel {
 public:
  explicit FakeHfModel(Json config_json, DType dtype = DType::f32)
      : config(std::move(config_json)) {
    const HfModel hf = read_hf_config(config, "config.json");
    for (const HfParameter& parameter : hf_parameters(hf.model, hf.family, hf_prefix(hf.family))) {
      for (const HfPart& part : parameter.parts) add(part.name, dtype, part.shape);
    }
  }

  void add(const std::string& name, DType dtype, const std::vector<int64_t>& shape) {
    const int64_t bytes = checked_bytes(dtype, shape);
    std::string data(static_cast<size_t>(bytes), '\0');
    const uint64_t key = stream_key(7, "fake model", name);
    // Signs and small exponents: finite in every type.
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<char>(random_u64(key, i) & (i % 2 == 1 ? 0xbfU : 0xffU));
    }
    tensors.push_back({name, dtype, shape, 0, 0});
    bytes_of[name] = std::move(data);
  }

  SafetensorsTensor& tensor(const std::string& name) {
    for (SafetensorsTensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << "no tensor " << name;
    return tensors.front();
  }

  void remove(const std::string& name) {
    std::erase_if(tensors, [&](const SafetensorsTensor& one) { return one.name == name; });
  }

  std::string file(const std::vector<SafetensorsTensor>& of) const {
    const SafetensorsLayout layout = layout_safetensors(of, {{"format", "pt"}});
    std::string text = layout.header;
    for (const SafetensorsTensor& tensor : layout.tensors) text += bytes_of.at(tensor.name);
    return text;
  }

  // One file, or `shards` of them with an index.
  void write(FileSystem& files, const std::string& folder, size_t shards = 1) const {
    files.create_directories(folder);
    put(files, join_path(folder, kHfConfig), config.dump(2));
    if (shards == 1) {
      put(files, join_path(folder, kHfSingle), file(tensors));
      return;
    }
    Json weight_map = Json::object();
    int64_t total = 0;
    for (size_t s = 0; s < shards; ++s) {
      const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards);
      std::vector<SafetensorsTensor> here;
      for (size_t i = s; i < tensors.size(); i += shards) {
        here.push_back(tensors[i]);
        weight_map[tensors[i].name] = name;
        total += static_cast<int64_t>(bytes_of.at(tensors[i].name).size());
      }
      put(files, join_path(folder, name), file(here));
    }
    const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
    put(files, join_path(folder, kHfIndex), index.dump(2));
  }

  static void put(FileSystem& files, const std::string& path, const std::string& text) {
    const auto out = files.create(path);
    out->append(text.data(), text.size());
    out->close();
  }

  Json config;
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::string> bytes_of;
};

}  // namespace tutti::checkpoint
