// Sources that cannot be read, bad options, full disks, crashes and cancelled preparations.
#include <gtest/gtest.h>

#include "tutti/base/testing/memory_file.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/prepare/document_reader.h"
#include "tutti/data/testing/prepare_support.h"

namespace tutti::data {
namespace {

TEST(Prepare, UnreadableNamedSourcesAreErrors) {
  MemoryFileSystem files;
  write_text(files, "binary", std::string("MZ\0", 3));
  write_text(files, "empty.gz", gzip(""));
  write_text(files, "binary.zst", zstd(std::string(9000, '\0')));
  EXPECT_TRUE(
      contains(preparing(files, ErrorKind::usage, options_for({"binary"})), "'binary' is binary"));
  EXPECT_TRUE(contains(preparing(files, ErrorKind::usage, options_for({"binary.zst"})),
                       "'binary.zst' is binary"));
  EXPECT_TRUE(contains(preparing(files, ErrorKind::usage, options_for({"empty.gz"})),
                       "'empty.gz' is empty"));
  EXPECT_TRUE(contains(preparing(files, ErrorKind::not_found, options_for({"gone"})), "gone"));
}

TEST(Prepare, FoldersSkipAndCount) {
  MemoryFileSystem files;
  write_text(files, "in/binary", std::string(9, '\0'));
  write_text(files, "in/big", random_text(2 * kTaskBytes, 1) + std::string(9, '\0'));
  write_text(files, "in/bigbinary", std::string(9, '\0') + random_text(3 * kTaskBytes, 1));
  write_text(files, "in/empty", "");
  write_text(files, "in/empty.gz", gzip(""));
  write_text(files, "in/good", "text");
  const PrepareResult result = prepare(files, options_for({"in"}));
  EXPECT_EQ(result.training.corpus.documents, 2);  // a zero byte later on is text
  EXPECT_EQ(result.files, 2);
  EXPECT_EQ(result.source_bytes, 2 * kTaskBytes + 9 + 4);
  ASSERT_EQ(result.skipped.size(), 2U);
  EXPECT_EQ(result.skipped[0].reason, "empty");
  EXPECT_EQ(result.skipped[0].count, 2);
  EXPECT_EQ(result.skipped[1].reason, "binary");
  EXPECT_EQ(result.skipped[1].count, 2);
  EXPECT_EQ(result.skipped[1].examples, (std::vector<std::string>{"in/bigbinary", "in/binary"}));

  files.remove_file("in/good");
  files.remove_file("in/big");
  PrepareOptions options = options_for({"in"});
  options.prefix = "other/c";
  const std::string nothing = error_of(ErrorKind::usage, [&] { prepare(files, options); });
  EXPECT_TRUE(contains(nothing, "2 binary")) << nothing;
  EXPECT_TRUE(files.list("other").empty());
}

// Passes everything on, except that files called "secret" may not be read.
class GuardedFileSystem final : public FileSystem {
 public:
  explicit GuardedFileSystem(FileSystem& files) : files_(files) {}
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    if (base_name(path) == "secret") fail(ErrorKind::permission, "cannot read '{}'", path);
    return files_.map(path);
  }
  std::unique_ptr<WritableFile> create(const std::string& p) override { return files_.create(p); }
  std::unique_ptr<WritableFile> open_append(const std::string& p) override {
    return files_.open_append(p);
  }
  bool exists(const std::string& p) override { return files_.exists(p); }
  bool is_directory(const std::string& p) override { return files_.is_directory(p); }
  int64_t size_bytes(const std::string& p) override { return files_.size_bytes(p); }
  std::vector<DirectoryEntry> list(const std::string& p) override { return files_.list(p); }
  void create_directories(const std::string& p) override { files_.create_directories(p); }
  void rename(const std::string& a, const std::string& b) override { files_.rename(a, b); }
  void remove_file(const std::string& p) override { files_.remove_file(p); }
  void remove_tree(const std::string& p) override { files_.remove_tree(p); }
  void sync_directory(const std::string& p) override { files_.sync_directory(p); }

 private:
  FileSystem& files_;
};

TEST(Prepare, UnreadableFiles) {
  MemoryFileSystem memory;
  GuardedFileSystem files(memory);
  write_text(files, "in/secret", random_text(2 * kTaskBytes, 1));
  EXPECT_TRUE(
      contains(preparing(files, ErrorKind::permission, options_for({"in/secret"})), "in/secret"));
  write_text(files, "in/open", "text");
  const PrepareResult result = prepare(files, options_for({"in"}));
  EXPECT_EQ(result.files, 1);
  EXPECT_EQ(result.skipped[0].reason, "unreadable");
  EXPECT_EQ(result.skipped[0].count, 1);
}

TEST(Prepare, RefusesToOverwriteUnlessAsked) {
  MemoryFileSystem files;
  for (int i = 0; i < 50; ++i) write_text(files, "in/" + std::to_string(i), "text");
  PrepareOptions options = options_for({"in"});
  options.holdout_share = 0.1;
  prepare(files, options);
  const std::string before = read_file(files, "out/c.idx");
  const std::string message = error_of(ErrorKind::usage, [&] { prepare(files, options); });
  EXPECT_TRUE(contains(message, "out/c.bin' exists")) << message;
  EXPECT_EQ(read_file(files, "out/c.idx"), before);
  options.overwrite = true;
  options.holdout_share = 0;
  prepare(files, options);
  EXPECT_EQ(Corpus(files, "out/c").documents(), 50);
  EXPECT_EQ(files.list("out").size(), 5U);  // the old validation part would not fit
}

TEST(Prepare, BadOptionsAreErrors) {
  MemoryFileSystem files;
  write_text(files, "a", "text");
  const auto with = [&](const auto& change) {
    PrepareOptions options = options_for({"a"});
    change(options);
    return error_of(ErrorKind::usage, [&] { prepare(files, options); });
  };
  EXPECT_TRUE(contains(with([](auto& o) { o.tokenizer = "word"; }), "byte, char"));
  EXPECT_TRUE(contains(with([](auto& o) { o.holdout_share = 1; }), "holdout share is 1"));
  EXPECT_TRUE(contains(with([](auto& o) { o.holdout_share = -0.1; }), "-0.1"));
  EXPECT_TRUE(contains(with([](auto& o) { o.split = SplitMethod::tail; }), "without a holdout"));
  EXPECT_TRUE(contains(with([](auto& o) { o.prefix = "out/"; }), "not a name"));
  EXPECT_TRUE(contains(with([](auto& o) { o.sources = {}; }), "no source"));
  EXPECT_TRUE(contains(with([](auto& o) {
                         o.holdout_share = 0.5;
                         o.split = SplitMethod::documents;
                       }),
                       "leaves nothing"));
  EXPECT_EQ(parse_split_method("tail"), SplitMethod::tail);
  EXPECT_EQ(parse_split_method("auto"), SplitMethod::automatic);
  error_of(ErrorKind::usage, [] { parse_split_method("head"); });
}

TEST(Prepare, ReportsProgressAndCanBeCancelled) {
  MemoryFileSystem files;
  write_text(files, "a", random_text(3 * kTaskBytes, 1));
  for (const char* tokenizer : {"byte", "char"}) {
    int64_t last = 0, total = 0, calls = 0;
    PrepareOptions options = options_for({"a"});
    options.overwrite = true;
    options.tokenizer = tokenizer;
    options.progress = [&](int64_t done, int64_t all) {
      EXPECT_GE(done, last);
      last = done;
      total = all;
      ++calls;
    };
    prepare(files, options);
    EXPECT_EQ(last, total);
    EXPECT_EQ(total, 3 * kTaskBytes * (std::string(tokenizer) == "char" ? 2 : 1));
    EXPECT_GE(calls, 1);
  }
  PrepareOptions options = options_for({"a"});
  options.prefix = "cancelled/c";
  options.progress = [](int64_t, int64_t) { fail(ErrorKind::usage, "stop"); };
  EXPECT_EQ(error_of(ErrorKind::usage, [&] { prepare(files, options); }), "stop");
  EXPECT_TRUE(files.list("cancelled").empty());
}

TEST(Prepare, AFullDiskLeavesNothing) {
  MemoryFileSystem files;
  write_text(files, "a", random_text(3 * kTaskBytes, 1));
  files.set_capacity(5 * kTaskBytes);
  preparing(files, ErrorKind::no_space, options_for({"a"}));
}

// Power lost at any moment, any unsynced part of it lost: the old corpus, the new one, or none that
// opens; never a mixture.
TEST(Prepare, ACrashLeavesNoHalfCorpus) {
  MemoryFileSystem files;
  for (int i = 0; i < 6; ++i) {
    write_text(files, "in/" + std::to_string(i), "old text " + std::to_string(i));
  }
  PrepareOptions options = options_for({"in"});
  options.threads = 1;
  options.holdout_share = 0.5;
  prepare(files, options);
  const auto old_training = all_documents(files, "out/c");
  const auto old_validation = all_documents(files, "out/c-validation");
  for (int i = 0; i < 6; ++i) {
    write_text(files, "in/" + std::to_string(i), "newer text " + std::to_string(i));
  }
  files.start_record();
  options.overwrite = true;
  prepare(files, options);
  const auto new_training = all_documents(files, "out/c");
  const auto new_validation = all_documents(files, "out/c-validation");
  int old_seen = 0, new_seen = 0;
  for (int64_t k = 0; k <= files.operation_count(); ++k) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const auto after = files.crash_after(k, seed);
      if (!corpus_exists(*after, "out/c")) continue;
      const bool is_old = all_documents(*after, "out/c") == old_training;
      ASSERT_TRUE(is_old || all_documents(*after, "out/c") == new_training);
      ++(is_old ? old_seen : new_seen);
      if (!corpus_exists(*after, "out/c-validation")) {
        ASSERT_TRUE(is_old);  // the new training part comes after the new validation part
        continue;
      }
      ASSERT_EQ(all_documents(*after, "out/c-validation"),
                is_old ? old_validation : new_validation);
    }
  }
  EXPECT_GT(old_seen, 0);
  EXPECT_GT(new_seen, 0);
}

// ... and the same command then makes the corpus, unless it is there.
TEST(Prepare, AfterACrashTheSameCommandSucceeds) {
  for (const SplitMethod split : {SplitMethod::documents, SplitMethod::tail}) {
    MemoryFileSystem files;
    for (int i = 0; i < 6; ++i) {
      write_text(files, "in/" + std::to_string(i), "a text " + std::to_string(i));
    }
    PrepareOptions options = options_for({"in"});
    options.threads = 1;
    options.holdout_share = 0.5;
    options.split = split;
    files.start_record();
    prepare(files, options);
    const auto training = all_documents(files, "out/c");
    const auto validation = all_documents(files, "out/c-validation");
    const size_t names = files.list("out").size();
    for (int64_t k = 0; k <= files.operation_count(); ++k) {
      for (uint64_t seed = 0; seed < 3; ++seed) {
        const auto after = files.crash_after(k, seed);
        try {
          prepare(*after, options);
        } catch (const Error& error) {
          EXPECT_TRUE(contains(error.what(), "exists already")) << k << " " << error.what();
          EXPECT_GE(k, files.operation_count() - 1) << error.what();  // all of it is there
        }
        EXPECT_EQ(all_documents(*after, "out/c"), training) << k;
        EXPECT_EQ(all_documents(*after, "out/c-validation"), validation) << k;
        EXPECT_EQ(after->list("out").size(), names) << k;
      }
    }
  }
}

}  // namespace
}  // namespace tutti::data
