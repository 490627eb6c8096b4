#include "tutti/checkpoint/gguf/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tutti/base/error.h"
#include "tutti/base/rng.h"
#include "tutti/checkpoint/gguf/config.h"
#include "tutti/checkpoint/gguf/file.h"
#include "tutti/checkpoint/huggingface/import.h"
#include "tutti/checkpoint/testing/hf_fixture.h"

namespace tutti::checkpoint {
namespace {

Json family_json(const char* type, const char* architecture) {
  Json config = llama_json();
  config["model_type"] = type;
  config["architectures"] = {architecture};
  config.erase("rope_scaling");
  config.erase("attention_bias");
  config["head_dim"] = 8;
  if (std::string(type).starts_with("gemma")) {
    config.erase("hidden_act");
    config["hidden_activation"] = "gelu_pytorch_tanh";
    config["query_pre_attn_scalar"] = 8;
    config["sliding_window"] = 16;
    config["tie_word_embeddings"] = true;
  }
  if (std::string(type) == "gemma2") {
    config["attn_logit_softcapping"] = 50.0;
    config["final_logit_softcapping"] = 30.0;
  }
  return config;
}

std::vector<Json> families() {
  return {llama_json(),
          gpt2_json(),
          family_json("mistral", "MistralForCausalLM"),
          family_json("qwen2", "Qwen2ForCausalLM"),
          family_json("qwen3", "Qwen3ForCausalLM"),
          family_json("gemma2", "Gemma2ForCausalLM"),
          family_json("gemma3_text", "Gemma3ForCausalLM")};
}

FakeHfModel fake(Json config) {
  // With three frequencies several original contexts have the same factors; the largest is found.
  if (config["model_type"] == "llama") {
    config["rope_scaling"]["original_max_position_embeddings"] = 8192;
  }
  if (config["model_type"] == "mistral") config["sliding_window"] = nullptr;
  return FakeHfModel(config);
}

struct Converted {
  MemoryFileSystem files;
  GgufWritten written;
  std::vector<std::string> notes;
  std::optional<HfFolder> from, back;

  Converted(const FakeHfModel& model, GgufType type) {
    model.write(files, "m", 1);
    GgufOptions options;
    options.type = type;
    options.name = "small";
    written = write_gguf_of(files, "m", "m.gguf", options);
    files.create_directories("b");
    notes = write_folder_of(files, "m.gguf", "b");
    from.emplace(files, "m");
    back.emplace(files, "b");
  }
  std::vector<float> floats(const HfFolder& folder, const std::string& name) const {
    const std::string_view bytes = folder.bytes(name);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

// The round trip through the file restores the model and its numbers.
TEST(GgufConvert, EveryArchitectureSurvivesTheRoundTrip) {
  for (const Json& config : families()) {
    SCOPED_TRACE(config["model_type"].get<std::string>());
    const FakeHfModel model = fake(config);
    const Converted done(model, GgufType::f32);
    const HfModel before = read_hf_config(done.from->config(), "m");
    const HfModel after = read_hf_config(done.back->config(), "b");
    EXPECT_NO_THROW(locate_parameters(*done.back, after));
    spec::ModelConfig expected = before.model;
    expected.init_std = after.model.init_std;
    expected.dropout = after.model.dropout;
    EXPECT_EQ(after.model, expected);
    EXPECT_EQ(done.back->tensor_names(), done.from->tensor_names());
    for (const std::string& name : done.from->tensor_names()) {
      const auto a = done.floats(*done.from, name);
      const auto b = done.floats(*done.back, name);
      ASSERT_EQ(a.size(), b.size());
      // Gemma's norms are 1 + w in the file.
      for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-7) << name;
    }
  }
}

TEST(GgufConvert, TensorsHaveTheFormOfLlamaCpp) {
  FakeHfModel model(llama_json());
  const Converted done(model, GgufType::bf16);
  const GgufFile file(const_cast<MemoryFileSystem&>(done.files), "m.gguf");
  EXPECT_EQ(*file.find("llama.attention.head_count_kv"), 2);
  EXPECT_EQ(*file.find("llama.rope.dimension_count"), 6);
  EXPECT_EQ(*file.find("general.file_type"), 32);
  EXPECT_EQ(*file.find("tokenizer.ggml.model"), "no_vocab");
  EXPECT_EQ(file.tensor("blk.0.attn_norm.weight")->type, GgufType::f32);
  EXPECT_EQ(file.tensor("rope_freqs.weight")->shape, std::vector<int64_t>{3});
  const GgufTensor* q = file.tensor("blk.1.attn_q.weight");
  EXPECT_EQ(q->type, GgufType::bf16);
  EXPECT_EQ(q->shape, (std::vector<int64_t>{36, 36}));
  // Row 1 of a head in the file is row 3 in transformers: heads of 6 have pairs (0, 3), (1, 4), (2,
  // 5).
  const auto theirs = done.floats(*done.from, "model.layers.1.self_attn.q_proj.weight");
  std::vector<float> row(36);
  decode_gguf(q->type, file.bytes(*q).data() + 2 * 36 * 7, 36, row.data(), "row 1 of head 1");
  for (size_t c = 0; c < 36; ++c) EXPECT_NEAR(row[c], theirs[(6 + 3) * 36 + c], 0.01);
}

TEST(GgufConvert, BlocksApproximateTheWeights) {
  Json config = llama_json();
  config["hidden_size"] = 64;
  config["head_dim"] = 8;
  for (const auto& [type, bound] :
       {std::pair(GgufType::q8_0, 0.01), std::pair(GgufType::q4_0, 0.2)}) {
    const FakeHfModel model(config);
    const Converted done(model, type);
    EXPECT_GT(done.written.plain_tensors, 0);  // with rows of 50 and 48
    for (const std::string& name : {std::string("model.embed_tokens.weight"),
                                    std::string("model.layers.0.mlp.up_proj.weight")}) {
      const auto a = done.floats(*done.from, name);
      const auto b = done.floats(*done.back, name);
      double error = 0;
      double norm = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        error += (a[i] - b[i]) * (a[i] - b[i]);
        norm += a[i] * a[i];
      }
      EXPECT_LT(std::sqrt(error / norm), bound);
      EXPECT_GT(error, 0);
    }
  }
}

std::string refusal_of(const Json& config) {
  try {
    const FakeHfModel model(config);
    const Converted done(model, GgufType::f32);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    return error.what();
  }
}

TEST(GgufConvert, SettingsThatLlamaCppLacksAreRefused) {
  EXPECT_NE(refusal_of(mixtral_json()).find("'model_type' is \"mixtral\""), std::string::npos);
  Json config = family_json("mistral", "MistralForCausalLM");
  EXPECT_NE((config["sliding_window"] = 16, refusal_of(config)).find("'sliding_window' is 16"),
            std::string::npos);
  config = family_json("gemma2", "Gemma2ForCausalLM");
  config["query_pre_attn_scalar"] = 9;
  EXPECT_NE(refusal_of(config).find("'query_pre_attn_scalar' is 9"), std::string::npos);
}

// A tokenizer is stored in the file: byte-level BPE.
TEST(GgufConvert, TokenizersSurviveTheRoundTrip) {
  FakeHfModel model(llama_json());
  MemoryFileSystem files;
  model.write(files, "m", 1);
  const Json tokenizer = {{"added_tokens",
                           {{{"id", 4}, {"content", "<|end|>"}, {"special", true}},
                            {{"id", 5}, {"content", "<t>"}, {"special", false}}}},
                          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                          {"decoder", {{"type", "ByteLevel"}}},
                          {"model",
                           {{"type", "BPE"},
                            {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}, {"Ġ", 3}}},
                            {"merges", {"a b"}}}}};
  const auto put = [&](const char* path, const Json& value) {
    write_file_atomic(files, path, value.dump());
  };
  put("m/tokenizer.json", tokenizer);
  put("m/tokenizer_config.json", {{"eos_token", "<|end|>"}, {"chat_template", "{{ messages }}"}});
  write_gguf_of(files, "m", "m.gguf", {});
  const GgufFile file(files, "m.gguf");
  EXPECT_EQ(*file.find("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_EQ((*file.find("tokenizer.ggml.tokens"))[2], "ab");
  EXPECT_EQ((*file.find("tokenizer.ggml.tokens")).size(), 37U);
  EXPECT_EQ((*file.find("tokenizer.ggml.token_type")), Json::parse("[1,1,1,1,3,4" + [] {
              std::string rest;
              for (int i = 6; i < 37; ++i) rest += ",5";
              return rest;
            }() + "]"));
  EXPECT_EQ(*file.find("tokenizer.ggml.eos_token_id"), 4);
  EXPECT_EQ(*file.find("tokenizer.chat_template"), "{{ messages }}");
  files.create_directories("b");
  EXPECT_TRUE(write_folder_of(files, "m.gguf", "b").empty());
  const Json back = parse_json(read_file(files, "b/tokenizer.json"), "b");
  EXPECT_EQ(back["model"]["vocab"], tokenizer["model"]["vocab"]);
  EXPECT_EQ(back["model"]["merges"], tokenizer["model"]["merges"]);
  EXPECT_EQ(back["added_tokens"].size(), 2U);
  EXPECT_EQ(parse_json(read_file(files, "b/tokenizer_config.json"), "b")["eos_token"], "<|end|>");
  EXPECT_EQ(parse_json(read_file(files, "b/config.json"), "b")["eos_token_id"], 4);
}

// Any bytes of a file result in a model or in an error that states what is wrong.
TEST(GgufConvert, DamagedFilesAreRefused) {
  const FakeHfModel model(llama_json());
  MemoryFileSystem files;
  model.write(files, "m", 1);
  write_gguf_of(files, "m", "m.gguf", {});
  const std::string good = read_file(files, "m.gguf");
  const uint64_t key = stream_key(9, "gguf model");
  files.create_directories("b");
  int refused = 0;
  for (uint64_t round = 0; round < 1500; ++round) {
    std::string bytes = good;
    const uint64_t draw = random_u64(key, round);
    // Metadata and names of tensors are at the start.
    bytes[draw % 4000] = static_cast<char>(draw >> 32U);
    if (round % 10 == 0) bytes.resize(draw % bytes.size());
    const auto out = files.create("d.gguf");
    out->append(bytes.data(), bytes.size());
    out->close();
    try {
      write_folder_of(files, "d.gguf", "b");
    } catch (const Error& error) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace tutti::checkpoint
