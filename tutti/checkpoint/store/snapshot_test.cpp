#include "tutti/checkpoint/store/snapshot.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tutti/checkpoint/testing/checkpoint_fixture.h"

namespace tutti::checkpoint {
namespace {

TEST(Snapshot, HoldsTheMomentOfTheCopy) {
  FakeRun run(1);
  Snapshot snapshot(tensor_bytes(run.tensors));
  const std::vector<TensorSource> copies = snapshot.copy(run.tensors, parallel_threads);
  ASSERT_EQ(copies.size(), run.tensors.size());
  for (size_t i = 0; i < copies.size(); ++i) {
    EXPECT_EQ(copies[i].name, run.tensors[i].name);
    EXPECT_EQ(copies[i].shape, run.tensors[i].shape);
    EXPECT_TRUE(run.data(i).empty() || copies[i].data != run.tensors[i].data);
    EXPECT_EQ(std::string(static_cast<const char*>(copies[i].data), run.data(i).size()),
              run.data(i));
  }
}

// Neighbours, gaps and a backward jump between sources, split between threads at odd offsets.
TEST(Snapshot, AdjacentAndScatteredSources) {
  std::string arena(5'000'003, '\0');
  for (size_t i = 0; i < arena.size(); ++i) arena[i] = static_cast<char>(i * 31 >> 3);
  const auto part = [&](const char* name, int64_t begin, int64_t end) {
    return TensorSource{name, DType::u8, {end - begin}, arena.data() + begin, {}, {}};
  };
  const std::vector<TensorSource> sources = {part("a", 0, 1'500'001),
                                             part("b", 1'500'001, 2'000'000),
                                             part("none", 2'000'000, 2'000'000),
                                             part("c", 2'000'000, 2'000'001),
                                             part("d", 4'000'000, 5'000'003),
                                             part("e", 100, 3'000'000)};
  Snapshot snapshot(tensor_bytes(sources));
  for (int round = 0; round < 2; ++round) {
    const std::vector<TensorSource> copies = snapshot.copy(sources, parallel_threads);
    for (size_t i = 0; i < sources.size(); ++i) {
      EXPECT_EQ(std::memcmp(copies[i].data, sources[i].data,
                            static_cast<size_t>(tensor_bytes(sources[i]))),
                0);
    }
    arena[1'500'000] = static_cast<char>(round + 1);
  }
}

TEST(Snapshot, NothingToCopy) {
  Snapshot snapshot(0);
  EXPECT_TRUE(snapshot.copy({}, parallel_threads).empty());
}

TEST(SnapshotDeathTest, TooLargeIsABug) {
  const FakeRun run(1);
  Snapshot snapshot(10);
  EXPECT_DEATH(snapshot.copy(run.tensors, serially), "snapshot of .* bytes into 10 bytes");
}

TEST(Parallel, VisitsEveryIndexOnceAndRethrowsTheFirstError) {
  std::vector<int> seen(1000, 0);
  parallel_threads(1000, [&](int64_t i) { ++seen[static_cast<size_t>(i)]; });
  EXPECT_EQ(seen, std::vector<int>(1000, 1));
  parallel_threads(0, [](int64_t) { FAIL(); });
  EXPECT_THROW(parallel_threads(100,
                                [](int64_t i) {
                                  if (i == 50) fail(ErrorKind::corrupt, "at {}", i);
                                }),
               Error);
}

}  // namespace
}  // namespace tutti::checkpoint
