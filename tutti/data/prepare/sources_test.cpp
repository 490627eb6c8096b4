#include "tutti/data/prepare/sources.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tutti/base/testing/memory_file.h"
#include "tutti/data/testing/test_support.h"

namespace tutti::data {
namespace {

std::vector<std::string> names_of(const std::vector<SourceFile>& files) {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const SourceFile& file : files) names.push_back(file.name);
  return names;
}

int64_t skipped_for(const std::vector<Skipped>& skipped, const std::string& reason) {
  for (const Skipped& entry : skipped) {
    if (entry.reason == reason) return entry.count;
  }
  return 0;
}

TEST(Sources, FoldersAreReadInOrder) {
  MemoryFileSystem files;
  for (const char* path : {"src/b.txt", "src/a/z.h", "src/a/vector", "src/.git/config", "src/.x",
                           "src/c.json.gz", "src/d.jsonl", "src/e.txt.zst", "other.ndjson"}) {
    write_text(files, path, "text");
  }
  write_text(files, "src/empty.txt", "");
  std::vector<Skipped> skipped;
  const auto found = list_sources(files, {"src", "other.ndjson"}, {}, skipped);
  EXPECT_EQ(names_of(found), (std::vector<std::string>{"a/vector", "a/z.h", "b.txt", "c.json.gz",
                                                       "d.jsonl", "e.txt.zst", "other.ndjson"}));
  EXPECT_EQ(found[0].path, "src/a/vector");
  EXPECT_FALSE(found[0].named_directly);
  EXPECT_EQ(found[3].content, Content::json_lines);
  EXPECT_EQ(found[3].compression, Compression::gzip);
  EXPECT_EQ(found[4].content, Content::json_lines);
  EXPECT_EQ(found[5].content, Content::text);
  EXPECT_EQ(found[5].compression, Compression::zstd);
  EXPECT_EQ(found[6].content, Content::json_lines);
  EXPECT_TRUE(found[6].named_directly);
  EXPECT_EQ(skipped_for(skipped, "hidden"), 2);
  EXPECT_EQ(skipped_for(skipped, "empty"), 1);
}

TEST(Sources, SuffixesChoose) {
  MemoryFileSystem files;
  for (const char* path : {"s/a.h", "s/b.hpp", "s/vector", "s/c.txt", "s/d.h.gz"}) {
    write_text(files, path, "text");
  }
  std::vector<Skipped> skipped;
  const auto chosen = [&](const std::vector<std::string>& include) {
    return names_of(list_sources(files, {"s"}, {include, ""}, skipped));
  };
  EXPECT_EQ(chosen({".h", ""}), (std::vector<std::string>{"a.h", "d.h.gz", "vector"}));
  EXPECT_EQ(chosen({".gz"}), (std::vector<std::string>{"d.h.gz"}));
  EXPECT_TRUE(contains(error_of(ErrorKind::usage, [&] { chosen({".py"}); }), ".py"));
}

TEST(Sources, OwnOutputIsNotASource) {
  MemoryFileSystem files;
  for (const char* path : {"s/c.txt", "s/c.bin", "s/c.meta.json", "s/c.mask",
                           "s/c-validation.idx.tmp", "s/c.tokenizer/tokenizer.json"}) {
    write_text(files, path, "text");
  }
  std::vector<Skipped> skipped;
  EXPECT_EQ(names_of(list_sources(files, {"s/"}, {{}, "./s/c"}, skipped)),
            (std::vector<std::string>{"c.txt"}));
}

TEST(Sources, UnreadableNamedSourcesAreErrors) {
  MemoryFileSystem files;
  write_text(files, "empty", "");
  files.create_directories("folder");
  std::vector<Skipped> skipped;
  const auto listing = [&](ErrorKind kind, const std::string& source) {
    return error_of(kind, [&] { list_sources(files, {source}, {}, skipped); });
  };
  EXPECT_TRUE(contains(listing(ErrorKind::not_found, "absent.txt"), "absent.txt"));
  EXPECT_TRUE(contains(listing(ErrorKind::usage, "empty"), "'empty' is empty"));
  EXPECT_TRUE(contains(listing(ErrorKind::usage, "folder"), "folder"));
  error_of(ErrorKind::usage, [&] { list_sources(files, {}, {}, skipped); });
}

TEST(Sources, WhatHasNoSizeIsNamed) {
  std::vector<Skipped> skipped;
  const std::string message = error_of(
      ErrorKind::usage, [&] { list_sources(posix_file_system(), {"/dev/null"}, {}, skipped); });
  EXPECT_TRUE(contains(message, "'/dev/null': it is a pipe or a device")) << message;
}

TEST(Sources, SymbolicLinksDoNotLoop) {
  char folder[] = "/tmp/tutti_sources_XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::filesystem::path root(folder);
  std::filesystem::create_directories(root / "a/b");
  FileSystem& files = posix_file_system();
  write_text(files, (root / "a/text").string(), "text");
  std::filesystem::create_directory_symlink("..", root / "a/b/up");
  std::filesystem::create_directory_symlink(root, root / "a/top");
  std::filesystem::create_symlink("nowhere", root / "dead");
  std::filesystem::create_symlink("a/text", root / "linked");
  std::vector<Skipped> skipped;
  EXPECT_EQ(names_of(list_sources(files, {folder}, {}, skipped)),
            (std::vector<std::string>{"a/text", "linked"}));
  EXPECT_EQ(skipped_for(skipped, "folder seen before"), 2);
  files.remove_tree(folder);
}

}  // namespace
}  // namespace tutti::data
