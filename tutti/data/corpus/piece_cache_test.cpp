// Corpora that share the bound of one folder: one that is opened later finds space, and what fits
// beside the others stays.
#include "tutti/data/corpus/piece_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tutti/base/clock.h"
#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/testing/test_support.h"

namespace {

std::atomic<bool> no_holes{false};  // as on a file system that makes none in files

}  // namespace

extern "C" {

// In place of the C library's.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
int fallocate(int file, int mode, off_t offset, off_t size) {
  if (no_holes) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fallocate, file, mode, offset, size));
}
}

namespace tutti::data {
namespace {

constexpr int64_t kPiece = kChecksumPieceBytes;
constexpr int64_t kBound = 64 * kPiece;  // the least

// An object in memory.
class FarBytes final : public RangedFile {
 public:
  explicit FarBytes(std::string_view bytes) : bytes_(bytes) {}
  int64_t size_bytes() const override { return static_cast<int64_t>(bytes_.size()); }
  void read(int64_t offset, int64_t size, void* out) const override {
    std::memcpy(out, bytes_.data() + offset, static_cast<size_t>(size));
  }

 private:
  std::string_view bytes_;
};

// A corpus of so many pieces, the last of which is not whole.
class FarCorpus {
 public:
  FarCorpus(std::string name, int32_t pieces) : name_(std::move(name)) {
    write_counting_corpus(files_, name_, pieces * static_cast<int32_t>(kPiece / 4) - 5);
    const CorpusPaths paths = corpus_paths(name_);
    bin_ = files_.map(paths.bin);
    idx_ = files_.map(paths.idx);
    checksums_ = std::make_unique<CorpusChecksums>(files_, paths, size(), idx_->bytes());
  }
  int64_t size() const { return static_cast<int64_t>(bin_->bytes().size()); }
  int64_t pieces() const { return checksums_->pieces(); }
  std::unique_ptr<PieceCache> open(const std::string& folder) const {
    return std::make_unique<PieceCache>(std::make_unique<FarBytes>(bin_->bytes()), *checksums_,
                                        CacheOptions{folder, kBound}, name_);
  }
  // Pieces [0, count) of one epoch in its order; false: a byte was wrong.
  bool read(PieceCache& cache, uint64_t epoch, int64_t count) const {
    const auto all = static_cast<uint64_t>(pieces());
    bool right = true;
    std::string bytes;
    for (int64_t i = 0; i < count; ++i) {
      const auto piece =
          static_cast<int64_t>(permute_index(static_cast<uint64_t>(i), all, epoch + 1));
      bytes.resize(static_cast<size_t>(checksums_->piece_bytes(piece)));
      const auto end = piece * kPiece + static_cast<int64_t>(bytes.size());
      cache.read(piece * kPiece, end, bytes.data());
      right = right && bytes == bin_->bytes().substr(static_cast<size_t>(piece * kPiece),
                                                     static_cast<size_t>(kPiece));
    }
    return right;
  }
  bool read(PieceCache& cache, uint64_t epoch) const { return read(cache, epoch, pieces()); }

 private:
  MemoryFileSystem files_;
  std::string name_;
  std::unique_ptr<MappedFile> bin_, idx_;
  std::unique_ptr<CorpusChecksums> checksums_;
};

class PieceCacheTest : public testing::Test {
 protected:
  PieceCacheTest() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-cache-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~PieceCacheTest() override {
    no_holes = false;
    std::filesystem::remove_all(folder_);
  }
  int64_t disk_bytes(const std::string& name = {}) const {
    int64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      struct stat info {};
      if (!contains(entry.path().filename().string(), name)) continue;
      if (::stat(entry.path().c_str(), &info) == 0) bytes += 512 * int64_t{info.st_blocks};
    }
    return bytes;
  }

  const FarCorpus large_{"large", 80};
  const FarCorpus small_{"small", 6};
  std::string folder_;
};

TEST_F(PieceCacheTest, ALaterCorpusFindsSpaceInAFullFolder) {
  EXPECT_TRUE(large_.read(*large_.open(folder_), 0));
  EXPECT_GT(disk_bytes(), kBound - 2 * kPiece);
  const auto cache = small_.open(folder_);
  for (uint64_t epoch = 0; epoch < 3; ++epoch) EXPECT_TRUE(small_.read(*cache, epoch));
  EXPECT_EQ(cache->fetched_bytes(), small_.size());
  EXPECT_LE(disk_bytes(), kBound);
}

TEST_F(PieceCacheTest, OnlyWhatIsNeededIsTakenFromAnUnusedCorpus) {
  const FarCorpus first("first", 50);
  EXPECT_TRUE(first.read(*first.open(folder_), 0));
  const FarCorpus second("second", 20);
  EXPECT_TRUE(second.read(*second.open(folder_), 0));
  const auto again = first.open(folder_);
  EXPECT_TRUE(first.read(*again, 0, first.pieces()));
  EXPECT_GT(again->fetched_bytes(), 0);
  EXPECT_LE(again->fetched_bytes(), 7 * kPiece);  // 50 and 20 are 6 too many
}

TEST_F(PieceCacheTest, TheCorpusOpenedLongestAgoGivesFirst) {
  const FarCorpus old("old", 20);
  const FarCorpus young("young", 40);
  const auto set_age = [&](const std::string& name, std::time_t seconds) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (!contains(entry.path().filename().string(), name)) continue;
      const struct timespec times[2] = {{seconds, 0}, {seconds, 0}};
      ASSERT_EQ(::utimensat(AT_FDCWD, entry.path().c_str(), times, 0), 0);
    }
  };
  EXPECT_TRUE(old.read(*old.open(folder_), 0));
  EXPECT_TRUE(young.read(*young.open(folder_), 0));
  set_age("old", 1'000'000);
  set_age("young", 2'000'000);
  const FarCorpus third("third", 15);
  EXPECT_TRUE(third.read(*third.open(folder_), 0));
  const auto cache = young.open(folder_);
  EXPECT_TRUE(young.read(*cache, 0));
  EXPECT_EQ(cache->fetched_bytes(), 0);
  EXPECT_LE(disk_bytes("old"), 10 * kPiece);
  EXPECT_GT(disk_bytes("old"), 5 * kPiece);
}

TEST_F(PieceCacheTest, OpenCorporaHaveTheirShare) {
  const auto large = large_.open(folder_);
  EXPECT_TRUE(large_.read(*large, 0));
  const auto small = small_.open(folder_);
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_TRUE(large_.read(*large, epoch));
    EXPECT_TRUE(small_.read(*small, epoch));
  }
  EXPECT_EQ(small->fetched_bytes(), small_.size());
  const FarCorpus other("other", 80);
  const auto third = other.open(folder_);
  EXPECT_TRUE(other.read(*third, 0));
  EXPECT_TRUE(small_.read(*small, 0));
  EXPECT_EQ(small->fetched_bytes(), small_.size());
  // The two large ones share the rest.
  EXPECT_NEAR(static_cast<double>(disk_bytes("other")), static_cast<double>(disk_bytes("large")),
              3.0 * kPiece);
  EXPECT_LE(disk_bytes(), kBound);
}

// What another has taken is no longer here: announced, it is fetched before it is read.
TEST_F(PieceCacheTest, PiecesThatOthersTookAreFetchedAhead) {
  const auto cache = small_.open(folder_);
  EXPECT_TRUE(small_.read(*cache, 0));
  const auto file = std::filesystem::directory_iterator(folder_)->path().string();
  int taken = 0;
  while (PieceFile::take(file, kPiece)) ++taken;
  EXPECT_EQ(taken, small_.pieces());
  EXPECT_EQ(disk_bytes(), 0);
  cache->will_need(0, small_.size());
  constexpr double kPatienceSeconds = 20;
  const double begin = monotonic_seconds();
  while (cache->fetched_bytes() < 2 * small_.size()) {
    ASSERT_LT(monotonic_seconds() - begin, kPatienceSeconds);
    sleep_seconds(0.001);
  }
}

TEST_F(PieceCacheTest, WithoutHolesTheFolderStaysBounded) {
  no_holes = true;
  {
    const auto cache = large_.open(folder_);
    for (uint64_t epoch = 0; epoch < 2; ++epoch) EXPECT_TRUE(large_.read(*cache, epoch));
    EXPECT_LE(disk_bytes(), kBound);
    EXPECT_GT(disk_bytes(), kBound - 2 * kPiece);
    EXPECT_LT(cache->fetched_bytes(), 2 * large_.size());  // what is kept is of use
  }
  const auto cache = small_.open(folder_);
  for (uint64_t epoch = 0; epoch < 2; ++epoch) EXPECT_TRUE(small_.read(*cache, epoch));
  EXPECT_EQ(cache->fetched_bytes(), small_.size());
  EXPECT_EQ(disk_bytes("large"), 0);  // as a whole: no process has it open
}

}  // namespace
}  // namespace tutti::data
