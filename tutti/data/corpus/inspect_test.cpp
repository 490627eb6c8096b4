#include "tutti/data/corpus/inspect.h"

#include "tutti/base/testing/memory_file.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/prepare/loss_mask.h"
#include "tutti/data/prepare/prepare.h"
#include "tutti/data/testing/test_support.h"

namespace tutti::data {
namespace {

class InspectTest : public testing::Test {
 protected:
  void SetUp() override {
    write_text(files_, "in/a", "first text");
    write_text(files_, "in/b", "second");
    PrepareOptions options;
    options.sources = {"in"};
    options.prefix = "c";
    prepare(files_, options);
  }
  bool check(const CorpusInspection& inspection, const std::string& name) {
    for (const CorpusCheck& entry : inspection.checks) {
      if (entry.name == name) return entry.ok;
    }
    ADD_FAILURE() << "no check " << name;
    return false;
  }
  MemoryFileSystem files_;
};

TEST_F(InspectTest, DescribesASoundCorpus) {
  const CorpusInspection seen = inspect_corpus(files_, "c");
  EXPECT_TRUE(seen.ok);
  EXPECT_EQ(seen.documents, 2);
  EXPECT_EQ(seen.tokens, 18);
  EXPECT_EQ(seen.bin_bytes, 36);
  EXPECT_EQ(seen.idx_bytes, 34 + 12 * 2 + 8 * 3);
  EXPECT_EQ(seen.shortest_document, 7);
  EXPECT_EQ(seen.longest_document, 11);
  EXPECT_EQ(seen.mean_document, 9);
  EXPECT_EQ(seen.largest_id, 256);
  EXPECT_EQ(seen.tokenizer, "byte");
  EXPECT_EQ(seen.vocabulary, 257);
  EXPECT_EQ(seen.end_of_document, 256);
  EXPECT_EQ(seen.sample_text, "first textsecond");
  EXPECT_TRUE(check(seen, "content"));
  EXPECT_EQ(inspect_corpus(files_, "c", {.sample_tokens = 4, .sample_first = 6}).sample_text,
            "text");
}

TEST_F(InspectTest, FindsAChangedByte) {
  files_.damage("c.bin", 4, 1);
  EXPECT_FALSE(check(inspect_corpus(files_, "c"), "content"));
  files_.damage("c.bin", 5, 0x80);  // an id of 32768 and more
  const CorpusInspection seen = inspect_corpus(files_, "c");
  EXPECT_FALSE(seen.ok);
  EXPECT_FALSE(check(seen, "ids"));
  EXPECT_FALSE(check(seen, "sample"));
}

TEST_F(InspectTest, FindsMismatchedFiles) {
  write_corpus(files_, "c", {{1, 2, 3}});
  EXPECT_FALSE(check(inspect_corpus(files_, "c"), "meta"));
  write_text(files_, "c.tokenizer.json", "{\"format\": \"tutti-tokenizer\"}");
  EXPECT_FALSE(check(inspect_corpus(files_, "c"), "tokenizer"));
  write_text(files_, "c.meta.json", "{");
  EXPECT_FALSE(check(inspect_corpus(files_, "c"), "meta"));
}

TEST_F(InspectTest, CorporaMadeElsewhereAreFine) {
  write_corpus(files_, "d", {{1, 2, 3}});
  const CorpusInspection seen = inspect_corpus(files_, "d");
  EXPECT_TRUE(seen.ok);
  EXPECT_TRUE(seen.tokenizer.empty());
  EXPECT_FALSE(seen.meta);
  EXPECT_EQ(seen.sample_ids, (std::vector<int32_t>{1, 2, 3}));
  files_.cut("d.bin", 4);
  EXPECT_TRUE(
      contains(error_of(ErrorKind::corrupt, [&] { inspect_corpus(files_, "d"); }), "truncated"));
  error_of(ErrorKind::usage, [&] { inspect_corpus(files_, "c", {.sample_first = 18}); });
}

TEST(InspectPacking, ShowsWindowsAndMask) {
  MemoryFileSystem files;
  write_corpus(files, "c", {{1, 2, 3, 4, 5, 6, 7}, {1}, {1, 2, 3}, {1, 2, 3, 4}});
  CorpusInspection corpus = inspect_corpus(files, "c", {.sequence = 6});
  ASSERT_TRUE(corpus.packing);
  EXPECT_EQ(corpus.packing->windows, 2);
  EXPECT_EQ(corpus.packing->useful_rows, 6 + 2 + 3);
  EXPECT_DOUBLE_EQ(corpus.packing->useful_share, 11.0 / 12);
  EXPECT_DOUBLE_EQ(corpus.packing->attention_share, (36.0 + 4 + 9) / 72);
  EXPECT_EQ(corpus.packing->documents_without_rows, 1);
  EXPECT_FALSE(corpus.masked_tokens);
  write_text(files, "c.mask", loss_mask_bytes({3, 1, 0, 2}, 15));
  corpus = inspect_corpus(files, "c");
  EXPECT_FALSE(corpus.packing);
  EXPECT_EQ(corpus.masked_tokens, 6);
  EXPECT_TRUE(corpus.ok);
  write_text(files, "c.mask", "TUTMASK");
  EXPECT_FALSE(inspect_corpus(files, "c").ok);
}

}  // namespace
}  // namespace tutti::data
