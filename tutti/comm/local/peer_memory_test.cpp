#include "tutti/comm/local/peer_memory.h"

#include <gtest/gtest.h>

#include <memory>

#include "tutti/base/error.h"
#include "tutti/comm/local/control_block.h"
#include "tutti/comm/local/segment.h"
#include "tutti/engine/arena.h"

namespace tutti::comm {
namespace {

bool reachable(const Location& at) { return at.arena != Location::kUnreachable; }

TEST(PeerMemory, ReachesSharedArenasUntilTheyAreWithdrawn) {
  const auto segments = make_thread_segments();
  PeerMemory memory(segments->open("memory", PeerMemory::bytes(1), true, 1), 0, 1, false);
  const engine::Arena arena("gradients", 8192, engine::ArenaKind::shared);
  const engine::Arena other("elsewhere", 8192);
  char* data = static_cast<char*>(arena.data());
  EXPECT_FALSE(reachable(memory.locate(data, 16)));
  memory.share(arena);
  EXPECT_TRUE(reachable(memory.locate(data, 8192)));
  EXPECT_FALSE(reachable(memory.locate(data + 8000, 193)));  // beyond its end
  EXPECT_FALSE(reachable(memory.locate(other.data(), 16)));
  EXPECT_EQ(memory.reach(0, memory.locate(data + 256, 16)), data + 256);
  memory.withdraw(arena);
  EXPECT_FALSE(reachable(memory.locate(data, 16)));
}

TEST(PeerMemory, WithdrawnArenasAreNotReused) {
  const auto segments = make_thread_segments();
  PeerMemory memory(segments->open("memory", PeerMemory::bytes(1), true, 1), 0, 1, false);
  const auto first = std::make_unique<engine::Arena>("a", 4096, engine::ArenaKind::shared);
  const engine::Arena second("b", 4096, engine::ArenaKind::shared);
  memory.share(*first);
  memory.share(second);
  memory.withdraw(*first);
  const Location at = memory.locate(second.data(), 4096);
  ASSERT_TRUE(reachable(at));
  EXPECT_EQ(memory.reach(0, at), second.data());
}

// Two processes that were both started as the same rank.
TEST(Segment, ARankIsThereOnce) {
  const auto segment = Segment::create(4096);
  const auto other = Segment::attach(segment->path(), 4096);
  segment->hold(1);
  other->hold(0);
  EXPECT_TRUE(other->is_held(1));
  EXPECT_THROW(other->hold(1), Error);
}

}  // namespace
}  // namespace tutti::comm
