#include "tutti/endpoint/model.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/gguf/convert.h"
#include "tutti/checkpoint/testing/hf_fixture.h"
#include "tutti/endpoint/testing/served_model.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/step/initial_weights.h"
#include "tutti/train/tasks/interchange.h"

namespace tutti::endpoint {
namespace {

using checkpoint::error_of;
using checkpoint::FakeHfModel;
using checkpoint::says;

Json llama_json() {
  Json config = checkpoint::llama_json();
  config["rope_scaling"]["original_max_position_embeddings"] = 8192;  // as GGUF finds it
  config["eos_token_id"] = {3, 11};
  return config;
}

constexpr const char* kTokenizer =
    R"({"version": "1.0", "added_tokens": [{"id": 3, "content": "</s>", "special": true}],
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

// Every parameter that is not packed, as f32.
std::vector<float> values_of(const LoadedModel& model) {
  std::vector<float> out;
  const model::Parameters parameters = model.weights->parameters();
  for (const spec::PlacedParam& placed : model.weights->layout().params) {
    const engine::Matrix x = parameters.weight(placed.name);
    if (!x) continue;
    const int64_t columns = placed.param.shape.size() < 2 ? 1 : placed.param.shape.back();
    for (int64_t r = 0; r < placed.param.count() / columns; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        out.push_back(x.dtype == DType::f32 ? x.row<float>(r)[c] : to_f32(x.row<bf16>(r)[c]));
      }
    }
  }
  return out;
}

// A folder of transformers, the run that is its import, and its GGUF file are one model.
TEST(LoadModel, EveryFormIsTheSameModel) {
  for (const Json& config : {llama_json(), checkpoint::gpt2_json()}) {
    MemoryFileSystem files;
    const FakeHfModel fake(config);
    fake.write(files, "hf", 2);
    const auto folder = load_model(files, "hf/", WeightType::as_stored, 1);
    EXPECT_EQ(folder->name, "hf");
    EXPECT_EQ(folder->weights->compute(), DType::f32);
    const std::vector<float> values = values_of(*folder);
    int64_t count = 0;
    for (const auto& placed : folder->weights->layout().params) count += placed.param.count();
    EXPECT_EQ(static_cast<int64_t>(values.size()), count);

    train::import_run(files, "hf", "run", {});
    const auto run = load_model(files, "run", WeightType::as_stored, 1);
    EXPECT_EQ(run->context(), folder->context());
    EXPECT_EQ(values_of(*run), values);
    const auto step = load_model(files, "run/checkpoints/step-00000000", WeightType::f32, 1);
    EXPECT_EQ(values_of(*step), values);

    checkpoint::GgufOptions gguf;
    gguf.type = checkpoint::GgufType::f32;
    checkpoint::write_gguf_of(files, "hf", "m.gguf", gguf);
    const auto file = load_model(files, "m.gguf", WeightType::f32, 1);
    EXPECT_EQ(file->name, "m");
    EXPECT_EQ(values_of(*file), values);
    EXPECT_FALSE(files.exists("m.gguf.serving"));
    EXPECT_EQ(load_model(files, "m.gguf", WeightType::as_stored, 1)->weights->compute(),
              DType::bf16);

    // And says the same.
    std::vector<std::vector<int32_t>> answers;
    for (const LoadedModel* one : {folder.get(), run.get(), file.get()}) {
      Engine engine(*one, {.threads = 1});
      answers.push_back(testing::run_all(engine, {testing::request({1, 2, 3}, 8)}).front()->tokens);
    }
    EXPECT_EQ(answers[1], answers[0]);
    EXPECT_EQ(answers[2], answers[0]);
  }
}

TEST(LoadModel, PacksWhatProductsRead) {
  MemoryFileSystem files;
  Json config = checkpoint::mixtral_json();
  config["hidden_size"] = 128;
  config["num_attention_heads"] = 4;
  config["intermediate_size"] = 256;
  const FakeHfModel fake(config, DType::bf16);
  fake.write(files, "hf");
  const auto plain = load_model(files, "hf", WeightType::as_stored, 1);
  const auto int8 = load_model(files, "hf", WeightType::int8, 1);
  const auto int4 = load_model(files, "hf", WeightType::int4, 1);
  EXPECT_EQ(plain->weights->compute(), DType::bf16);
  EXPECT_FALSE(plain->weights->pack().has_value());
  EXPECT_LT(int8->resident_bytes(), plain->resident_bytes());
  EXPECT_LT(int4->resident_bytes(), int8->resident_bytes());
  const model::Parameters parameters = int4->weights->parameters();
  EXPECT_EQ(parameters.packed("head.weight").kind, PackKind::int8);
  EXPECT_EQ(parameters.packed("blocks.0.moe.experts.down.weight").kind, PackKind::int4);
  EXPECT_FALSE(bool(parameters.packed("embedding.token.weight")));
  EXPECT_FALSE(bool(parameters.packed("blocks.0.moe.router.weight")));
  EXPECT_FALSE(bool(parameters.packed("final_norm.weight")));
  // Row r of expert e is what pack_row makes of it.
  const model::Parameters whole = plain->weights->parameters();
  const engine::Matrix down = whole.weight("blocks.1.moe.experts.down.weight");
  const engine::PackedMatrix first = parameters.packed("blocks.1.moe.experts.down.weight");
  const PackedLayout layout = first.layout();
  for (int64_t e = 0; e < 3; ++e) {
    const engine::PackedMatrix one = model::packed_expert(first, e);
    const auto* codes = static_cast<const uint8_t*>(one.data);
    for (int64_t r = 0; r < first.rows; ++r) {
      std::vector<float> values;
      for (int64_t c = 0; c < first.columns; ++c) {
        values.push_back(to_f32(down.row<bf16>(e * first.rows + r)[c]));
      }
      std::vector<uint8_t> expected(static_cast<size_t>(layout.row_bytes));
      std::vector<bf16> scales(static_cast<size_t>(layout.groups));
      pack_row(PackKind::int4, values.data(), first.columns, expected.data(), scales.data());
      EXPECT_EQ(std::memcmp(codes + r * layout.row_bytes, expected.data(), expected.size()), 0);
      EXPECT_EQ(std::memcmp(codes + layout.scales_offset +
                                r * layout.groups * static_cast<int64_t>(sizeof(bf16)),
                            scales.data(), scales.size() * sizeof(bf16)),
                0);
    }
  }
}

// All bytes that products and lookups read.
std::string bytes_of(const LoadedModel& model) {
  std::string out;
  const model::Parameters parameters = model.weights->parameters();
  for (const spec::PlacedParam& placed : model.weights->layout().params) {
    const engine::PackedMatrix first = parameters.packed(placed.name);
    out += placed.name;
    if (!first) {
      const engine::Matrix x = parameters.weight(placed.name);
      EXPECT_EQ(x.dtype, DType::bf16);
      out.append(static_cast<const char*>(x.data), static_cast<size_t>(placed.param.count() * 2));
      continue;
    }
    for (int64_t e = 0; e < placed.param.count() / first.columns / first.rows; ++e) {
      const engine::PackedMatrix one = model::packed_expert(first, e);
      out.append(static_cast<const char*>(one.data), static_cast<size_t>(one.layout().bytes));
    }
  }
  return out;
}

Json packable_json(const std::string& type) {
  Json config = type == "gpt2"      ? checkpoint::gpt2_json()
                : type == "mixtral" ? checkpoint::mixtral_json()
                                    : checkpoint::llama_json();
  if (type == "gpt2") {
    config["n_embd"] = 96;
    return config;
  }
  config["hidden_size"] = 96;  // three groups: of int4 a block that is not full
  config["intermediate_size"] = 160;
  config["tie_word_embeddings"] = type == "tied";
  if (type != "glm4") return config;
  // Heads whose pairs are neighbours in files: rows are reordered.
  config["model_type"] = "glm4";
  config["architectures"] = {"Glm4ForCausalLM"};
  config["head_dim"] = 16;
  config["partial_rotary_factor"] = 0.5;
  config.erase("rope_scaling");
  config.erase("mlp_bias");
  return config;
}

TEST(LoadModel, AQuantizedExportIsTheModelQuantizedWhenRead) {
  for (const char* type : {"llama", "tied", "gpt2", "mixtral", "glm4"}) {
    MemoryFileSystem files;
    FakeHfModel(packable_json(type)).write(files, "hf");
    train::import_run(files, "hf", "run", {});
    for (const PackKind kind : {PackKind::int8, PackKind::int4}) {
      const std::string folder = std::string("out-") + pack_name(kind);
      train::ExportOptions options;
      options.pack = kind;
      options.tokenizer = "";
      train::export_run(files, "run", folder, options);
      const WeightType type_of = kind == PackKind::int8 ? WeightType::int8 : WeightType::int4;
      const auto expected = load_model(files, "run", type_of, 1);
      const auto packed = load_model(files, folder, WeightType::as_stored, 1);
      EXPECT_EQ(packed->weights->pack(), kind);
      EXPECT_EQ(packed->resident_bytes(), expected->resident_bytes());
      EXPECT_TRUE(bytes_of(*packed) == bytes_of(*expected)) << type << " " << pack_name(kind);
      EXPECT_TRUE(bytes_of(*load_model(files, folder, type_of, 1)) == bytes_of(*expected));
      Engine one(*expected, {.threads = 1});
      Engine other(*packed, {.threads = 1});
      const auto request = testing::request({1, 2, 3}, 8);
      const auto wanted = testing::run_all(one, {request});
      const auto got = testing::run_all(other, {request});
      EXPECT_EQ(got.front()->tokens, wanted.front()->tokens);
      EXPECT_EQ(got.front()->logprobs, wanted.front()->logprobs);

      const Error again = error_of([&] { load_model(files, folder, WeightType::bf16, 1); });
      EXPECT_TRUE(says(again, ErrorKind::usage, "quantized to " + std::string(pack_name(kind))));
    }
  }
}

TEST(LoadModel, AQuantizedExportIsForServingOnly) {
  MemoryFileSystem files;
  FakeHfModel(packable_json("llama")).write(files, "hf");
  train::import_run(files, "hf", "run", {});
  train::ExportOptions options;
  options.pack = PackKind::int4;
  options.tokenizer = "";
  train::export_run(files, "run", "out", options);
  const auto refuses = [&](const Error& error, const char* what) {
    return says(error, ErrorKind::unsupported, what) &&
           says(error, ErrorKind::unsupported, "quantized");
  };
  EXPECT_TRUE(refuses(error_of([&] { train::import_run(files, "out", "again", {}); }), "imported"));
  EXPECT_TRUE(refuses(error_of([&] { train::export_run(files, "out", "again", {}); }), "'out'"));
  EXPECT_TRUE(refuses(error_of([&] { train::load_recipe(files, "out"); }), "is not a run folder"));
  EXPECT_TRUE(
      refuses(error_of([&] { train::find_weights(files, "out", "checkpoint.initialize_from"); }),
              "checkpoint.initialize_from"));
  EXPECT_FALSE(files.exists("again"));
}

TEST(LoadModel, ReadsWhatGoesWithAModel) {
  MemoryFileSystem files;
  FakeHfModel(llama_json()).write(files, "hf");
  const auto bare = load_model(files, "hf", WeightType::as_stored, 1);
  EXPECT_EQ(bare->tokenizer, nullptr);
  EXPECT_EQ(bare->chat_template, nullptr);
  EXPECT_FALSE(bare->notes.empty());
  EXPECT_EQ(bare->stop_tokens, (std::vector<int32_t>{3, 11}));  // of config.json
  FakeHfModel::put(files, "hf/tokenizer.json", kTokenizer);
  FakeHfModel::put(files, "hf/tokenizer_config.json", R"({"chat_template": "x"})");
  FakeHfModel::put(files, "hf/generation_config.json", R"({"eos_token_id": [3, 1]})");
  const auto whole = load_model(files, "hf", WeightType::as_stored, 1);
  ASSERT_NE(whole->tokenizer, nullptr) << fmt::format("{}", fmt::join(whole->notes, "; "));
  EXPECT_NE(whole->chat_template, nullptr);
  EXPECT_EQ(whole->stop_tokens, (std::vector<int32_t>{1, 3}));
  train::import_run(files, "hf", "run", {});
  const auto run = load_model(files, "run", WeightType::as_stored, 1);
  EXPECT_NE(run->tokenizer, nullptr);
  EXPECT_NE(run->chat_template, nullptr);
  EXPECT_EQ(run->stop_tokens, whole->stop_tokens);
}

TEST(LoadModel, NamesWhatIsNoModel) {
  MemoryFileSystem files;
  const auto load = [&](const char* path) {
    return [&files, path] { load_model(files, path, WeightType::as_stored, 1); };
  };
  EXPECT_TRUE(says(error_of(load("nowhere")), ErrorKind::not_found, "'nowhere'"));
  FakeHfModel::put(files, "text", "not a model");
  EXPECT_TRUE(says(error_of(load("text")), ErrorKind::usage, "no GGUF file"));
  files.create_directories("empty");
  EXPECT_TRUE(says(error_of(load("empty")), ErrorKind::not_found, "recipe.yaml"));
  EXPECT_TRUE(says(error_of([] { parse_weight_type("int2"); }), ErrorKind::usage, "int4"));
  for (const std::string& name : weight_type_names()) {
    EXPECT_EQ(weight_type_names()[static_cast<size_t>(parse_weight_type(name))], name);
  }
}

}  // namespace
}  // namespace tutti::endpoint
