#include "tutti/data/prepare/synthetic_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tutti/base/hash.h"
#include "tutti/base/json.h"
#include "tutti/base/testing/memory_file.h"

namespace tutti::data {
namespace {

TEST(SyntheticText, IsAFunctionOfSeedAndIndex) {
  const SyntheticLanguage one(1);
  const SyntheticLanguage again(1);
  const SyntheticLanguage other(2);
  std::set<std::string> seen;
  for (const uint64_t index : {5U, 0U, 17U, 5U}) {
    EXPECT_EQ(one.document(index), again.document(index));
    EXPECT_NE(one.document(index), other.document(index));
    seen.insert(one.document(index));
  }
  EXPECT_EQ(seen.size(), 3U);
}

TEST(SyntheticText, IsPlainTextOfUsefulLength) {
  const SyntheticLanguage language(3);
  size_t bytes = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const std::string text = language.document(i);
    EXPECT_GT(text.size(), 200U);
    EXPECT_LT(text.size(), 6000U);
    EXPECT_TRUE(std::all_of(text.begin(), text.end(),
                            [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
    bytes += text.size();
  }
  EXPECT_NEAR(static_cast<double>(bytes) / 200, 1150, 150);
}

TEST(SyntheticText, TheFileHoldsTheDocuments) {
  MemoryFileSystem files;
  int64_t stories = 0;
  const auto summary = write_synthetic_text(files, "t.jsonl", 7, 30, [&](int64_t done, int64_t of) {
    EXPECT_EQ(of, 30);
    stories = done;
  });
  EXPECT_EQ(stories, 30);
  EXPECT_EQ(summary.documents, 30);
  const std::string text = read_file(files, "t.jsonl");
  EXPECT_EQ(summary.file_hash, hash_hex(hash_text(text)));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 30);
  const Json first = parse_json(text.substr(0, text.find('\n')), "t.jsonl");
  EXPECT_EQ(first["text"], SyntheticLanguage(7).document(0));
}

}  // namespace
}  // namespace tutti::data
