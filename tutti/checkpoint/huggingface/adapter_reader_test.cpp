// Folders of PEFT: what export_adapter writes is read as the same function, and what is not plain
// LoRA of this model is named.
#include "tutti/checkpoint/huggingface/adapter_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/huggingface/adapter.h"
#include "tutti/checkpoint/testing/hf_fixture.h"

namespace tutti::checkpoint {
namespace {

struct Folder {
  explicit Folder(const Json& config, std::vector<std::string> targets)
      : hf(read_hf_config(config, "config.json")),
        layout(spec::param_layout(spec::param_table(hf.model, {3, 6, 0, std::move(targets)}))),
        flat(static_cast<size_t>(layout.elements)) {
    fill_normal(flat.data(), layout.elements, 5, 0, 0, 1);
    export_adapter(files, layout, hf.model, flat.data(), "base", "peft");
  }
  std::vector<spec::LowRankTerm> read() { return read_peft(files, "peft", hf.model, hf.family); }
  void set(const char* key, const Json& value) {
    Json config = parse_json(read_file(files, "peft/adapter_config.json"), "config");
    config[key] = value;
    FakeHfModel::put(files, "peft/adapter_config.json", config.dump());
  }

  HfModel hf;
  spec::ParamLayout layout;
  std::vector<float> flat;
  MemoryFileSystem files;
};

// scale * B A of all terms of a projection, [outputs, inputs].
using Products = std::map<std::pair<int64_t, spec::Projection>, std::vector<double>>;
void add_product(Products& to, const spec::ModelConfig& model, const spec::LowRankTerm& term) {
  std::vector<double>& sum = to[{term.layer, term.projection}];
  sum.resize(static_cast<size_t>(spec::projection_outputs(model, term.projection) * term.inputs),
             0.0);
  for (int64_t i = 0; i < term.rows; ++i) {
    for (int64_t j = 0; j < term.inputs; ++j) {
      double product = 0;
      for (int64_t k = 0; k < term.rank; ++k) {
        product += static_cast<double>(term.b[static_cast<size_t>(i * term.rank + k)]) *
                   static_cast<double>(term.a[static_cast<size_t>(k * term.inputs + j)]);
      }
      sum[static_cast<size_t>((term.first_row + i) * term.inputs + j)] += term.scale * product;
    }
  }
}

TEST(AdapterReader, ReadsTheFunctionThatWasExported) {
  using Targets = std::vector<std::string>;
  for (const auto& [config, targets] : std::vector<std::pair<Json, Targets>>{
           {llama_json(), {"query", "value", "mlp"}},
           {llama_json(), {"qkv", "output"}},
           {gpt2_json(), {"query", "value", "output", "mlp.down"}}}) {
    Folder folder(config, targets);
    const spec::ModelConfig& model = folder.hf.model;
    Products read;
    for (const spec::LowRankTerm& term : folder.read()) add_product(read, model, term);
    Products expected;
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      for (const spec::Adapter& adapter : spec::adapters(model, folder.layout.lora)) {
        spec::LowRankTerm term;
        term.layer = layer;
        term.projection = adapter.projection;
        term.first_row = adapter.first_row;
        term.rows = adapter.rows;
        term.inputs = spec::projection_inputs(model, adapter.projection);
        term.rank = 3;
        term.scale = 2;
        const auto values = [&](const char* half, int64_t count) {
          const std::string name = fmt::format("blocks.{}.{}{}", layer, adapter.name, half);
          const float* from = folder.flat.data() + folder.layout.find(name).element_offset;
          return std::vector<float>(from, from + count);
        };
        term.a = values(".lora_a.weight", term.rank * term.inputs);
        term.b = values(".lora_b.weight", term.rows * term.rank);
        add_product(expected, model, term);
      }
    }
    ASSERT_EQ(read.size(), expected.size());
    for (const auto& [projection, wanted] : expected) {
      const std::vector<double>& got = read.at(projection);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-9) << i;
    }
  }
}

TEST(AdapterReader, ScalesByTheRootOfTheRankWhereAsked) {
  Folder folder(llama_json(), {"qkv"});
  EXPECT_DOUBLE_EQ(folder.read().front().scale, 2);
  folder.set("use_rslora", true);
  EXPECT_DOUBLE_EQ(folder.read().front().scale, 6 / std::sqrt(3.0));
  folder.set("alpha_pattern", {{"self_attn.q_proj", 9}});
  int nines = 0;
  for (const spec::LowRankTerm& term : folder.read()) {
    nines += term.scale == 9 / std::sqrt(3.0) ? 1 : 0;
  }
  EXPECT_EQ(nines, 2);  // one of each layer
}

TEST(AdapterReader, WhatIsNotPlainLoraIsNamed) {
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, Json>>{{"peft_type", "IA3"},
                                                 {"use_dora", true},
                                                 {"bias", "all"},
                                                 {"modules_to_save", {"lm_head"}},
                                                 {"alpha_pattern", {{".*q_proj", 9}}}}) {
    Folder folder(llama_json(), {"qkv"});
    folder.set(key, value);
    EXPECT_TRUE(says(error_of([&] { folder.read(); }), ErrorKind::unsupported, key));
  }
}

TEST(AdapterReader, OtherFoldersAreNamed) {
  Folder folder(llama_json(), {"qkv"});
  const Json small = llama_json();
  Json wide = llama_json();
  wide["intermediate_size"] = 60;
  Folder mlp(wide, {"mlp"});
  const HfModel narrow = read_hf_config(small, "config.json");
  EXPECT_TRUE(says(error_of([&] { read_peft(mlp.files, "peft", narrow.model, narrow.family); }),
                   ErrorKind::usage, "adapters of another one"));
  const HfModel gpt2 = read_hf_config(gpt2_json(), "config.json");
  EXPECT_TRUE(says(error_of([&] { read_peft(folder.files, "peft", gpt2.model, gpt2.family); }),
                   ErrorKind::unsupported, "self_attn.q_proj.lora_A.weight"));
  // Half of a pair.
  const std::string path = "peft/adapter_model.safetensors";
  const std::string bytes = read_file(folder.files, path);
  SafetensorsHeader header = parse_safetensors(bytes, path);
  FakeHfModel fake(small);
  fake.tensors.clear();
  for (const SafetensorsTensor& tensor : header.tensors) {
    if (tensor.name.find("layers.1.self_attn.q_proj.lora_B") != std::string::npos) continue;
    fake.tensors.push_back(tensor);
    fake.bytes_of[tensor.name] = bytes.substr(static_cast<size_t>(tensor.begin),
                                              static_cast<size_t>(tensor.end - tensor.begin));
  }
  FakeHfModel::put(folder.files, path, fake.file(fake.tensors));
  EXPECT_TRUE(says(error_of([&] { folder.read(); }), ErrorKind::usage, "only one of"));
  folder.files.remove_file(path);
  EXPECT_TRUE(says(error_of([&] { folder.read(); }), ErrorKind::not_found, "safetensors"));
}

}  // namespace
}  // namespace tutti::checkpoint
