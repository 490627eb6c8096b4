#include "tutti/engine/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tutti/base/dtype.h"
#include "tutti/base/error.h"

namespace tutti::engine {
namespace {

TEST(Arena, IsZeroFilledAndPageAligned) {
  const Arena arena("test", 3 * 4096 + 512);
  const auto* bytes = static_cast<const unsigned char*>(arena.data());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 4096, 0U);
  EXPECT_TRUE(std::all_of(bytes, bytes + arena.bytes(), [](unsigned char b) { return b == 0; }));
}

TEST(Arena, SharedMemoryIsVisibleThroughItsFile) {
  const Arena arena("test", 2 * 4096, ArenaKind::shared);
  const auto* bytes = static_cast<const unsigned char*>(arena.data());
  EXPECT_TRUE(std::all_of(bytes, bytes + arena.bytes(), [](unsigned char b) { return b == 0; }));
  ASSERT_GE(arena.file_descriptor(), 0);
  void* other = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, arena.file_descriptor(), 0);
  ASSERT_NE(other, MAP_FAILED);
  static_cast<char*>(other)[5] = 7;
  EXPECT_EQ(bytes[5], 7);
  munmap(other, 4096);
  EXPECT_EQ(Arena("private", 4096).file_descriptor(), -1);
}

TEST(Arena, ReturnsRangesAtOffsets) {
  const Arena arena("test", 1024);
  EXPECT_EQ(arena.at(256, 768), static_cast<char*>(arena.data()) + 256);
  EXPECT_EQ(arena.at(1024, 0), static_cast<char*>(arena.data()) + 1024);
}

TEST(ArenaDeathTest, AbortsOutsideAndMisaligned) {
  const Arena arena("acts", 1024);
  EXPECT_DEATH(arena.at(512, 513), "arena acts of 1024 bytes: range 512\\+513");
  EXPECT_DEATH(arena.at(-256, 1), "range -256");
  EXPECT_DEATH(arena.at(128, 1), "not a multiple of 256");
  EXPECT_DEATH(arena.poison(1000, 25), "poison 1000\\+25");
}

TEST(Arena, PoisonReadsAsNanAndInvalidToken) {
  const Arena arena("test", 1024);
  arena.poison(512, 256);
  EXPECT_TRUE(std::isnan(static_cast<const float*>(arena.at(512, 4))[0]));
  EXPECT_TRUE(std::isnan(to_f32(static_cast<const bf16*>(arena.at(512, 2))[0])));
  EXPECT_LT(static_cast<const int32_t*>(arena.at(512, 4))[63], 0);
  EXPECT_EQ(static_cast<const char*>(arena.data())[511], 0);
  EXPECT_EQ(static_cast<const char*>(arena.data())[768], 0);
}

TEST(Arena, MoveTransfersOwnership) {
  Arena first("first", 4096);
  void* data = first.data();
  Arena second(std::move(first));
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.name(), "first");
  Arena third("third", 0);
  EXPECT_EQ(third.data(), nullptr);
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.bytes(), 4096);
}

TEST(Arena, TooMuchMemoryIsAnError) {
  try {
    const Arena arena("huge", int64_t{1} << 60);
    FAIL() << "2^60 bytes were allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("arena huge"), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti::engine
