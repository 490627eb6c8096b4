// Packed matrices in files: the published layout bit by bit, what an export writes, and files that
// are not what they say.
#include "tutti/checkpoint/huggingface/pack_quantized.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/checkpoint/huggingface/export.h"
#include "tutti/checkpoint/huggingface/import.h"
#include "tutti/checkpoint/huggingface/packing_config.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/checkpoint/testing/hf_fixture.h"

namespace tutti::checkpoint {
namespace {

constexpr const char* kPackedName = "model.layers.1.self_attn.q_proj.weight";

Json packable_json() {
  Json config = llama_json();
  config["hidden_size"] = 64;
  config["num_attention_heads"] = 4;
  config["intermediate_size"] = 96;
  return config;
}

// An import of random weights, and its export.
struct Export {
  explicit Export(const Json& config, PackKind kind, int64_t shard_bytes = kHfShardBytes)
      : model(config) {
    model.write(files, "m");
    const HfFolder folder(files, "m");
    hf = read_hf_config(folder.config(), folder.config_path());
    State state;
    const HfImported imported = import_parameters(files, folder, hf, state, "run/checkpoints", {});
    reader.emplace(files, imported.written.path, serially);
    files.create_directories("out");
    options.dtype = DType::bf16;
    options.pack = kind;
    options.shard_bytes = shard_bytes;
    options.original = config;
  }
  HfExported write() { return export_parameters(files, *reader, hf.model, "out", options); }

  FakeHfModel model;
  MemoryFileSystem files;
  HfModel hf;
  std::optional<Reader> reader;
  HfExportOptions options;
};

TEST(PackQuantized, WordsHaveTheFirstColumnInTheirLowestBits) {
  // Of scale 1 in int4: the number of largest magnitude is -8.
  std::vector<float> values(32, 0.0F);
  for (int i = 0; i < 16; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i - 8);
  std::vector<uint8_t> words(16);
  bf16 scale = {};
  pack_words(PackKind::int4, values.data(), 32, words.data(), &scale);
  EXPECT_EQ(to_f32(scale), 1.0F);
  uint32_t first = 0;
  std::memcpy(&first, words.data(), sizeof first);
  EXPECT_EQ(first, 0x76543210U);  // -8 + 8, -7 + 8, ...
  std::vector<int8_t> numbers(32);
  unpack_words(PackKind::int4, words.data(), 32, numbers.data());
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(static_cast<float>(numbers[i]), values[i]);

  values[0] = 127;
  words.resize(32);
  pack_words(PackKind::int8, values.data(), 32, words.data(), &scale);
  std::memcpy(&first, words.data(), sizeof first);
  EXPECT_EQ(first, 0x7b7a79ffU);  // -5, -6, -7, 127, each + 128
}

// Of every matrix the numbers and scales that pack_row gives, row by row; all else in bf16.
TEST(PackQuantized, AnExportHoldsWhatInferencePacks) {
  for (const PackKind kind : {PackKind::int8, PackKind::int4}) {
    Export run(packable_json(), kind, 20'000);
    const HfExported exported = run.write();
    EXPECT_GT(exported.files.size(), 1U);
    EXPECT_EQ(exported.dtype, DType::bf16);
    const HfFolder folder(run.files, "out");
    const HfModel hf = read_hf_config(folder.config(), folder.config_path());
    EXPECT_EQ(hf.packing, kind);
    EXPECT_EQ(hf.model, run.hf.model);
    locate_parameters(folder, hf);
    EXPECT_FALSE(folder.contains(kPackedName));
    EXPECT_EQ(folder.tensor(std::string(kPackedName) + "_packed").shape,
              (std::vector<int64_t>{64, kind == PackKind::int8 ? 16 : 8}));
    EXPECT_EQ(folder.tensor("model.norm.weight").dtype, DType::bf16);
    EXPECT_EQ(folder.tensor("model.embed_tokens.weight").dtype, DType::bf16);
    // The head has 8 bits in any case.
    EXPECT_EQ(folder.tensor("lm_head.weight_packed").shape, (std::vector<int64_t>{37, 16}));

    HfPart part;
    part.name = kPackedName;
    part.shape = {64, 64};
    std::vector<float> values(64 * 64);
    std::memcpy(values.data(), run.model.bytes_of.at(kPackedName).data(), values.size() * 4);
    int64_t row = 0;
    stream_packed(
        folder, part, kind, RopeLayout::half, 16,
        [&](int64_t rows, const int8_t* numbers, const bf16* scales) {
          for (int64_t r = 0; r < rows; ++r, ++row) {
            std::vector<uint8_t> codes(static_cast<size_t>(packed_layout(kind, 1, 64).row_bytes));
            std::vector<uint8_t> stored(codes.size());
            bf16 expected[2];
            pack_row(kind, values.data() + row * 64, 64, codes.data(), expected);
            set_codes(kind, numbers + r * 64, 64, stored.data());
            ASSERT_EQ(stored, codes) << row;
            ASSERT_EQ(std::memcmp(scales + r * 2, expected, sizeof expected), 0);
          }
        });
    EXPECT_EQ(row, 64);
  }
}

TEST(PackQuantized, ConfigNamesTheModulesOfEachKind) {
  Export run(packable_json(), PackKind::int4);
  run.write();
  const Json config = HfFolder(run.files, "out").config().at("quantization_config");
  EXPECT_EQ(config.at("quant_method"), "compressed-tensors");
  EXPECT_EQ(config.at("format"), "pack-quantized");
  const Json& groups = config.at("config_groups");
  EXPECT_EQ(groups.at("group_0").at("targets"), Json({"Linear"}));
  EXPECT_EQ(groups.at("group_0").at("weights").at("num_bits"), 4);
  EXPECT_EQ(groups.at("group_1").at("targets"), Json({"lm_head"}));
  EXPECT_EQ(groups.at("group_1").at("weights").at("num_bits"), 8);
  EXPECT_EQ(config.at("ignore"), Json::array());

  Json tied = packable_json();
  tied["tie_word_embeddings"] = true;
  Export with_table(tied, PackKind::int4);
  with_table.write();
  const HfFolder folder(with_table.files, "out");
  const Json of_tied = folder.config().at("quantization_config");
  EXPECT_FALSE(of_tied.at("config_groups").contains("group_1"));
  EXPECT_EQ(of_tied.at("ignore"), Json({"lm_head"}));
  // As stored: what is packed when it is read has its own values.
  EXPECT_EQ(folder.tensor("model.embed_tokens.weight").dtype, DType::f32);
  EXPECT_EQ(folder.config().at("torch_dtype"), "bfloat16");

  Json experts = mixtral_json();
  experts["hidden_size"] = 96;
  experts["intermediate_size"] = 64;
  Export mixture(experts, PackKind::int8);
  mixture.write();
  const Json of_mixture = HfFolder(mixture.files, "out").config().at("quantization_config");
  EXPECT_EQ(of_mixture.at("ignore"),
            Json({"model.layers.0.block_sparse_moe.gate", "model.layers.1.block_sparse_moe.gate"}));

  // GPT-2's layers are not those of the library.
  Json gpt2 = gpt2_json();
  gpt2["n_embd"] = 96;
  Export other(gpt2, PackKind::int4);
  other.write();
  const HfFolder gpt2_folder(other.files, "out");
  EXPECT_EQ(gpt2_folder.config().at("quantization_config").at("quant_method"), "tutti");
  // [out, in], not the [in, out] of its other files.
  EXPECT_EQ(gpt2_folder.tensor("transformer.h.0.attn.c_attn.weight_packed").shape,
            (std::vector<int64_t>{288, 12}));
  locate_parameters(gpt2_folder, read_hf_config(gpt2_folder.config(), "config.json"));
}

TEST(PackQuantized, WhatCannotBePackedIsNamed) {
  Export odd(llama_json(), PackKind::int4);  // 36 wide
  const Error error = error_of([&] { odd.write(); });
  EXPECT_TRUE(says(error, ErrorKind::unsupported, "has 36 columns"));
  EXPECT_TRUE(says(error, ErrorKind::unsupported, "--dtype int4"));
  EXPECT_TRUE(says(error, ErrorKind::unsupported, "--weights int4"));

  // All experts of a layer in one tensor.
  Export stacked(Json::parse(R"({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
      "attention_bias": true, "head_dim": 32, "hidden_act": "silu", "hidden_size": 64,
      "intermediate_size": 32, "layer_types": ["sliding_attention", "full_attention"],
      "max_position_embeddings": 64, "num_attention_heads": 2, "num_experts_per_tok": 1,
      "num_hidden_layers": 2, "num_key_value_heads": 1, "num_local_experts": 2,
      "rms_norm_eps": 1e-05, "rope_theta": 150000, "sliding_window": 16, "swiglu_limit": 7.0,
      "tie_word_embeddings": false, "vocab_size": 37})"),
                 PackKind::int8);
  EXPECT_TRUE(says(error_of([&] { stacked.write(); }), ErrorKind::unsupported,
                   "--dtype int8: model type gpt_oss"));
}

TEST(PackQuantized, PackedWeightsAreNotImported) {
  Export run(packable_json(), PackKind::int4);
  run.write();
  const HfFolder folder(run.files, "out");
  const HfModel hf = read_hf_config(folder.config(), folder.config_path());
  const Error error =
      error_of([&] { import_parameters(run.files, folder, hf, State{}, "again", {}); });
  EXPECT_TRUE(says(error, ErrorKind::unsupported, "'out' cannot be imported"));
  EXPECT_TRUE(says(error, ErrorKind::unsupported, "int4"));
  EXPECT_TRUE(has_packing(folder.config()));
  EXPECT_FALSE(has_packing(run.model.config));
}

// The folder of an export of which one thing is changed.
class Damaged {
 public:
  Damaged() : run_(packable_json(), PackKind::int4), model_(packable_json()) {
    run_.write();
    const HfFolder folder(run_.files, "out");
    model_.config = folder.config();
    model_.tensors.clear();
    for (const std::string& name : folder.tensor_names()) {
      model_.tensors.push_back(folder.tensor(name));
      model_.bytes_of[name] = std::string(folder.bytes(name));
    }
  }
  FakeHfModel& model() { return model_; }
  Error error() {
    model_.write(run_.files, "damaged");
    return error_of([&] {
      const HfFolder folder(run_.files, "damaged");
      const HfModel hf = read_hf_config(folder.config(), folder.config_path());
      for (const HfParameter& parameter : locate_parameters(folder, hf)) {
        const auto kind = packed_kind(folder, hf, parameter);
        if (!kind) continue;
        for (const HfPart& part : parameter.parts) {
          stream_packed(folder, part, *kind, RopeLayout::half, hf.model.head_dim,
                        [](int64_t, const int8_t*, const bf16*) {});
        }
      }
    });
  }

 private:
  Export run_;
  FakeHfModel model_;
};

TEST(PackQuantized, DamagedTensorsAreNamed) {
  const std::string query = kPackedName;
  {
    Damaged one;
    one.model().remove(query + "_scale");
    EXPECT_TRUE(says(one.error(), ErrorKind::usage, query + "_scale' is missing"));
  }
  {
    Damaged one;
    one.model().tensor(query + "_packed").shape = {32, 16};
    EXPECT_TRUE(says(one.error(), ErrorKind::usage, "it should be i32 [64, 8]"));
  }
  {
    Damaged one;
    one.model().bytes_of.at(query + "_shape")[0] = 63;
    EXPECT_TRUE(says(one.error(), ErrorKind::usage, "says [63, 64]"));
  }
  {
    Damaged one;  // 8 bits where the config has 4
    one.model().config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] =
        8;
    EXPECT_TRUE(says(one.error(), ErrorKind::usage, "packed as int8"));
  }
  {
    Damaged one;
    one.model().bytes_of.at("lm_head.weight_packed")[5] = 0;
    EXPECT_TRUE(says(one.error(), ErrorKind::unsupported, "number -128"));
  }
  for (const char high : {'\x7f', '\xff'}) {  // infinity of either sign, in bf16
    Damaged one;
    std::string& scales = one.model().bytes_of.at(query + "_scale");
    scales[2] = '\x80';
    scales[3] = high;
    EXPECT_TRUE(says(one.error(), ErrorKind::corrupt, "not finite"));
  }
  {
    Damaged one;
    for (const char* end : {"_packed", "_scale", "_shape"}) one.model().remove(query + end);
    one.model().add(query, DType::bf16, {64, 64});
    EXPECT_TRUE(says(one.error(), ErrorKind::unsupported, "pack both or none"));
  }
}

TEST(PackQuantized, OtherSchemesAreRefusedByKey) {
  struct Case {
    const char* pointer;
    Json value;
    const char* names;
  };
  for (const Case& one : std::initializer_list<Case>{
           {"/quantization_config/format", "int-quantized", "'quantization_config.format'"},
           {"/quantization_config/quant_method", "gptq", "'quantization_config'"},
           {"/quantization_config/config_groups/group_0/weights/num_bits", 3, "num_bits' is 3"},
           {"/quantization_config/config_groups/group_0/weights/group_size", 128, "group_size"},
           {"/quantization_config/config_groups/group_0/weights/symmetric", false, "symmetric"},
           {"/quantization_config/config_groups/group_0/weights/strategy", "channel", "strategy"},
           {"/quantization_config/config_groups/group_0/weights/type", "float", "weights.type"},
           {"/quantization_config/config_groups/group_0/weights/actorder", "group", "actorder"},
           {"/quantization_config/config_groups/group_0/input_activations", Json{{"num_bits", 8}},
            "input_activations"}}) {
    Damaged damaged;
    damaged.model().config[Json::json_pointer(one.pointer)] = one.value;
    EXPECT_TRUE(says(damaged.error(), ErrorKind::unsupported, one.names)) << one.pointer;
  }
}

}  // namespace
}  // namespace tutti::checkpoint
