#include "tutti/checkpoint/huggingface/import.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tutti/checkpoint/huggingface/export.h"
#include "tutti/checkpoint/store/elements.h"
#include "tutti/checkpoint/testing/hf_fixture.h"

namespace tutti::checkpoint {
namespace {

struct Imports {
  explicit Imports(const FakeHfModel& model, const HfImportOptions& options = {},
                   size_t shards = 1) {
    model.write(files, "m", shards);
    folder.emplace(files, "m");
    hf = read_hf_config(folder->config(), folder->config_path());
    State state;
    state.model = {{"layers", hf.model.layers}};
    imported = import_parameters(files, *folder, hf, state, "run/checkpoints", options);
    reader.emplace(files, imported.written.path, serially);
  }

  std::vector<float> load(const std::string& name) {
    const TensorRecord& record = reader->tensor("param." + name);
    std::vector<float> values(static_cast<size_t>(checked_bytes(DType::u8, record.shape)));
    reader->load("param." + name, DType::f32, record.shape, values.data());
    return values;
  }

  MemoryFileSystem files;
  std::optional<HfFolder> folder;
  HfModel hf;
  HfImported imported;
  std::optional<Reader> reader;
};

std::vector<float> floats(const FakeHfModel& model, const std::string& name) {
  const std::string& bytes = model.bytes_of.at(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(HfImport, FusesRows) {
  const FakeHfModel model(llama_json());
  Imports run(model);
  EXPECT_EQ(run.imported.tensors, static_cast<int64_t>(model.tensors.size()));
  EXPECT_EQ(run.imported.dtype, DType::f32);
  const std::string layer = "model.layers.1.";
  std::vector<float> expected;
  for (const char* name : {"q", "k", "v"}) {
    const auto part = floats(model, layer + "self_attn." + name + "_proj.weight");
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_EQ(run.load("blocks.1.attention.qkv.weight"), expected);
}

TEST(HfImport, TransposesGpt2) {
  const FakeHfModel model(gpt2_json());
  Imports run(model);
  const auto ours = run.load("blocks.0.mlp.up.weight");  // [120, 30]
  const auto theirs = floats(model, "transformer.h.0.mlp.c_fc.weight");
  for (size_t out = 0; out < 120; ++out) {
    for (size_t in = 0; in < 30; ++in) ASSERT_EQ(ours[out * 30 + in], theirs[in * 120 + out]);
  }
}

TEST(HfImport, StacksExperts) {
  const FakeHfModel model(mixtral_json());
  Imports run(model);
  const auto ours = run.load("blocks.0.moe.experts.gate_up.weight");  // [3, 100, 36]
  const auto up = floats(model, "model.layers.0.block_sparse_moe.experts.2.w3.weight");
  EXPECT_TRUE(std::equal(up.begin(), up.end(), ours.begin() + (2 * 100 + 50) * 36));
}

// Compares every file of the exported folder with its original.
void expect_same_tensors(const FakeHfModel& model, FileSystem& files, const std::string& path) {
  const HfFolder back(files, path);
  EXPECT_EQ(back.tensor_count(), static_cast<int64_t>(model.tensors.size()));
  for (const SafetensorsTensor& tensor : model.tensors) {
    ASSERT_TRUE(back.contains(tensor.name)) << tensor.name;
    EXPECT_EQ(back.tensor(tensor.name).dtype, tensor.dtype) << tensor.name;
    EXPECT_EQ(back.tensor(tensor.name).shape, tensor.shape) << tensor.name;
    EXPECT_TRUE(back.bytes(tensor.name) == model.bytes_of.at(tensor.name)) << tensor.name;
  }
  const HfModel hf = read_hf_config(back.config(), back.config_path());
  Json original = model.config;
  if (hf.family == HfFamily::gpt2) original["attn_pdrop"] = 0.0;  // the only key that is dropped
  EXPECT_EQ(hf.model, read_hf_config(original, "config.json").model);
}

TEST(HfImport, ExportOfAnImportIsBitwiseEqual) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Json& config : {llama_json(), gpt2_json(), mixtral_json()}) {
      for (const RopeLayout layout : {RopeLayout::half, RopeLayout::interleaved}) {
        const FakeHfModel model(config, dtype);
        Imports run(model, {.rope_layout = layout}, dtype == DType::f16 ? 4 : 1);
        run.files.create_directories("out");
        const HfExported exported =
            export_parameters(run.files, *run.reader, run.hf.model, "out",
                              {.shard_bytes = dtype == DType::bf16 ? 9000 : kHfShardBytes,
                               .rope_layout = layout,
                               .original = model.config});
        EXPECT_EQ(exported.files.size() > 1, dtype == DType::bf16);
        EXPECT_EQ(exported.zero_tensors, 0);
        expect_same_tensors(model, run.files, "out");
      }
    }
  }
}

TEST(HfImport, MixedTypesAreKeptUnlessFused) {
  FakeHfModel model(llama_json(), DType::bf16);
  const std::string norm = "model.norm.weight";
  model.remove(norm);
  model.add(norm, DType::f32, {36});
  Imports run(model);
  EXPECT_EQ(run.reader->tensor("param.final_norm.weight").dtype, DType::f32);
  EXPECT_EQ(run.reader->tensor("param.head.weight").dtype, DType::bf16);
  run.files.create_directories("out");
  export_parameters(run.files, *run.reader, run.hf.model, "out", {});
  expect_same_tensors(model, run.files, "out");
}

TEST(HfImport, ConvertsOnRequest) {
  const FakeHfModel model(llama_json());
  Imports run(model, {.dtype = DType::bf16});
  EXPECT_EQ(run.imported.dtype, DType::bf16);
  const auto stored = run.load("head.weight");
  const auto given = floats(model, "lm_head.weight");
  for (size_t i = 0; i < given.size(); ++i) ASSERT_EQ(stored[i], to_f32(to_bf16(given[i])));
}

TEST(HfImport, InterleavedPairsAreReordered) {
  const FakeHfModel model(llama_json());
  Imports half(model);
  Imports interleaved(model, {.rope_layout = RopeLayout::interleaved});
  const auto a = half.load("blocks.0.attention.qkv.weight");
  const auto b = interleaved.load("blocks.0.attention.qkv.weight");
  for (size_t row = 0; row < 60; ++row) {
    const int64_t from = row < 48 ? source_row(RowOrder::interleaved_to_half, 6,
                                               static_cast<int64_t>(row))
                                  : static_cast<int64_t>(row);  // values are not turned
    for (size_t i = 0; i < 36; ++i) {
      ASSERT_EQ(b[row * 36 + i], a[static_cast<size_t>(from) * 36 + i]) << row;
    }
  }
  EXPECT_EQ(half.load("blocks.0.attention.output.weight"),
            interleaved.load("blocks.0.attention.output.weight"));
}

TEST(HfImport, RefusesNonFiniteNumbers) {
  FakeHfModel model(llama_json(), DType::bf16);
  std::string& bytes = model.bytes_of.at("model.layers.1.mlp.up_proj.weight");
  bytes[2 * 77] = '\xc0';
  bytes[2 * 77 + 1] = '\x7f';
  EXPECT_TRUE(says(error_of([&] { Imports run(model); }), ErrorKind::corrupt,
                   "m/model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight': element 77 is "
                   "not a finite number"));
}

TEST(HfImport, LeavesNothingBehindOnFailure) {
  const FakeHfModel model(llama_json());
  MemoryFileSystem files;
  model.write(files, "m");
  const HfFolder folder(files, "m");
  const HfModel hf = read_hf_config(folder.config(), folder.config_path());
  HfImportOptions options;
  int64_t last = 0;
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    last = done;
    if (2 * done > total) fail(ErrorKind::usage, "enough");
  };
  EXPECT_TRUE(says(error_of([&] { import_parameters(files, folder, hf, {}, "run", options); }),
                   ErrorKind::usage, "enough"));
  EXPECT_TRUE(list_checkpoints(files, "run").empty());
  EXPECT_GT(last, 0);
}

TEST(HfImport, ExportsZeroBiasesForGptWithoutThem) {
  HfModel hf = read_hf_config(gpt2_json(), "config.json");
  hf.model.linear_bias = hf.model.norm_bias = false;
  MemoryFileSystem files;
  std::vector<std::string> data;
  std::vector<TensorSource> tensors;
  for (const HfParameter& parameter : hf_parameters(hf.model, hf.family, "")) {
    if (parameter.name.empty()) continue;
    tensors.push_back({"param." + parameter.name, DType::f32, parameter.shape, nullptr, {}, {}});
    data.emplace_back(static_cast<size_t>(tensor_bytes(tensors.back())), '\x3c');
  }
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].data = data[i].data();
  Reader reader(files, write_checkpoint(files, "c", tensors, {}).path, serially);
  files.create_directories("out");
  const HfExported exported = export_parameters(files, reader, hf.model, "out", {});
  EXPECT_EQ(exported.zero_tensors, 2 * 6 + 1);
  const HfFolder back(files, "out");
  const std::string_view bias = back.bytes("transformer.h.0.attn.c_attn.bias");
  EXPECT_EQ(bias, std::string(90 * 4, '\0'));
  EXPECT_NO_THROW(locate_parameters(back, read_hf_config(back.config(), back.config_path())));
}

TEST(HfExport, WritesShardsAndTheirIndex) {
  const FakeHfModel model(llama_json());
  Imports run(model);
  run.files.create_directories("out");
  const HfExported exported =
      export_parameters(run.files, *run.reader, run.hf.model, "out", {.shard_bytes = 6000});
  const Json index = parse_json(read_file(run.files, join_path("out", kHfIndex)), "index");
  int64_t total = 0;
  for (const SafetensorsTensor& tensor : model.tensors) {
    total += static_cast<int64_t>(model.bytes_of.at(tensor.name).size());
  }
  EXPECT_EQ(index.at("metadata").at("total_size"), total);
  EXPECT_EQ(exported.tensor_bytes, total);
  EXPECT_EQ(index.at("weight_map").size(), model.tensors.size());
  EXPECT_EQ(exported.files.front(),
            fmt::format("model-00001-of-{:05}.safetensors", exported.files.size()));
  for (const std::string& name : exported.files) {
    const std::string bytes = read_file(run.files, join_path("out", name));
    const SafetensorsHeader header = parse_safetensors(bytes, name);
    const auto data = static_cast<int64_t>(bytes.size()) - header.data_begin;
    EXPECT_TRUE(data <= 6000 || header.tensors.size() == 1) << name;
  }
}

TEST(HfExport, RefusesACheckpointOfAnotherModel) {
  Imports run{FakeHfModel(llama_json())};
  spec::ModelConfig other = run.hf.model;
  other.ffn = 51;
  run.files.create_directories("out");
  EXPECT_TRUE(says(error_of([&] { export_parameters(run.files, *run.reader, other, "out", {}); }),
                   ErrorKind::usage, "the recipe's model needs shape [102, 36]"));
  other = run.hf.model;
  other.layers = 3;
  EXPECT_TRUE(says(error_of([&] { export_parameters(run.files, *run.reader, other, "out", {}); }),
                   ErrorKind::not_found, "no tensor 'param.blocks.2."));
}

}  // namespace
}  // namespace tutti::checkpoint
