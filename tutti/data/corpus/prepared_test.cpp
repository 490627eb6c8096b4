#include "tutti/data/corpus/prepared.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tutti/base/hash.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/testing/prepare_support.h"

namespace tutti::data {
namespace {

std::string lines_of(int64_t count) {
  std::string lines;
  for (int64_t i = 0; i < count; ++i) lines += fmt::format("{{\"text\": \"line {}\"}}\n", i);
  return lines;
}

spec::DataConfig data_of(FileSystem& files, const std::string& text) {
  write_text(files, "recipes/text.jsonl", text);
  spec::DataConfig data;
  data.prepare.source = "recipes/text.jsonl";
  data.prepare.xxh3 = hash_hex(hash_text(text));
  data.prepare.holdout = 0.3;
  data.prepare.folder = "cache";
  return data;
}

void make(FileSystem& files, spec::DataConfig& data) {
  name_prepared_corpora(files, data);
  make_prepared_corpora(files, data);
}

TEST(Prepared, BothCorporaAreMadeOnce) {
  MemoryFileSystem files;
  spec::DataConfig data = data_of(files, lines_of(50));
  make(files, data);
  const std::string train = data.train.corpora.at(0).prefix;
  const std::string validation = data.validation.corpora.at(0).prefix;
  EXPECT_EQ(train.rfind("cache/text-", 0), 0U) << train;
  EXPECT_EQ(all_documents(files, train).size() + all_documents(files, validation).size(), 50U);
  // The source is not read again, and only what is complete has a name.
  files.remove_file("recipes/text.jsonl");
  make_prepared_corpora(files, data);
  EXPECT_EQ(files.list("cache").size(), 1U);
}

TEST(Prepared, AnotherSourceOrShareIsAnotherCorpus) {
  MemoryFileSystem files;
  spec::DataConfig first = data_of(files, lines_of(50));
  first.prepare.xxh3.clear();
  spec::DataConfig share = first;
  share.prepare.holdout = 0.2;
  make(files, first);
  make(files, share);
  spec::DataConfig edited = data_of(files, lines_of(60));
  edited.prepare.xxh3.clear();
  make(files, edited);
  EXPECT_EQ(files.list("cache").size(), 3U);
  EXPECT_EQ(all_documents(files, edited.train.corpora.at(0).prefix).size() +
                all_documents(files, edited.validation.corpora.at(0).prefix).size(),
            60U);
}

TEST(Prepared, UsersOwnCorporaAreKept) {
  MemoryFileSystem files;
  spec::DataConfig data = data_of(files, lines_of(50));
  data.train = "mine";
  make(files, data);
  EXPECT_EQ(data.train, spec::CorpusBlend("mine"));
  EXPECT_TRUE(data.validation.empty());
  EXPECT_FALSE(files.is_directory("cache"));
}

TEST(Prepared, ErrorsNameKeyValueAndRemedy) {
  MemoryFileSystem files;
  spec::DataConfig data = data_of(files, lines_of(50));
  const std::string wanted = data.prepare.xxh3;
  write_text(files, "recipes/text.jsonl", lines_of(51));
  const std::string found = hash_hex(hash_text(lines_of(51)));
  std::string message = error_of(ErrorKind::usage, [&] { make(files, data); });
  for (const std::string& part :
       {std::string("data.prepare.xxh3"), wanted, found, "data.prepare.xxh3=" + found}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_FALSE(files.is_directory("cache"));

  files.remove_file("recipes/text.jsonl");
  message = error_of(ErrorKind::not_found, [&] { make_prepared_corpora(files, data); });
  EXPECT_NE(message.find("data.prepare.source: no file 'recipes/text.jsonl'"), std::string::npos)
      << message;
}

TEST(Prepared, ManyAtOnceAllSucceed) {
  MemoryFileSystem files;
  const spec::DataConfig data = data_of(files, lines_of(200));
  std::vector<spec::DataConfig> copies(4, data);
  std::vector<std::thread> threads;
  threads.reserve(copies.size());
  for (spec::DataConfig& copy : copies) threads.emplace_back([&] { make(files, copy); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(files.list("cache").size(), 1U);
  EXPECT_EQ(copies.front(), copies.back());
  EXPECT_FALSE(all_documents(files, copies.front().train.corpora.at(0).prefix).empty());
}

}  // namespace
}  // namespace tutti::data
