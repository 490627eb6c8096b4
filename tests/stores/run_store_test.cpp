// What a run asks of corpora in an object store beside their samples.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "tutti/base/testing/memory_file.h"
#include "tutti/data/testing/test_support.h"
#include "tutti/data/tokenizers/byte_tokenizer.h"
#include "tutti/object/testing/fake_store.h"
#include "tutti/train/session/lineage.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/tasks/evaluate.h"

namespace tutti::train {
namespace {

class RunStoreTest : public ::testing::Test {
 protected:
  RunStoreTest() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-run-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    data_.cache = folder_;
  }
  ~RunStoreTest() override { std::filesystem::remove_all(folder_); }

  data::Dataset dataset(FileSystem& files, const std::string& prefix) const {
    data::DatasetOptions options;
    options.sequence = 100;
    options.cache = {folder_, 0};
    return {files, spec::CorpusBlend(prefix), options};
  }

  std::shared_ptr<object::FakeStore> store_ = std::make_shared<object::FakeStore>();
  MemoryFileSystem local_;
  std::unique_ptr<object::RoutedFileSystem> files_ = object::files_over(store_, local_, 2);
  std::string folder_;
  spec::DataConfig data_;
};

TEST_F(RunStoreTest, CheckpointsAreWhereTheRecipeOfTheRunFolderSays) {
  spec::Recipe recipe;
  local_.create_directories("runs/mine");
  write_file_atomic(local_, "runs/mine/recipe.yaml", spec::to_yaml(recipe));
  EXPECT_EQ(find_checkpoints(*files_, "runs/mine"), "runs/mine/checkpoints");
  recipe.checkpoint.store = "s3://bucket/runs";
  write_file_atomic(local_, "runs/mine/recipe.yaml", spec::to_yaml(recipe));
  EXPECT_EQ(find_checkpoints(*files_, "runs/mine/"), "s3://bucket/runs/mine/checkpoints");
}

// By pieces of its tokens, since no PREFIX.meta.json records their hash.
TEST_F(RunStoreTest, ACorpusMadeElsewhereIsIdentifiedByAFewBytes) {
  constexpr int32_t kTokens = 300'000;
  data::write_counting_corpus(local_, "near", kTokens);
  data::write_counting_corpus(*files_, "s3://bucket/far", kTokens);
  const data::Dataset far = dataset(*files_, "s3://bucket/far");
  const int64_t before = store_->bytes_read();
  const Json identity = identify_corpora(*files_, far);
  EXPECT_LE(store_->bytes_read() - before, 64 * 4096);
  EXPECT_EQ(identity, identify_corpora(local_, dataset(local_, "near")));
  EXPECT_EQ(identity[0]["pieces_xxh3"].get<std::string>().size(), 16U);
}

// An evaluation has read all tokens: their text is counted without fetching them again.
TEST_F(RunStoreTest, PredictedBytesAreCountedFromTheCache) {
  const data::ByteTokenizer tokenizer;
  std::vector<std::vector<int32_t>> documents;
  for (int32_t d = 0; d < 300; ++d) {
    documents.emplace_back(static_cast<size_t>(500 + d), 'a' + d % 26);
    documents.back().push_back(tokenizer.end_of_document());
  }
  data::write_corpus(local_, "near", documents);
  data::write_corpus(*files_, "s3://bucket/far", documents);
  const data::Dataset far = dataset(*files_, "s3://bucket/far");
  std::vector<int32_t> tokens(static_cast<size_t>(far.corpus(0).tokens()));
  far.corpus(0).read(0, far.corpus(0).tokens(), tokens.data());
  const int64_t bin_bytes = 2 * far.corpus(0).tokens();
  EXPECT_EQ(far.fetched_bytes(), bin_bytes);
  for (const spec::Packing packing : {spec::Packing::none, spec::Packing::documents}) {
    data_.packing = packing;
    const int64_t before = store_->bytes_read();
    const int64_t bytes = predicted_text_bytes(*files_, "s3://bucket/far", &tokenizer, data_);
    EXPECT_EQ(bytes, predicted_text_bytes(local_, "near", &tokenizer, data_));
    EXPECT_GT(bytes, 150'000);
    EXPECT_LT(store_->bytes_read() - before, bin_bytes / 10);
  }
}

}  // namespace
}  // namespace tutti::train
