#include "tutti/checkpoint/store/writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"

namespace tutti::checkpoint {
namespace {

// Forwards to another file system, but holds every sync of a file until let go.
class SlowFileSystem final : public FileSystem {
 public:
  explicit SlowFileSystem(FileSystem& files) : files_(files) {}
  std::atomic<bool> hold{false};

  std::unique_ptr<WritableFile> create(const std::string& path) override {
    return std::make_unique<File>(*this, files_.create(path));
  }
  std::unique_ptr<WritableFile> open_append(const std::string& path) override {
    return files_.open_append(path);
  }
  std::unique_ptr<MappedFile> map(const std::string& path) override { return files_.map(path); }
  bool exists(const std::string& path) override { return files_.exists(path); }
  bool is_directory(const std::string& path) override { return files_.is_directory(path); }
  int64_t size_bytes(const std::string& path) override { return files_.size_bytes(path); }
  std::vector<DirectoryEntry> list(const std::string& path) override { return files_.list(path); }
  void create_directories(const std::string& path) override { files_.create_directories(path); }
  void rename(const std::string& from, const std::string& to) override { files_.rename(from, to); }
  void remove_file(const std::string& path) override { files_.remove_file(path); }
  void remove_tree(const std::string& path) override { files_.remove_tree(path); }
  void sync_directory(const std::string& path) override { files_.sync_directory(path); }

 private:
  class File final : public WritableFile {
   public:
    File(SlowFileSystem& owner, std::unique_ptr<WritableFile> file)
        : owner_(owner), file_(std::move(file)) {}
    void append(const void* data, size_t size) override { file_->append(data, size); }
    void sync() override {
      while (owner_.hold) sleep_seconds(1e-4);
      file_->sync();
    }
    void close() override { file_->close(); }

   private:
    SlowFileSystem& owner_;
    std::unique_ptr<WritableFile> file_;
  };
  FileSystem& files_;
};

WriterOptions asynchronous() {
  return {.snapshot_bytes = tensor_bytes(FakeRun(1).tensors),
          .retention = {.keep_last = 0, .keep_best = false},
          .write = small_pieces(),
          .parallel = parallel_threads};
}

TEST(Writer, TrainingGoesOnWhileItWrites) {
  MemoryFileSystem memory;
  SlowFileSystem files(memory);
  Writer writer(files, "run", asynchronous());
  files.hold = true;
  {
    FakeRun run(1);
    ASSERT_TRUE(writer.save(run.tensors, run.state, IfBusy::skip));
    for (const TensorSource& tensor : run.tensors) {  // the next step overwrites the tensors
      std::memset(const_cast<void*>(tensor.data), 0, static_cast<size_t>(tensor_bytes(tensor)));
    }
  }
  EXPECT_TRUE(writer.busy());
  EXPECT_EQ(newest_step(memory, "run"), -1);
  const FakeRun second(2);
  EXPECT_FALSE(writer.save(second.tensors, second.state, IfBusy::skip));
  EXPECT_FALSE(writer.poll().has_value());
  files.hold = false;
  ASSERT_TRUE(writer.save(second.tensors, second.state, IfBusy::wait));
  const std::vector<SaveResult> results = writer.wait();
  EXPECT_FALSE(writer.busy());
  ASSERT_EQ(results.size(), 2U);
  for (int64_t i = 0; i < 2; ++i) {
    const SaveResult& result = results[static_cast<size_t>(i)];
    EXPECT_EQ(result.step, i + 1);
    EXPECT_EQ(result.path, "run/" + step_folder_name(i + 1));
    EXPECT_FALSE(result.error.has_value());
    EXPECT_GT(result.bytes, tensor_bytes(second.tensors));
    EXPECT_GT(result.stall_seconds, 0.0);
    EXPECT_GT(result.write_seconds, 0.0);
    Reader reader(memory, result.path);
    EXPECT_EQ(difference_from_fake_run(reader), "");
  }
  EXPECT_TRUE(writer.wait().empty());
}

TEST(Writer, ManySavesPolledAlongTheWay) {
  MemoryFileSystem files;
  WriterOptions options = asynchronous();
  options.retention = {.keep_last = 2, .keep_best = false};
  Writer writer(files, "run", options);
  std::vector<int64_t> saved;
  std::vector<int64_t> reported;
  for (int64_t step = 1; step <= 60; ++step) {
    const FakeRun run(step);
    const IfBusy if_busy = step % 3 == 0 ? IfBusy::wait : IfBusy::skip;
    if (writer.save(run.tensors, run.state, if_busy)) saved.push_back(step);
    while (const std::optional<SaveResult> result = writer.poll()) reported.push_back(result->step);
  }
  for (const SaveResult& result : writer.wait()) reported.push_back(result.step);
  EXPECT_EQ(reported, saved);
  EXPECT_GE(saved.size(), 20U);
  EXPECT_EQ(newest_step(files, "run"), 60);
  EXPECT_EQ(list_checkpoints(files, "run").size(), 2U);
}

TEST(Writer, WithoutASnapshotItSavesBeforeItReturns) {
  MemoryFileSystem files;
  Writer writer(files, "run", {});
  const FakeRun run(1);
  ASSERT_TRUE(writer.save(run.tensors, run.state, IfBusy::skip));
  EXPECT_EQ(newest_step(files, "run"), 1);
  EXPECT_FALSE(writer.busy());
  const std::optional<SaveResult> result = writer.poll();
  ASSERT_TRUE(result.has_value());
  EXPECT_GE(result->stall_seconds, result->write_seconds);
  EXPECT_FALSE(writer.poll().has_value());
}

TEST(Writer, TheDestructorFinishesTheSave) {
  MemoryFileSystem files;
  {
    Writer writer(files, "run", asynchronous());
    const FakeRun run(1);
    writer.save(run.tensors, run.state, IfBusy::wait);
  }
  EXPECT_EQ(newest_step(files, "run"), 1);
}

TEST(Writer, DiskFailuresAreResultsNotExceptions) {
  MemoryFileSystem files;
  for (const bool in_background : {true, false}) {
    WriterOptions options = asynchronous();
    if (!in_background) options.snapshot_bytes = 0;
    Writer writer(files, "run", options);
    files.set_capacity(1000);
    const FakeRun run(1);
    EXPECT_TRUE(writer.save(run.tensors, run.state, IfBusy::wait));
    const std::vector<SaveResult> results = writer.wait();
    ASSERT_EQ(results.size(), 1U);
    ASSERT_TRUE(results[0].error.has_value());
    EXPECT_TRUE(says(*results[0].error, ErrorKind::no_space, "run/step-00000001"));
    EXPECT_FALSE(files.exists("run/step-00000001"));
  }
}

TEST(Writer, RetentionFailsWithoutFailingTheSave) {
  MemoryFileSystem files;
  WriterOptions options = asynchronous();
  options.retention = {.keep_last = 1, .keep_best = false};
  Writer writer(files, "run", options);
  const FakeRun first(1);
  writer.save(first.tensors, first.state, IfBusy::wait);
  writer.wait();
  files.start_record();
  MemoryFileSystem rehearsal;
  write_checkpoint(rehearsal, "run", first.tensors, first.state, small_pieces());
  rehearsal.start_record();
  const FakeRun second(2);
  write_checkpoint(rehearsal, "run", second.tensors, second.state, small_pieces());
  files.fail_operation(rehearsal.operation_count(), ErrorKind::io, true);
  writer.save(second.tensors, second.state, IfBusy::wait);
  const SaveResult result = writer.wait().at(0);
  EXPECT_FALSE(result.error.has_value());
  EXPECT_TRUE(result.retention_error.has_value());
  EXPECT_EQ(newest_step(files, "run"), 2);
}

// On the machine's own disk. With TUTTI_FIXTURE_FOLDER set, tests/readers/read_checkpoint.py reads
// what is written here with other people's libraries.
TEST(Writer, OnARealDisk) {
  const char* wanted = std::getenv("TUTTI_FIXTURE_FOLDER");
  const std::string folder =
      wanted != nullptr
          ? wanted
          : join_path(testing::TempDir(), "tutti_checkpoint_test_" + std::to_string(::getpid()));
  FileSystem& files = posix_file_system();
  files.remove_tree(folder);
  const FakeRun run(7);
  WriterOptions options = asynchronous();
  Writer writer(files, folder, options);
  ASSERT_TRUE(writer.save(run.tensors, run.state, IfBusy::wait));
  const SaveResult result = writer.wait().at(0);
  ASSERT_FALSE(result.error.has_value()) << result.error->what();
  EXPECT_EQ(newest_step(files, folder), 7);
  if (wanted == nullptr) files.remove_tree(folder);
}

// Training waits for the copy in memory and nothing else.
TEST(Writer, StallIsOneCopy) {
  // Sizes of a real state need gigabytes: TUTTI_STALL_BYTES measures them.
  const char* wanted = std::getenv("TUTTI_STALL_BYTES");
  const int64_t bytes = wanted != nullptr ? std::atoll(wanted) : int64_t{64} << 20;
  const int64_t half = bytes / 2;
  std::string source(static_cast<size_t>(bytes), 'a');
  std::string target(static_cast<size_t>(bytes), 'b');
  std::vector<TensorSource> tensors;  // 150 tensors, as adjacent as in an arena
  for (int64_t i = 0; i < 150; ++i) {
    const int64_t size = i < 149 ? bytes / 150 : bytes - 149 * (bytes / 150);
    tensors.push_back(
        {fmt::format("t{}", i), DType::u8, {size}, source.data() + i * (bytes / 150), {}, {}});
  }
  Snapshot snapshot(bytes);
  double copy_seconds = 1e30;
  double stall_seconds = 1e30;
  for (int round = 0; round < 5; ++round) {
    const double start = monotonic_seconds();
    parallel_threads(2, [&](int64_t i) {
      std::memcpy(target.data() + i * half, source.data() + i * half, static_cast<size_t>(half));
    });
    const double middle = monotonic_seconds();
    snapshot.copy(tensors, parallel_threads);
    copy_seconds = std::min(copy_seconds, middle - start);
    stall_seconds = std::min(stall_seconds, monotonic_seconds() - middle);
  }
  fmt::print("copy of {} bytes: {:.4f} s, stall {:.4f} s, ratio {:.3f}\n", bytes, copy_seconds,
             stall_seconds, stall_seconds / copy_seconds);
  EXPECT_TRUE(wanted == nullptr || stall_seconds <= 1.2 * copy_seconds);
}

}  // namespace
}  // namespace tutti::checkpoint
