#include "tutti/checkpoint/huggingface/folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "tutti/checkpoint/huggingface/import.h"
#include "tutti/checkpoint/testing/hf_fixture.h"

namespace tutti::checkpoint {
namespace {

const std::string kQuery = "model.layers.0.self_attn.q_proj.weight";

void locate(FileSystem& files, const std::string& path) {
  const HfFolder folder(files, path);
  locate_parameters(folder, read_hf_config(folder.config(), folder.config_path()));
}

// The error for a llama with changed description or files; `files` are in "m".
Error error_after(const std::function<void(FakeHfModel&)>& change_model,
                  const std::function<void(MemoryFileSystem&)>& change_files, size_t shards = 1) {
  FakeHfModel model(llama_json());
  if (change_model) change_model(model);
  MemoryFileSystem files;
  model.write(files, "m", shards);
  if (change_files) change_files(files);
  return error_of([&] { locate(files, "m"); });
}

Error error_of_model(const std::function<void(FakeHfModel&)>& change) {
  return error_after(change, {});
}

// For a file in which `from` was replaced by `to`, of the same length in safetensors headers.
Error error_of_text(const std::string& name, const std::string& from, const std::string& to,
                    size_t shards = 1) {
  return error_after(
      {},
      [&](MemoryFileSystem& files) {
        std::string text = read_file(files, join_path("m", name));
        const size_t at = text.find(from);
        ASSERT_NE(at, std::string::npos) << from;
        text.replace(at, from.size(), to);
        FakeHfModel::put(files, join_path("m", name), text);
      },
      shards);
}

Error error_of_file(const std::string& name, const std::string& text, size_t shards = 1) {
  return error_after(
      {}, [&](MemoryFileSystem& files) { FakeHfModel::put(files, join_path("m", name), text); },
      shards);
}

TEST(HfFolder, FindsAllValidFolders) {
  for (const Json& config : {llama_json(), gpt2_json(), mixtral_json()}) {
    for (const size_t shards : {1, 3}) {
      MemoryFileSystem files;
      const FakeHfModel model(config);
      model.write(files, "m", shards);
      const HfFolder folder(files, "m/");
      EXPECT_EQ(folder.tensor_count(), static_cast<int64_t>(model.tensors.size()));
      EXPECT_TRUE(folder.notes().empty());
      EXPECT_NO_THROW(locate(files, "m"));
    }
  }
}

TEST(HfFolder, DamagedSafetensors) {
  const auto corrupt = [](const Error& error, const std::string& part) {
    return says(error, ErrorKind::corrupt, part);
  };
  const std::string file = kHfSingle;
  EXPECT_TRUE(corrupt(error_of_file(file, ""), "m/model.safetensors: 0 bytes are too few"));
  EXPECT_TRUE(
      corrupt(error_of_file(file, std::string(8, '\xff') + "{}"), "a header of 1844674407"));
  EXPECT_TRUE(corrupt(error_of_file(file, std::string("\x90\0\0\0\0\0\0\0", 8) + "{}"),
                      "does not fit into the file"));
  EXPECT_TRUE(
      corrupt(error_of_file(file, std::string("\4\0\0\0\0\0\0\0", 8) + "{]  "), "not valid JSON"));
  EXPECT_TRUE(says(error_of_text(file, "\"F32\"", "\"F99\""), ErrorKind::unsupported,
                   "has element type 'F99'; Tutti reads F32, BF16"));
  EXPECT_TRUE(corrupt(error_of_text(file, "[37, 36]", "[-7, 36]"), "only integers from 0 on"));
  EXPECT_TRUE(
      corrupt(error_of_text(file, "[37, 36]", "[38, 36]"), "needs 5472 bytes but has 5328"));
  EXPECT_TRUE(corrupt(error_of_text(file, "\"data_offsets\":[0,", "\"data_offsets\":[4,"),
                      "needs 5328 bytes but has 5324"));
  EXPECT_TRUE(corrupt(error_of_text(file, "\"shape\"", "\"shap_\""), "unknown key 'shap_'"));
  EXPECT_TRUE(corrupt(error_of_text(file, "self_attn.k_proj", "self_attn.q_proj"),
                      "the header has 'model.layers.0.self_attn.q_proj.weight' twice"));
  // Truncated, and with excess bytes.
  EXPECT_TRUE(corrupt(error_after({}, [](auto& files) { files.cut("m/model.safetensors", 9000); }),
                      "but the file has only"));
  EXPECT_TRUE(corrupt(error_after({},
                                  [](MemoryFileSystem& files) {
                                    files.open_append("m/model.safetensors")->append("abc", 3);
                                  }),
                      "3 bytes after the last tensor"));
}

std::string with_header(const std::string& header, size_t data_bytes) {
  std::string text;
  for (size_t i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> (8 * i) & 0xffU);
  return text + header + std::string(data_bytes, '\0');
}

TEST(HfFolder, RangesAndSizes) {
  const auto corrupt = [](const std::string& header, size_t data_bytes, const std::string& part) {
    return says(error_of_file(kHfSingle, with_header(header, data_bytes)), ErrorKind::corrupt,
                part);
  };
  const std::string a = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)";
  EXPECT_TRUE(corrupt(a + R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12,
                      "tensor 'b' begins at byte 4 of the data, inside the one before it"));
  EXPECT_TRUE(corrupt(a + R"("b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})", 20,
                      "tensor 'b' begins at byte 12 of the data, leaving a gap"));
  EXPECT_TRUE(corrupt(a + R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})", 12,
                      "tensor 'b' ends at byte 16 of the data, but the file has only 12"));
  EXPECT_TRUE(
      corrupt(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
              "needs more than 2^63 bytes"));
  EXPECT_TRUE(
      corrupt(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4,
              "only integers from 0 on"));
}

TEST(HfFolder, TensorsThatDoNotFitTheModel) {
  const auto unfit = [](const Error& error, const std::string& part) {
    return says(error, ErrorKind::usage, part);
  };
  EXPECT_TRUE(unfit(error_of_model([](auto& m) { m.remove(kQuery); }),
                    "m: tensor '" + kQuery + "' is missing, but m/config.json needs it"));
  EXPECT_TRUE(unfit(error_of_model([](auto& m) {
                      m.add("score.weight", DType::f32, {2, 36});
                    }),
                    "m/model.safetensors: tensor 'score.weight' is not part of the model"));
  EXPECT_TRUE(unfit(error_of_model([](auto& m) { m.config["vocab_size"] = 40; }),
                    "'model.embed_tokens.weight' has shape [37, 36]; by m/config.json it should "
                    "be [40, 36]"));
  EXPECT_TRUE(unfit(error_of_model([](auto& m) { m.config["num_hidden_layers"] = 3; }),
                    "tensor 'model.layers.2.input_layernorm.weight' is missing"));
  EXPECT_TRUE(unfit(error_of_model([](auto& m) { m.config["num_hidden_layers"] = 1; }),
                    "tensor 'model.layers.1."));
  EXPECT_TRUE(unfit(error_of_model([](auto& m) { m.config["num_hidden_layers"] = 1e9; }),
                    "a whole number"));
  EXPECT_TRUE(unfit(error_of_model([](auto& m) { m.config["num_hidden_layers"] = 1000000; }),
                    "1000000 layers cannot be stored in the 21 tensors"));
  EXPECT_TRUE(unfit(error_of_model([](auto& m) { m.config["num_hidden_layers"] = 1000000000; }),
                    "model.layers: 1000000000 is out of range"));
  EXPECT_TRUE(says(error_of_model([](auto& m) {
                     m.remove(kQuery);
                     m.add(kQuery, DType::i32, {36, 36});
                   }),
                   ErrorKind::unsupported, "is i32; parameters may be F32, BF16 or F16"));
  // A head that repeats tied embeddings is accepted if it is equal to them.
  EXPECT_TRUE(unfit(error_of_model([](auto& m) { m.config["tie_word_embeddings"] = true; }),
                    "'lm_head.weight' differs from 'model.embed_tokens.weight'"));
}

TEST(HfFolder, RepeatedTiedHeadAndBuffersAreAccepted) {
  FakeHfModel model(llama_json());
  model.config["tie_word_embeddings"] = true;
  model.bytes_of["lm_head.weight"] = model.bytes_of["model.embed_tokens.weight"];
  model.add("model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {3});
  MemoryFileSystem files;
  model.write(files, "m");
  EXPECT_NO_THROW(locate(files, "m"));
}

TEST(HfFolder, NamesWithoutThePrefixOfLanguageModels) {
  FakeHfModel model(gpt2_json());
  for (SafetensorsTensor& tensor : model.tensors) {
    const std::string bare = tensor.name.substr(std::string("transformer.").size());
    model.bytes_of[bare] = model.bytes_of[tensor.name];
    tensor.name = bare;
  }
  model.add("h.0.attn.bias", DType::f32, {1, 1, 24, 24});
  MemoryFileSystem files;
  model.write(files, "m");
  EXPECT_NO_THROW(locate(files, "m"));
}

TEST(HfFolder, InvalidIndexes) {
  const auto corrupt = [](const Error& error, const std::string& part) {
    return says(error, ErrorKind::corrupt, part);
  };
  const std::string second = "model-00002-of-00003.safetensors";
  EXPECT_TRUE(says(error_after(
                       {}, [&](auto& files) { files.remove_file("m/" + second); }, 3),
                   ErrorKind::not_found, "'m/" + second + "' is missing, but m/" + kHfIndex));
  EXPECT_TRUE(corrupt(error_after(
                          {}, [&](auto& files) { files.cut("m/" + second, 2000); }, 3),
                      "m/" + second));
  EXPECT_TRUE(corrupt(error_of_file(kHfIndex, "{", 3), "not valid JSON"));
  EXPECT_TRUE(corrupt(error_of_file(kHfIndex, "[]", 3), "array instead of a JSON object"));
  EXPECT_TRUE(corrupt(error_of_file(kHfIndex, "{}", 3), "key 'weight_map' is missing"));
  EXPECT_TRUE(corrupt(error_of_file(kHfIndex, R"({"weight_map":{}})", 3), "'weight_map' is empty"));
  EXPECT_TRUE(
      corrupt(error_of_file(kHfIndex, R"({"weight_map":{"a":1}})", 3), "file of tensor 'a'"));
  EXPECT_TRUE(corrupt(error_of_file(kHfIndex, std::string(100000, '['), 3), "nested deeper"));
  for (const char* name : {"../../etc/passwd", "/etc/passwd", "..", "a\\\\b", ""}) {
    EXPECT_TRUE(says(error_of_text(kHfIndex, second, name, 3), ErrorKind::usage,
                     "is not a plain file name inside the folder"))
        << name;
  }
  EXPECT_TRUE(
      corrupt(error_of_text(kHfIndex, "self_attn.q_proj", "self_attn.x_proj", 3), "does not name"));
  // A tensor that the index assigns to another shard than the one that has it.
  EXPECT_TRUE(corrupt(error_of_text(kHfIndex, second, "model-00001-of-00003.safetensors", 3),
                      "the index has tensor"));
}

TEST(HfFolder, TensorInTwoShards) {
  FakeHfModel model(llama_json());
  MemoryFileSystem files;
  model.write(files, "m", 3);
  std::vector<SafetensorsTensor> here = {model.tensors[0]};
  for (size_t i = 1; i < model.tensors.size(); i += 3) here.push_back(model.tensors[i]);
  FakeHfModel::put(files, "m/model-00002-of-00003.safetensors", model.file(here));
  EXPECT_TRUE(says(error_of([&] { locate(files, "m"); }), ErrorKind::corrupt,
                   "tensor 'model.embed_tokens.weight' is in m/model-00001-of-00003"));
}

TEST(HfFolder, WrongTotalSizeIsANote) {
  MemoryFileSystem files;
  FakeHfModel(llama_json()).write(files, "m", 2);
  std::string index = read_file(files, join_path("m", kHfIndex));
  index.replace(index.find("\"total_size\": ") + 14, 1, "9");
  FakeHfModel::put(files, join_path("m", kHfIndex), index);
  EXPECT_EQ(HfFolder(files, "m").notes().size(), 1U);
}

TEST(HfFolder, FoldersWithoutAModel) {
  MemoryFileSystem files;
  EXPECT_TRUE(
      says(error_of([&] { HfFolder(files, "x"); }), ErrorKind::not_found, "'x' is not a folder"));
  files.create_directories("m");
  EXPECT_TRUE(
      says(error_of([&] { HfFolder(files, "m"); }), ErrorKind::not_found, "has no config.json"));
  FakeHfModel::put(files, "m/config.json", "{}");
  EXPECT_TRUE(says(error_of([&] { HfFolder(files, "m"); }), ErrorKind::not_found,
                   "neither model.safetensors nor model.safetensors.index.json"));
  FakeHfModel::put(files, "m/pytorch_model.bin", "x");
  EXPECT_TRUE(says(error_of([&] { HfFolder(files, "m"); }), ErrorKind::unsupported,
                   "'pytorch_model.bin', a pickle"));
  FakeHfModel::put(files, "m/config.json", "{\"a\": ");
  EXPECT_TRUE(says(error_of([&] { HfFolder(files, "m"); }), ErrorKind::usage, "m/config.json"));
  FakeHfModel::put(files, "m/config.json", R"({"vocab_size": 37, "rope": {}, "vocab_size": 40})");
  EXPECT_TRUE(says(error_of([&] { HfFolder(files, "m"); }), ErrorKind::usage,
                   "m/config.json: the key 'vocab_size' is given twice"));
}

TEST(HfFolder, LinksMustStayInsideExceptForTheHubsCache) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / fmt::format("tutti_links_{}", ::getpid());
  fs::create_directories(root / "hub/snapshots/abc");
  fs::create_directories(root / "hub/blobs");
  fs::create_directories(root / "evil");
  FileSystem& files = posix_file_system();
  FakeHfModel model(llama_json());
  model.write(files, (root / "hub/blobs").string());
  for (const char* folder : {"hub/snapshots/abc", "evil"}) {
    for (const char* name : {kHfConfig, kHfSingle}) {
      fs::create_symlink(root / "hub/blobs" / name, root / folder / name);
    }
  }
  EXPECT_NO_THROW(locate(files, (root / "hub/snapshots/abc").string()));
  EXPECT_TRUE(says(error_of([&] { locate(files, (root / "evil").string()); }), ErrorKind::usage,
                   "is a link out of its folder"));
  // A model behind a link is inside its own folder.
  fs::create_symlink(root / "hub/blobs", root / "linked");
  EXPECT_NO_THROW(locate(files, (root / "linked").string()));
  fs::remove_all(root);
}

// Any bytes result in a model or an Error.
TEST(HfFolder, RandomDamageNeverCrashes) {
  FakeHfModel model(llama_json());
  MemoryFileSystem files;
  model.write(files, "m", 2);
  const std::vector<std::string> names = {"m/model-00001-of-00002.safetensors",
                                          join_path("m", kHfIndex), "m/config.json"};
  int refused = 0;
  for (uint64_t round = 0; round < 2000; ++round) {
    const uint64_t key = stream_key(round, "damage");
    const std::string& name = names[random_u64(key, 0) % names.size()];
    const std::string good = read_file(files, name);
    const size_t span = std::min<size_t>(good.size(), 2000);  // headers, not tensors
    std::string bad = good;
    const uint64_t changes = random_u64(key, 1) % 4;
    for (uint64_t i = 0; i <= changes; ++i) {
      bad[random_u64(key, 2 + 2 * i) % span] ^=
          static_cast<char>(1U << (random_u64(key, 3 + 2 * i) % 8));
    }
    if (random_u64(key, 100) % 4 == 0) bad.resize(random_u64(key, 101) % span);
    FakeHfModel::put(files, name, bad);
    try {
      locate(files, "m");
    } catch (const Error& error) {
      ++refused;
      EXPECT_NE(error.kind(), ErrorKind::io) << error.what();
    }
    FakeHfModel::put(files, name, good);
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace tutti::checkpoint
