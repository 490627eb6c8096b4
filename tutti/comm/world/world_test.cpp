#include "tutti/comm/world/world.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/machine.h"
#include "tutti/comm/local/control_block.h"
#include "tutti/comm/local/group.h"
#include "tutti/comm/testing/test_support.h"

namespace tutti::comm::testing {
namespace {

WorldOptions options_of(int64_t rank, int64_t ranks, const std::shared_ptr<Store>& store) {
  WorldOptions options;
  options.rank = rank;
  options.mesh = mesh_of(ranks);
  options.store = store;
  options.timeout_seconds = 1;
  return options;
}

TEST(World, OfOneRankNeedsNothing) {
  World world(WorldOptions{});
  const auto stream = engine::make_cpu_stream(1);
  Buffer send = Buffer(DType::f32, 5).fill(1);
  Buffer receive(DType::f32, 5);
  world.group(spec::Axis::dp).all_reduce(*stream, send.view(), receive.view()).wait(*stream);
  EXPECT_TRUE(receive.same(send));
  world.group({spec::Axis::tp, spec::Axis::cp}).barrier(*stream).wait(*stream);
  world.abort("without listeners");
}

// What lies between two networks of one machine is a link, which can be cut: memory would hide it.
TEST(World, AnotherNetworkIsAnotherHost) {
  const std::string here = host_identity();
  EXPECT_EQ(host_identity(), here);
  constexpr int kNotAllowed = 77;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0) _exit(kNotAllowed);
    _exit(host_identity() != here ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotAllowed) GTEST_SKIP() << "no right to make a network";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(World, GroupsAreThoseOfTheMesh) {
  spec::Mesh mesh;
  mesh.tp = 2;
  mesh.dp = 3;
  run_threads(mesh, [](World& world, Stream& stream) {
    EXPECT_EQ(world.hosts(), std::vector<int>(6, 0));
    EXPECT_EQ(world.local_rank(), world.rank());
    EXPECT_EQ(world.local_size(), 6);
    Group& dp = world.group(spec::Axis::dp);
    EXPECT_EQ(dp.size(), 3);
    EXPECT_EQ(dp.rank(), world.rank() / 2);
    EXPECT_EQ(dp.info().members[1], world.rank() % 2 + 2);
    EXPECT_EQ(&dp, &world.group(spec::Axis::dp));
    EXPECT_EQ(world.group(spec::Axis::pp).size(), 1);
    EXPECT_EQ(world.expert_replicas().size(), 3);
    dp.barrier(stream).wait(stream);
  });
}

TEST(World, AbortBeforeTheFirstGroupFailsThatGroup) {
  run_threads(mesh_of(2), [](World& world, Stream& stream) {
    if (world.rank() == 1) world.abort("out of patience");
    const std::string message = peer_error([&] { world.all().barrier(stream).wait(stream); });
    EXPECT_EQ(message, "aborted by rank 1 before its first group: out of patience");
  });
}

// Formatting is the first touch of the memory: with too little of it a process is killed there.
TEST(World, UnformattedGroupMemoryTimesOut) {
  const auto segment = Segment::create(ControlBlock::bytes(2));
  EXPECT_EQ(peer_error([&] { ControlBlock(segment, 1, 2, 1, false, 0.05); }),
            "the rank that created the shared memory of a group has exited");
}

// In a world of more threads than cores no thread spins on a core that another rank needs, not in a
// pair of them either.
TEST(World, ThreadsSpinWhereAllOfThemHaveACore) {
  const int64_t cores = describe_machine().cores;
  for (const int64_t pairs : {int64_t{1}, cores}) {
    spec::Mesh mesh;
    mesh.tp = 2;
    mesh.dp = pairs;
    run_threads(mesh, [&](World& world, Stream& /*stream*/) {
      const auto& tp = dynamic_cast<const LocalGroup&>(world.group(spec::Axis::tp));
      EXPECT_EQ(tp.spins(), 2 * pairs <= cores);
      world.all();
    });
  }
}

TEST(World, NamesWhoDidNotArrive) {
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::thread> ranks;
  const auto start = [&](int64_t rank) {
    ranks.emplace_back([&, rank] {
      const std::string message = peer_error([&] { World world(options_of(rank, 5, store)); });
      EXPECT_EQ(message, "ranks 2, 4 of 5 did not arrive within 1.0 s; arrived: 0, 1, 3");
    });
  };
  start(1);
  start(3);
  // Rank 0's time begins when the others have arrived.
  for (const char* key : {"generation-1/host/1", "generation-1/host/3"}) store->get(key, 60);
  start(0);
  for (std::thread& rank : ranks) rank.join();
}

TEST(World, RefusesAnOldGeneration) {
  const std::shared_ptr<Store> store = make_memory_store();
  const std::shared_ptr<SegmentSource> segments = make_thread_segments();
  const auto arrive = [&](int64_t rank, uint64_t generation) {
    WorldOptions options = options_of(rank, 2, store);
    options.generation = generation;
    options.segments = segments;
    options.threads = true;
    options.timeout_seconds = 10;
    World world(std::move(options));
    world.all();
  };
  for (const uint64_t generation : {1U, 3U}) {
    std::thread other([&] { arrive(1, generation); });
    arrive(0, generation);
    other.join();
  }
  EXPECT_EQ(peer_error([&] { arrive(1, 2); }),
            "rank 1 came with generation 2, but the world is at generation 3");
}

// After a failure the ranks meet again; what was on its way in the old world is not seen in the
// new.
TEST(World, RebuildsUnderAHigherGeneration) {
  const std::shared_ptr<Store> store = make_memory_store();
  const std::shared_ptr<SegmentSource> segments = make_thread_segments();
  const auto live = [&](int64_t rank) {
    const auto stream = engine::make_cpu_stream(1);
    for (uint64_t generation = 1; generation <= 3; ++generation) {
      WorldOptions options = options_of(rank, 2, store);
      options.generation = generation;
      options.segments = segments;
      options.threads = true;
      options.timeout_seconds = 10;
      World world(std::move(options));
      Group& group = world.all();
      Buffer data = Buffer(DType::i32, 3).fill(generation);
      const auto send = [&] { group.send(*stream, data.view(), 1).wait(*stream); };
      if (generation < 3) {  // what rank 0 sends is never received
        if (rank == 1) world.abort("again");
        peer_error([&] {
          if (rank == 0) send();
          group.barrier(*stream).wait(*stream);
        });
        continue;
      }
      if (rank == 0) {
        send();
      } else {
        Buffer got(DType::i32, 3);
        group.receive(*stream, got.view(), 0).wait(*stream);
        EXPECT_TRUE(got.same(data));
      }
      group.barrier(*stream).wait(*stream);
    }
  };
  std::thread other([&] { live(1); });
  live(0);
  other.join();
}

}  // namespace
}  // namespace tutti::comm::testing
