#include "tutti/checkpoint/huggingface/adapter.h"

#include <gtest/gtest.h>

#include <map>

#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/store/safetensors.h"

namespace tutti::checkpoint {
namespace {

spec::ModelConfig gpt() {
  spec::ModelConfig model;
  model.layers = 2;
  model.hidden = 12;
  model.heads = model.kv_heads = 3;
  model.head_dim = 4;
  model.ffn = 20;
  model.vocabulary = 31;
  model.context = 8;
  return model;
}

spec::ModelConfig llama() {
  spec::ModelConfig model = gpt();
  model.kv_heads = 1;
  model.norm = spec::Norm::rms;
  model.activation = spec::Activation::swiglu;
  model.positions = spec::Positions::rope;
  model.linear_bias = model.norm_bias = model.tied_embeddings = false;
  return model;
}

struct Adapted {
  spec::ModelConfig model;
  spec::ParamLayout layout;
  std::vector<float> flat;

  Adapted(const spec::ModelConfig& config, const std::vector<std::string>& targets)
      : model(config),
        layout(spec::param_layout(spec::param_table(config, {2, 3, 0, targets}))),
        flat(static_cast<size_t>(layout.elements)) {
    fill_normal(flat.data(), layout.elements, 5, 0, 0, 1);
  }
  const float* at(const std::string& name) const {
    return flat.data() + layout.find(name).element_offset;
  }
};

// Element (i, j) of W + scale * B A, written out.
TEST(Adapter, MergeAddsTheScaledProductToItsRows) {
  const Adapted before(llama(), {"query", "value", "mlp"});
  Adapted after = before;
  merge_adapters(after.layout, after.model, after.flat.data());
  const auto expect = [&](const std::string& weight, const std::string& adapter, int64_t first,
                          int64_t rows, int64_t in) {
    const float* a = before.at(adapter + ".lora_a.weight");
    const float* b = before.at(adapter + ".lora_b.weight");
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < in; ++j) {
        const double product = static_cast<double>(b[2 * i]) * static_cast<double>(a[j]) +
                               static_cast<double>(b[2 * i + 1]) * static_cast<double>(a[in + j]);
        const int64_t at = (first + i) * in + j;
        ASSERT_NEAR(after.at(weight)[at],
                    static_cast<double>(before.at(weight)[at]) + 1.5 * product, 1e-5)
            << adapter << " " << i << " " << j;
      }
    }
  };
  expect("blocks.1.attention.qkv.weight", "blocks.1.attention.query", 0, 12, 12);
  expect("blocks.1.attention.qkv.weight", "blocks.1.attention.value", 16, 4, 12);
  expect("blocks.0.mlp.gate_up.weight", "blocks.0.mlp.gate", 0, 20, 12);
  expect("blocks.0.mlp.gate_up.weight", "blocks.0.mlp.up", 20, 20, 12);
  expect("blocks.0.mlp.down.weight", "blocks.0.mlp.down", 0, 12, 20);
  // Key rows, which have no adapter, and the adapters themselves are unchanged.
  for (int64_t i = 12 * 12; i < 16 * 12; ++i) {
    ASSERT_EQ(after.at("blocks.0.attention.qkv.weight")[i],
              before.at("blocks.0.attention.qkv.weight")[i]);
  }
  const std::vector<float> plain = without_adapters(after.layout, after.model, after.flat.data());
  const spec::ParamLayout layout = spec::param_layout(spec::param_table(after.model));
  EXPECT_EQ(static_cast<int64_t>(plain.size()), layout.elements);
  EXPECT_EQ(plain[static_cast<size_t>(layout.find("blocks.1.mlp.down.weight").element_offset + 7)],
            after.at("blocks.1.mlp.down.weight")[7]);
}

struct File {
  std::map<std::string, std::vector<float>> tensors;
  std::map<std::string, std::vector<int64_t>> shapes;
  Json config;
};

File exported(const Adapted& adapted) {
  MemoryFileSystem files;
  export_adapter(files, adapted.layout, adapted.model, adapted.flat.data(), "base", "out");
  File file;
  file.config = Json::parse(read_file(files, "out/adapter_config.json"));
  const std::string text = read_file(files, "out/adapter_model.safetensors");
  for (const SafetensorsTensor& tensor : parse_safetensors(text, "out").tensors) {
    const auto* values = reinterpret_cast<const float*>(text.data() + tensor.begin);
    file.tensors[tensor.name].assign(values, values + (tensor.end - tensor.begin) / 4);
    file.shapes[tensor.name] = tensor.shape;
  }
  return file;
}

TEST(Adapter, FusedAdapterOfLlamaIsSplitIntoModules) {
  const Adapted adapted(llama(), {"qkv", "output"});
  const File file = exported(adapted);
  const std::string attention = "base_model.model.model.layers.1.self_attn.";
  EXPECT_EQ(file.tensors.size(), 2U * 4 * 2);
  const float* a = adapted.at("blocks.1.attention.qkv.lora_a.weight");
  const float* b = adapted.at("blocks.1.attention.qkv.lora_b.weight");
  for (const char* module : {"q_proj", "k_proj", "v_proj"}) {
    EXPECT_EQ(file.tensors.at(attention + module + ".lora_A.weight"),
              std::vector<float>(a, a + 24));
  }
  EXPECT_EQ(file.tensors.at(attention + "k_proj.lora_B.weight"),
            std::vector<float>(b + 24, b + 32));
  EXPECT_EQ(file.config["r"], 2);
  EXPECT_EQ(file.config["lora_alpha"], 3);
  EXPECT_EQ(file.config["fan_in_fan_out"], false);
  EXPECT_EQ(file.config["rank_pattern"], Json::object());
  EXPECT_EQ(file.config["target_modules"].size(), 4U);
}

TEST(Adapter, SeparateAdaptersOfGptAreStackedInOneModule) {
  const Adapted adapted(gpt(), {"query", "value"});
  const File file = exported(adapted);
  const std::string module = "base_model.model.transformer.h.0.attn.c_attn";
  EXPECT_EQ(file.shapes.at(module + ".lora_A.weight"), (std::vector<int64_t>{4, 12}));
  EXPECT_EQ(file.shapes.at(module + ".lora_B.weight"), (std::vector<int64_t>{36, 4}));
  const std::vector<float>& b = file.tensors.at(module + ".lora_B.weight");
  const float* query = adapted.at("blocks.0.attention.query.lora_b.weight");
  const float* value = adapted.at("blocks.0.attention.value.lora_b.weight");
  EXPECT_EQ(b[0], query[0]);
  EXPECT_EQ(b[2], 0);
  EXPECT_EQ(b[12 * 4], 0);  // a key row
  EXPECT_EQ(b[24 * 4 + 1], 0);
  EXPECT_EQ(b[24 * 4 + 3], value[1]);
  EXPECT_EQ(file.config["fan_in_fan_out"], true);
  EXPECT_EQ(file.config["rank_pattern"]["attn.c_attn"], 4);
  EXPECT_EQ(file.config["alpha_pattern"]["attn.c_attn"], 6);
}

}  // namespace
}  // namespace tutti::checkpoint
