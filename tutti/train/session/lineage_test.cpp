#include "tutti/train/session/lineage.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/corpus/writer.h"

namespace tutti::train {
namespace {

class LineageTest : public ::testing::Test {
 protected:
  LineageTest() {
    data::CorpusWriter writer(files_, "corpus", DType::u16);
    writer.append(std::vector<int32_t>{1, 2, 3, 4});
    writer.end_document();
    writer.finish();
    writer.commit();
  }
  telemetry::CorpusDescribed described() {
    return describe_corpus(files_, "training", "corpus", data::Corpus(files_, "corpus"));
  }
  MemoryFileSystem files_;
};

TEST_F(LineageTest, ForeignCorporaHaveCountsOnly) {
  const telemetry::CorpusDescribed corpus = described();
  EXPECT_EQ(corpus.role, "training");
  EXPECT_EQ(corpus.path, "corpus");
  EXPECT_EQ(corpus.tokens, 4);
  EXPECT_EQ(corpus.documents, 1);
  EXPECT_EQ(corpus.hash, "");
  EXPECT_EQ(corpus.index_hash, hash_hex(hash_text(read_file(files_, "corpus.idx"))));
  EXPECT_EQ(corpus.mask_hash, "");
  EXPECT_TRUE(corpus.sources.empty());
}

TEST_F(LineageTest, TellsWhatTheMetaFileSays) {
  write_file_atomic(files_, "corpus.tokenizer.json", "{}");
  write_file_atomic(files_, "corpus.meta.json",
                    R"({"tokenizer": "byte", "vocabulary_size": 257, "bin_bytes": 8,
                        "bin_xxh3": "0123", "licence": "CC0-1.0", "data_class": "public",
                        "created": "2026-01-31T12:00:00Z",
                        "sources": ["plain.txt", {"path": "b", "bytes": 5, "documents": 1,
                                    "tokens": 6, "hash": "ff", "licence": "MIT",
                                    "data_class": "internal"}, 3]})");
  const telemetry::CorpusDescribed corpus = described();
  EXPECT_EQ(corpus.tokenizer, "byte");
  EXPECT_EQ(corpus.tokenizer_hash.size(), 16U);
  EXPECT_EQ(corpus.vocabulary_size, 257);
  EXPECT_EQ(corpus.bytes, 8);
  EXPECT_EQ(corpus.hash, "0123");
  EXPECT_EQ(corpus.licence, "CC0-1.0");
  ASSERT_EQ(corpus.sources.size(), 2U);
  EXPECT_EQ(corpus.sources[0].path, "plain.txt");
  EXPECT_EQ(corpus.sources[1].tokens, 6);
  EXPECT_EQ(corpus.sources[1].licence, "MIT");
}

TEST_F(LineageTest, ForeignCorporaAreIdentifiedByTokens) {
  const data::Dataset set(files_, "corpus", {2, spec::Packing::none, 16, 1});
  const Json before = identify_corpora(files_, set);
  EXPECT_NO_THROW(check_same_corpora(before, identify_corpora(files_, set), set, "run"));
  std::string bytes = read_file(files_, "corpus.bin");
  bytes.front() = static_cast<char>(bytes.front() + 1);
  write_file_atomic(files_, "corpus.bin", bytes);
  EXPECT_THROW(check_same_corpora(before, identify_corpora(files_, set), set, "run"), Error);
}

TEST_F(LineageTest, ADamagedMetaFileDoesNotPreventTraining) {
  write_file_atomic(files_, "corpus.meta.json", "{\"tokenizer\": ");
  EXPECT_EQ(described().tokenizer, "");
}

}  // namespace
}  // namespace tutti::train
