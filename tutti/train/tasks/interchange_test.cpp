#include "tutti/train/tasks/interchange.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "tutti/base/testing/memory_file.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/testing/hf_fixture.h"
#include "tutti/data/tokenizers/byte_tokenizer.h"
#include "tutti/spec/model/params.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::train {
namespace {

using checkpoint::error_of;
using checkpoint::FakeHfModel;
using checkpoint::llama_json;
using checkpoint::says;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Three tokens of text, and <s>, which goes before a text.
constexpr const char* kTokenizer =
    R"({"version": "1.0", "added_tokens": [{"id": 3, "content": "<s>", "special": true}],
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}]},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

class Interchange : public ::testing::Test {
 protected:
  explicit Interchange() : model_(llama_json(), DType::bf16) {
    model_.write(files_, "hf", 2);
    FakeHfModel::put(files_, "hf/tokenizer.json", kTokenizer);
  }

  // Whole, or not there.
  static bool is_imported(FileSystem& files, const std::string& folder) {
    if (!files.exists(folder)) return false;
    const LoadedRun run = load_run(files, folder, false);
    EXPECT_EQ(run.recipe.model.layers, 2);
    EXPECT_EQ(read_file(files, folder + "/huggingface/tokenizer.json"), kTokenizer);
    EXPECT_EQ(data::load_tokenizer_file(files, tokenizer_path(folder))->vocabulary_size(), 4);
    return true;
  }

  FakeHfModel model_;
  MemoryFileSystem files_;
};

TEST_F(Interchange, AnImportIsARun) {
  const ImportedRun imported = import_run(files_, "hf/", "runs/base/", {});
  EXPECT_EQ(imported.folder, "runs/base");
  EXPECT_EQ(imported.parameters.written.path, "runs/base/checkpoints/step-00000000");
  EXPECT_EQ(imported.recipe.precision, spec::Precision::bf16);
  EXPECT_EQ(imported.recipe.batch.sequence, 64);
  EXPECT_EQ(imported.kept_files, (std::vector<std::string>{"config.json", "tokenizer.json"}));
  const LoadedRun run = load_run(files_, "runs/base", false);
  EXPECT_EQ(run.recipe, imported.recipe);
  EXPECT_EQ(run.recipe.model.name, "base");
  EXPECT_EQ(run.step, 0);
  const auto layout = spec::param_layout(spec::param_table(run.recipe.model));
  const std::string& stored = model_.bytes_of.at("lm_head.weight");
  const float* head = run.master.data() + layout.find("head.weight").element_offset;
  for (size_t i = 0; i < stored.size() / 2; ++i) {
    bf16 expected;
    std::memcpy(&expected, stored.data() + 2 * i, sizeof expected);
    ASSERT_EQ(head[i], to_f32(expected));
  }
  EXPECT_FALSE(files_.exists("runs/base.partial"));
}

TEST_F(Interchange, ModelYamlIsAPresetOfTheModel) {
  const ImportedRun imported = import_run(files_, "hf", "base", {});
  const std::string yaml = read_file(files_, "base/model.yaml");
  std::string recipe = "model:\n";
  for (const std::string_view line : split(yaml, '\n')) recipe += fmt::format("  {}\n", line);
  EXPECT_EQ(spec::parse_recipe(recipe, "r", {}, "").model, imported.recipe.model);
}

TEST_F(Interchange, ExportGivesTheFolderBack) {
  import_run(files_, "hf", "base", {});
  const ExportedRun exported = export_run(files_, "base", "out", {});
  EXPECT_EQ(exported.copied_files, (std::vector<std::string>{"tokenizer.json"}));
  EXPECT_TRUE(exported.notes.empty());
  EXPECT_EQ(read_file(files_, "out/tokenizer.json"), kTokenizer);
  const checkpoint::HfFolder back(files_, "out");
  for (const auto& [name, bytes] : model_.bytes_of) EXPECT_TRUE(back.bytes(name) == bytes) << name;
  EXPECT_EQ(back.config().at("bos_token_id"), 5);
  EXPECT_EQ(back.config().at("torch_dtype"), "bfloat16");

  ExportOptions options;
  options.tokenizer = "";
  EXPECT_TRUE(
      export_run(files_, "base/checkpoints/step-00000000", "bare", options).copied_files.empty());
  options.tokenizer = "nowhere";
  EXPECT_TRUE(says(error_of([&] { export_run(files_, "base", "x", options); }),
                   ErrorKind::not_found, "--tokenizer: 'nowhere' is not a folder"));
}

TEST_F(Interchange, TheTokenizerIsTheRunsAsWell) {
  FakeHfModel::put(files_, "hf/tokenizer_config.json", "{}");
  const ImportedRun imported = import_run(files_, "hf", "base", {});
  EXPECT_TRUE(imported.notes.empty());
  ASSERT_NE(imported.tokenizer, nullptr);
  const auto kept = data::load_tokenizer_file(files_, "base/tokenizer.json");
  EXPECT_EQ(data::encode_start(*kept, "aba"), (std::vector<int32_t>{3, 2, 0}));
  EXPECT_EQ(read_file(files_, "base/tokenizer/tokenizer.json"), kTokenizer);
  EXPECT_EQ(read_file(files_, "base/tokenizer/tokenizer_config.json"), "{}");

  // A run that has its own alone is exported with the originals.
  files_.remove_tree("base/huggingface");
  const ExportedRun exported = export_run(files_, "base", "out", {});
  EXPECT_EQ(exported.copied_files,
            (std::vector<std::string>{"tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(read_file(files_, "out/tokenizer.json"), kTokenizer);
  FakeHfModel::put(files_, "base/tokenizer/tokenizer.json", "{}");
  EXPECT_EQ(error_of([&] { export_run(files_, "base", "out2", {}); }).kind(), ErrorKind::corrupt);
}

TEST_F(Interchange, MismatchedTokenizersAreNoted) {
  const auto note_of = [&](const std::string& tokenizer) {
    if (tokenizer.empty()) {
      files_.remove_tree("hf/tokenizer.json");
    } else {
      FakeHfModel::put(files_, "hf/tokenizer.json", tokenizer);
    }
    files_.remove_tree("base");
    const ImportedRun imported = import_run(files_, "hf", "base", {});
    EXPECT_EQ(imported.tokenizer, nullptr);
    EXPECT_FALSE(files_.exists("base/tokenizer.json"));
    EXPECT_FALSE(files_.exists("base/tokenizer"));
    EXPECT_EQ(files_.exists("base/huggingface/tokenizer.json"), !tokenizer.empty());
    return join(imported.notes, "; ");
  };
  const char* needed = "which 'tutti generate' and 'tutti eval --tasks' need: ";
  EXPECT_TRUE(contains(note_of(R"({"model": {"type": "Morphemes", "vocab": []}})"), "Morphemes"));
  EXPECT_TRUE(contains(note_of("{"), needed));
  Json larger = parse_json(kTokenizer, "test");
  larger["added_tokens"].push_back({{"id", 37}, {"content", "<pad>"}, {"special", true}});
  EXPECT_TRUE(contains(note_of(larger.dump()),
                       std::string(needed) + "'hf/tokenizer.json' has 38 "
                                             "tokens, more than the model's vocabulary of 37"));
  EXPECT_TRUE(contains(note_of(""), "'hf' has neither tokenizer.json nor tokenizer.model"));
  // What an export of such a run says.
  EXPECT_EQ(export_run(files_, "base", "out", {}).notes,
            std::vector<std::string>{"no tokenizer: the run has none; give --tokenizer DIR, or "
                                     "none"});
  FakeHfModel::put(files_, "base/tokenizer.json",
                   data::tokenizer_json(data::ByteTokenizer()).dump());
  EXPECT_TRUE(contains(join(export_run(files_, "base", "out2", {}).notes, "; "), "kind 'byte'"));
}

TEST_F(Interchange, NothingIsOverwritten) {
  import_run(files_, "hf", "base", {});
  EXPECT_TRUE(says(error_of([&] { import_run(files_, "hf", "base", {}); }), ErrorKind::usage,
                   "--out: 'base' already exists"));
  EXPECT_TRUE(says(error_of([&] { export_run(files_, "base", "hf", {}); }), ErrorKind::usage,
                   "--out: 'hf' already exists"));
  files_.create_directories("empty");
  EXPECT_NO_THROW(export_run(files_, "base", "empty", {}));
}

TEST_F(Interchange, ADamagedCheckpointIsNotExported) {
  import_run(files_, "hf", "base", {});
  const std::string shard = "base/checkpoints/step-00000000/shard-00000-of-00001.safetensors";
  files_.damage(shard, files_.size_bytes(shard) - 9, 1);
  EXPECT_TRUE(says(error_of([&] { export_run(files_, "base", "out", {}); }), ErrorKind::corrupt,
                   "the checksum does not hold"));
  files_.cut(shard, 100);
  EXPECT_TRUE(says(error_of([&] { export_run(files_, "base", "out", {}); }), ErrorKind::corrupt,
                   "100 bytes instead of"));
  EXPECT_FALSE(files_.exists("out"));
  EXPECT_FALSE(files_.exists("out.partial"));
}

TEST_F(Interchange, WhatFailsLeavesNothing) {
  files_.start_record();
  import_run(files_, "hf", "base", {});
  const int64_t operations = files_.operation_count();
  const auto fresh = [&] { return files_.crash_after(0, 1); };
  for (int64_t i = 0; i + 1 < operations; ++i) {  // the last: the name may not be durable
    const auto disk = fresh();
    disk->start_record();
    disk->fail_operation(i, ErrorKind::io, false);
    EXPECT_EQ(error_of([&] { import_run(*disk, "hf", "base", {}); }).kind(), ErrorKind::io);
    EXPECT_FALSE(disk->exists("base")) << files_.operation(i);
    EXPECT_FALSE(disk->exists("base.partial")) << files_.operation(i);
  }
}

TEST_F(Interchange, ACrashLeavesAllOrNothing) {
  files_.start_record();
  import_run(files_, "hf", "base", {});
  int whole = 0;
  for (int64_t i = 0; i <= files_.operation_count(); ++i) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const auto disk = files_.crash_after(i, seed);
      if (is_imported(*disk, "base")) {
        ++whole;
        continue;
      }
      import_run(*disk, "hf", "base", {});  // over what the crash left
      EXPECT_TRUE(is_imported(*disk, "base"));
    }
  }
  EXPECT_GE(whole, 4);
  EXPECT_TRUE(is_imported(*files_.crash_after(files_.operation_count(), 0), "base"));
}

TEST_F(Interchange, F16FoldersNoteBf16Computation) {
  EXPECT_TRUE(import_run(files_, "hf", "base", {}).notes.empty());
  FakeHfModel(llama_json(), DType::f16).write(files_, "half");
  FakeHfModel::put(files_, "half/tokenizer.json", kTokenizer);
  const ImportedRun imported = import_run(files_, "half", "half-run", {});
  ASSERT_EQ(imported.notes.size(), 1U);
  EXPECT_TRUE(contains(imported.notes[0], "21 of 21 tensors are f16")) << imported.notes[0];
  EXPECT_TRUE(contains(imported.notes[0], "bf16")) << imported.notes[0];
  EXPECT_EQ(imported.recipe.precision, spec::Precision::bf16);
}

// What is wrong in config.json is the command's input: exit code 2, as of a wrong recipe.
TEST_F(Interchange, AWrongConfigIsAnErrorOfUsage) {
  const std::string config = read_file(files_, "hf/config.json");
  const auto kind_of = [&](const std::string& text) {
    FakeHfModel::put(files_, "hf/config.json", text);
    return error_of([&] { import_run(files_, "hf", "base", {}); }).kind();
  };
  EXPECT_EQ(kind_of(config.substr(0, config.size() / 2)), ErrorKind::usage);
  EXPECT_EQ(kind_of("[]"), ErrorKind::usage);
  for (const auto& [key, value] : {std::pair<const char*, Json>{"vocab_size", nullptr},
                                   {"vocab_size", "many"},
                                   {"vocab_size", 38},
                                   {"num_hidden_layers", 1},
                                   {"num_hidden_layers", 3},
                                   {"tie_word_embeddings", true},
                                   {"num_attention_heads", 5}}) {
    Json changed = parse_json(config, "test");
    changed[key] = value;
    EXPECT_EQ(kind_of(changed.dump()), ErrorKind::usage) << key << " " << value;
  }
  FakeHfModel::put(files_, "hf/config.json", config);
  import_run(files_, "hf", "base", {});
}

// What is made of a run, such as a merged one, is used and exported as the run is.
TEST_F(Interchange, FilesBesidesTheParametersAreCopied) {
  FakeHfModel::put(files_, "hf/generation_config.json", "{}");
  import_run(files_, "hf", "base", {});
  spec::Recipe recipe;
  copy_companions(files_, "base", recipe, "merged");
  for (const char* file : {"tokenizer.json", "tokenizer/tokenizer.json",
                           "tokenizer/generation_config.json", "huggingface/config.json",
                           "huggingface/tokenizer.json", "huggingface/generation_config.json"}) {
    EXPECT_EQ(read_file(files_, std::string("merged/") + file),
              read_file(files_, std::string("base/") + file))
        << file;
  }
  EXPECT_EQ(data::load_tokenizer_file(files_, "merged/tokenizer.json")->vocabulary_size(), 4);
  // Of a run without Hugging Face's files, those of the import it was started from.
  files_.create_directories("tuned");
  recipe.checkpoint.initialize_from = "base";
  copy_companions(files_, "tuned", recipe, "from-base");
  EXPECT_TRUE(files_.exists("from-base/huggingface/config.json"));
  EXPECT_FALSE(files_.exists("from-base/tokenizer.json"));
  FakeHfModel::put(files_, "base/tokenizer/tokenizer.json", "{}");
  EXPECT_EQ(error_of([&] { copy_companions(files_, "base", recipe, "other"); }).kind(),
            ErrorKind::corrupt);
}

TEST_F(Interchange, TunedRunsKeepTheImportedFiles) {
  import_run(files_, "hf", "base", {});
  spec::Recipe recipe;
  keep_huggingface(files_, recipe, "none");
  EXPECT_FALSE(files_.exists("none"));
  for (const char* from : {"base", "base/", "base/checkpoints", "base/checkpoints/step-00000000"}) {
    recipe.checkpoint.initialize_from = from;
    const std::string run = fmt::format("tuned-{}", std::strlen(from));
    keep_huggingface(files_, recipe, run);
    keep_huggingface(files_, recipe, run);  // as when it is resumed
    EXPECT_EQ(read_file(files_, run + "/huggingface/tokenizer.json"), kTokenizer) << from;
    EXPECT_TRUE(files_.exists(run + "/huggingface/config.json"));
  }
}

}  // namespace
}  // namespace tutti::train
