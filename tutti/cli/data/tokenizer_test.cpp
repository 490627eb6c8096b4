#include "tutti/cli/data/tokenizer.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/tokenizers/byte_tokenizer.h"
#include "tutti/data/tokenizers/char_tokenizer.h"
#include "tutti/data/tokenizers/tokenizer_source.h"

namespace tutti::cli {
namespace {

spec::Recipe recipe_of(int vocabulary) {
  return spec::parse_recipe(
      fmt::format("model: {{layers: 1, hidden: 32, heads: 2, vocabulary: {}, context: 16}}\n"
                  "data: {{train: corpora/c}}\n",
                  vocabulary),
      "test", {}, "");
}

void write_tokenizer(FileSystem& files, const std::string& path) {
  files.create_directories(parent_path(path));
  write_file_atomic(files, path, dump_json(data::tokenizer_json(data::ByteTokenizer())));
}

TEST(Tokenizer, IsKeptWithTheRunAndOutlivesTheCorpus) {
  MemoryFileSystem files;
  write_tokenizer(files, "corpora/c.tokenizer.json");
  keep_tokenizer(files, recipe_of(257), "runs/r");
  files.remove_tree("corpora");
  EXPECT_EQ(find_tokenizer(files, recipe_of(257), "runs/r")->name(), "byte");
}

TEST(Tokenizer, RecipesOfRunsWithCheckpointsAreKept) {
  MemoryFileSystem files;
  const auto put = [&](const data::Tokenizer& tokenizer) {
    files.create_directories("corpora");
    write_file_atomic(files, "corpora/c.tokenizer.json",
                      dump_json(data::tokenizer_json(tokenizer)));
  };
  const data::CharTokenizer other({U'a', U'b'}, true);
  put(data::ByteTokenizer());
  keep_tokenizer(files, recipe_of(257), "runs/r");
  put(other);  // nothing was learned yet
  keep_tokenizer(files, recipe_of(257), "runs/r");
  EXPECT_EQ(find_tokenizer(files, recipe_of(257), "runs/r")->name(), "char");
  files.create_directories("runs/r/checkpoints/step-00000005");
  write_file_atomic(files, "runs/r/checkpoints/step-00000005/manifest.json", "{}");
  keep_tokenizer(files, recipe_of(257), "runs/r");
  put(data::ByteTokenizer());
  try {
    keep_tokenizer(files, recipe_of(257), "runs/r");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("runs/r/tokenizer.json"), std::string::npos);
  }
  EXPECT_EQ(find_tokenizer(files, recipe_of(257), "runs/r")->name(), "char");
}

// Files that only go with a tokenizer, such as generation_config.json, do not make it another.
TEST(Tokenizer, IsTheSameWhateverGoesWithIt) {
  MemoryFileSystem files;
  files.create_directories("model");
  files.create_directories("corpora");
  write_file_atomic(files, "model/tokenizer.json",
                    R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1},
                        "merges": []}})");
  const auto store = [&](const std::string& path) {
    data::store_tokenizer(files, *data::open_tokenizer(files, "model", {}), path);
  };
  store("corpora/c.tokenizer.json");
  keep_tokenizer(files, recipe_of(257), "runs/r");
  files.create_directories("runs/r/checkpoints/step-00000005");
  write_file_atomic(files, "runs/r/checkpoints/step-00000005/manifest.json", "{}");
  write_file_atomic(files, "model/generation_config.json", R"({"temperature": 0.7})");
  store("corpora/v.tokenizer.json");
  spec::Recipe recipe = recipe_of(257);
  recipe.data.validation = "corpora/v";
  EXPECT_NO_THROW(keep_tokenizer(files, recipe, "runs/r"));
  store("corpora/c.tokenizer.json");
  EXPECT_NO_THROW(keep_tokenizer(files, recipe, "runs/r"));
  // What decides the ids does: another tokenizer, or another token that ends documents.
  write_file_atomic(files, "model/generation_config.json", R"({"eos_token_id": 1})");
  store("corpora/v.tokenizer.json");
  EXPECT_THROW(keep_tokenizer(files, recipe, "runs/r"), Error);
}

TEST(Tokenizer, IsThatOfTheParametersToStartFrom) {
  MemoryFileSystem files;
  write_tokenizer(files, "corpora/c.tokenizer.json");
  keep_tokenizer(files, recipe_of(257), "runs/before");
  spec::Recipe later = recipe_of(257);
  for (const char* from :
       {"runs/before", "runs/before/", "runs/before/checkpoints/step-00000005"}) {
    later.checkpoint.initialize_from = from;
    write_tokenizer(files, "corpora/c.tokenizer.json");
    keep_tokenizer(files, later, "runs/same");
    const data::CharTokenizer other({U'a', U'b'}, true);
    write_file_atomic(files, "corpora/c.tokenizer.json", dump_json(data::tokenizer_json(other)));
    try {
      keep_tokenizer(files, later, "runs/other");
      ADD_FAILURE() << from;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("--tokenizer runs/before/tokenizer.json"),
                std::string::npos);
    }
    EXPECT_FALSE(files.exists("runs/other"));
  }
}

TEST(Tokenizer, IsOtherwiseThatOfTheCorpus) {
  MemoryFileSystem files;
  write_tokenizer(files, "corpora/c.tokenizer.json");
  EXPECT_EQ(find_tokenizer(files, recipe_of(300), "runs/r")->vocabulary_size(), 257);
}

TEST(Tokenizer, ACorpusWithoutOneTrainsButDoesNotGenerate) {
  MemoryFileSystem files;
  keep_tokenizer(files, recipe_of(257), "runs/r");
  EXPECT_FALSE(files.exists("runs/r"));
  try {
    find_tokenizer(files, recipe_of(257), "runs/r");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
    const std::string message = error.what();
    EXPECT_NE(message.find("runs/r/tokenizer.json"), std::string::npos) << message;
    EXPECT_NE(message.find("corpora/c.tokenizer.json"), std::string::npos) << message;
  }
}

TEST(Tokenizer, TooSmallVocabulariesAreRefused) {
  MemoryFileSystem files;
  write_tokenizer(files, "corpora/c.tokenizer.json");
  try {
    keep_tokenizer(files, recipe_of(100), "runs/r");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("set model.vocabulary=257"), std::string::npos);
  }
  EXPECT_FALSE(files.exists("runs/r"));
}

}  // namespace
}  // namespace tutti::cli
