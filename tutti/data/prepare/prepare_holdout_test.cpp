// Which documents a corpus holds out for validation.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tutti/base/testing/memory_file.h"
#include "tutti/data/corpus/meta.h"
#include "tutti/data/prepare/document_reader.h"
#include "tutti/data/testing/prepare_support.h"

namespace tutti::data {
namespace {

TEST(Prepare, HoldsOutWholeDocuments) {
  MemoryFileSystem files;
  for (int i = 0; i < 400; ++i) {
    write_text(files, "in/" + std::to_string(i), "text number " + std::to_string(i));
  }
  PrepareOptions options = options_for({"in"});
  options.holdout_share = 0.1;
  const PrepareResult result = prepare(files, options);
  EXPECT_EQ(result.split, "documents");
  const auto kept = all_documents(files, "out/c");
  const auto held = all_documents(files, "out/c-validation");
  EXPECT_EQ(kept.size() + held.size(), 400U);
  EXPECT_TRUE(held.size() > 20 && held.size() < 70) << held.size();
  std::set<std::string> both(kept.begin(), kept.end());
  both.insert(held.begin(), held.end());
  EXPECT_EQ(both.size(), 400U);
  EXPECT_EQ(load_corpus_meta(files, "out/c-validation").part, "validation");
  EXPECT_EQ(load_corpus_meta(files, "out/c").part, "training");

  // Neither more documents nor another path moves any; another seed does.
  write_text(files, "in/more", "more");
  files.rename("in", "moved");
  options.sources = {"moved"};
  options.overwrite = true;
  prepare(files, options);
  auto again = all_documents(files, "out/c-validation");
  std::erase(again, "more");
  EXPECT_EQ(again, held);
  options.split_seed = 1;
  prepare(files, options);
  EXPECT_NE(all_documents(files, "out/c-validation"), held);
}

TEST(Prepare, JsonDocumentsAreHeldOutByTheirText) {
  MemoryFileSystem files;
  std::string lines;
  for (int i = 0; i < 300; ++i) {
    lines += "{\"text\": \"document " + std::to_string(i % 100) + "\"}\n";  // each three times
  }
  write_text(files, "a.jsonl", lines);
  PrepareOptions options = options_for({"a.jsonl"});
  options.holdout_share = 0.2;
  const PrepareResult result = prepare(files, options);
  EXPECT_EQ(result.split, "documents");
  const auto kept = all_documents(files, "out/c");
  const auto held = all_documents(files, "out/c-validation");
  EXPECT_EQ(kept.size() + held.size(), 300U);
  EXPECT_EQ(held.size() % 3, 0U);
  for (const std::string& text : held) {
    EXPECT_EQ(std::count(kept.begin(), kept.end(), text), 0);
  }
}

TEST(Prepare, ASingleFileIsSplitAtItsTail) {
  MemoryFileSystem files;
  const std::string text = random_text(1003, 4);
  write_text(files, "a.txt", text);
  PrepareOptions options = options_for({"a.txt"});
  options.tokenizer = "char";
  options.holdout_share = 0.1;
  const PrepareResult result = prepare(files, options);
  EXPECT_EQ(result.split, "tail");
  EXPECT_TRUE(contains(result.split_reason, "single document")) << result.split_reason;
  EXPECT_EQ(result.training.corpus.tokens, 902);  // int(1003 * 0.9)
  ASSERT_TRUE(result.validation);
  EXPECT_EQ(result.validation->corpus.tokens, 101);
  EXPECT_EQ(result.training.text_bytes, 902);
  EXPECT_EQ(result.validation->text_bytes, 101);
  EXPECT_EQ(decoded(files, "out/c", 0), text.substr(0, 902));
  EXPECT_EQ(decoded(files, "out/c-validation", 0), text.substr(902));
  const auto tokenizer = load_tokenizer(files, "out/c");
  EXPECT_EQ(tokenizer->end_of_document(), kNoToken);
  EXPECT_EQ(tokenizer->vocabulary_size(),
            static_cast<int32_t>(std::set<char>(text.begin(), text.end()).size()));
  EXPECT_EQ(files.list("out").size(), 10U);
}

TEST(Prepare, TailOfSeveralDocuments) {
  MemoryFileSystem files;
  for (const char* name : {"in/1", "in/2", "in/3"}) write_text(files, name, random_text(99, 1));
  PrepareOptions options = options_for({"in"});
  options.holdout_share = 0.25;
  const PrepareResult result = prepare(files, options);  // 0.25 × 3 files < 1
  EXPECT_EQ(result.split, "tail");
  EXPECT_EQ(result.training.corpus.tokens, 225);
  EXPECT_EQ(result.training.corpus.documents, 3);
  EXPECT_EQ(result.validation->corpus.documents, 1);
  std::string joined = read_file(files, "out/c.bin") + read_file(files, "out/c-validation.bin");
  options.holdout_share = 0;
  options.prefix = "whole/c";
  prepare(files, options);
  EXPECT_EQ(joined, read_file(files, "whole/c.bin"));
}

}  // namespace
}  // namespace tutti::data
