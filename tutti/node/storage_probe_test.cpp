#include "tutti/node/storage_probe.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"

namespace tutti::node {
namespace {

// Keeps which bytes were read.
class NotingFile final : public RangedFile {
 public:
  explicit NotingFile(int64_t size) : size_(size) {}
  int64_t size_bytes() const override { return size_; }
  void read(int64_t offset, int64_t size, void*) const override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(offset >= 0 && size > 0 && offset + size <= size_) << offset << " " << size;
    offsets_.insert(offset);
    bytes_ += size;
  }
  std::multiset<int64_t> offsets() const { return offsets_; }
  int64_t bytes() const { return bytes_; }

 private:
  const int64_t size_;
  mutable std::mutex mutex_;
  mutable std::multiset<int64_t> offsets_;
  mutable int64_t bytes_ = 0;
};

TEST(TimedRequests, AreAsManyAsWantedAndEachIndexComesOnce) {
  for (const int threads : {1, 3, 8}) {
    for (const int64_t most : {1, 2, 7, 100}) {
      std::mutex mutex;
      std::set<int64_t> seen;
      const TimedRequests done =
          time_requests({threads, 60, most}, {}, [&](int thread, int64_t index) {
            const std::lock_guard lock(mutex);
            EXPECT_TRUE(thread >= 0 && thread < threads);
            EXPECT_TRUE(seen.insert(index).second);
          });
      EXPECT_EQ(static_cast<int64_t>(done.seconds.size()), most);
      EXPECT_EQ(static_cast<int64_t>(seen.size()), most);
      EXPECT_GT(done.per_second(), 0);
      EXPECT_LE(done.latency_seconds(0.5), done.latency_seconds(0.99));
    }
  }
}

TEST(TimedRequests, EndInTimeButNotBeforeTheFirst) {
  const TimedRequests done = time_requests({2, 0, 1'000'000}, {}, [](int, int64_t) {});
  EXPECT_GE(done.seconds.size(), 1U);
  EXPECT_LE(done.seconds.size(), 2U);
}

TEST(TimedRequests, AnExceptionOfAnyThreadComesOut) {
  std::atomic<int64_t> calls{0};
  EXPECT_THROW(time_requests({4, 60, 1'000'000}, {},
                             [&](int, int64_t index) {
                               ++calls;
                               if (index == 5) fail(ErrorKind::io, "broken");
                             }),
               Error);
  EXPECT_LT(calls, 1'000'000);
  int checks = 0;
  const auto stop = [&] {
    if (++checks == 3) throw std::string("stop");
  };
  EXPECT_THROW(time_requests({1, 60, 100}, stop, [](int, int64_t) {}), std::string);
}

TEST(DeepReads, AreOfEveryByteOnce) {
  for (const int64_t size : {kStreamBytes - 7, kStreamBytes, 7 * kStreamBytes + 1}) {
    for (const bool apart : {false, true}) {
      for (const int threads : {1, 3, 16}) {
        const NotingFile file(size);
        const TimedRequests done = read_deeply(file, {threads, 60}, apart, {});
        EXPECT_EQ(file.bytes(), size);
        int64_t next = 0;
        for (const int64_t offset : file.offsets()) {
          EXPECT_EQ(offset, next);
          next += kStreamBytes;
        }
        EXPECT_EQ(done.seconds.size(), file.offsets().size());
      }
    }
  }
}

TEST(RandomReads, AreInTheFileAndAlignedAndDiffer) {
  const NotingFile file(1 << 20);
  const TimedRequests done = read_randomly(file, 4096, {3, 60, 200}, 1, {});
  EXPECT_EQ(done.seconds.size(), 200U);
  EXPECT_EQ(file.bytes(), 200 * 4096);
  const std::multiset<int64_t> offsets = file.offsets();
  for (const int64_t offset : offsets) EXPECT_EQ(offset % 4096, 0);
  EXPECT_GT(std::set<int64_t>(offsets.begin(), offsets.end()).size(), 100U);
}

TEST(WholeFiles, AreWrittenDurablyAndReadBack) {
  MemoryFileSystem files;
  files.create_directories("/disk");
  files.start_record();
  const int64_t size = 2 * kStreamBytes + 5;
  EXPECT_GT(write_whole(files, "/disk/file", size, {}), 0);
  EXPECT_EQ(files.size_bytes("/disk/file"), size);
  EXPECT_EQ(files.operation(files.operation_count() - 1), "sync /disk/file");
  EXPECT_GT(read_whole(files, "/disk/file", {}), 0);
  const ColdFile cold = open_cold(files, "/disk/file", false);
  EXPECT_EQ(cold.source, ReadSource::memory);
  EXPECT_EQ(cold.file->size_bytes(), size);
}

}  // namespace
}  // namespace tutti::node
