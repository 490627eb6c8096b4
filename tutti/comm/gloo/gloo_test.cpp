// Ranks that behave as if they were on several hosts, over TCP on loopback.
#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/clock.h"
#include "tutti/comm/testing/test_support.h"

namespace tutti::comm::testing {
namespace {

// Each rank a host of its own; or two to a host, so that large reductions go through hosts.
const Arrange kApart = [](WorldOptions& own) { own.host = std::to_string(own.rank); };
const Arrange kPairs = [](WorldOptions& own) { own.host = std::to_string(own.rank / 2); };

void on_hosts(int ranks, const Arrange& hosts, const RankBody& body) {
  run_threads(mesh_of(ranks), body, {}, 1, hosts);
}

class Gloo : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  void run(const RankBody& body) const {
    on_hosts(std::get<0>(GetParam()), std::get<1>(GetParam()) ? kPairs : kApart, body);
  }
};

TEST_P(Gloo, EveryCollectiveAgainstPlainLoops) {
  run([](World& world, Stream& stream) {
    Group& group = world.all();
    const int size = group.size();
    const auto rank = static_cast<size_t>(group.rank());
    for (const DType dtype : kTypes) {
      for (const int64_t count : {0, 1, 5, 4099}) {
        std::vector<Buffer> sends = buffers_of_ranks(size, dtype, count, 9);
        // Whole numbers: sums do not depend on the order of hosts.
        for (Buffer& send : sends) {
          for (int64_t i = 0; i < count; ++i) send.set(i, std::floor(send.at(i) / 64));
        }
        const Buffer sum = reduced(sends, dtype, Reduce::sum);
        const Buffer max = reduced(sends, dtype, Reduce::max);
        Buffer out(dtype, count);
        group.all_reduce(stream, sends[rank].view(), out.view()).wait(stream);
        ASSERT_TRUE(out.same(sum)) << dtype_name(dtype) << " " << count;
        group.all_reduce(stream, sends[rank].view(), out.view(), Reduce::max).wait(stream);
        ASSERT_TRUE(out.same(max)) << dtype_name(dtype) << " " << count;
        Buffer all(dtype, count * size);
        group.all_gather(stream, sends[rank].view(), all.view()).wait(stream);
        for (int64_t i = 0; i < all.count(); ++i) {
          ASSERT_EQ(all.at(i), sends[static_cast<size_t>(i / count)].at(i % count));
        }
        group.reduce_scatter(stream, all.view(), out.view()).wait(stream);
        for (int64_t i = 0; i < count; ++i) {
          // A small whole number times the ranks: exact in f32, rounded once to bf16.
          Buffer expected(dtype, 1);
          expected.set(0, sends[rank].at(i) * size);
          ASSERT_EQ(out.at(i), expected.at(0));
        }
        group.all_to_all(stream, all.view(), Buffer(dtype, count * size).view()).wait(stream);
        Buffer mine = sends[rank];
        group.broadcast(stream, mine.view(), size - 1).wait(stream);
        ASSERT_TRUE(mine.same(sends.back()));
      }
    }
    group.barrier(stream).wait(stream);
  });
}

// The next call is begun while one is carried out: also where it writes what the other still sends.
TEST_P(Gloo, CallsInARowOnOneBuffer) {
  run([](World& world, Stream& stream) {
    Group& group = world.all();
    const int size = group.size();
    const int64_t part = 70001;
    const auto value = [&](int64_t i, int turn) {
      return static_cast<double>(i % part % 1000 + turn);
    };
    for (int turn = 0; turn < 5; ++turn) {
      const int root = turn % size;
      Buffer data(DType::f32, part * size);
      for (int64_t i = 0; i < part * size && group.rank() == root; ++i) {
        data.set(i, value(i, turn));
      }
      Buffer scattered(DType::f32, part);
      Buffer copy(DType::f32, part * size);
      // From the root to all; each rank's part to all; sums of equal parts; and back.
      group.broadcast(stream, data.view(), root);
      group.all_gather(stream, data.view(group.rank() * part, part), copy.view());
      group.all_gather(stream, copy.view(0, part), data.view());
      group.all_reduce(stream, data.view(), data.view(), Reduce::max);
      group.reduce_scatter(stream, data.view(), scattered.view(), Reduce::max);
      group.all_gather(stream, scattered.view(), data.view()).wait(stream);
      for (int64_t i = 0; i < data.count(); ++i) {
        ASSERT_EQ(data.at(i), value(i, turn)) << turn << " " << i;
      }
    }
  });
}

TEST_P(Gloo, MessagesInBothDirections) {
  run([](World& world, Stream& stream) {
    Group& group = world.all();
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    for (const int64_t count : {0, 3, 50001}) {
      Buffer mine = Buffer(DType::bf16, count).fill(static_cast<uint64_t>(group.rank()));
      Buffer up(DType::bf16, count);
      Buffer down(DType::bf16, count);
      const Ticket tickets[] = {
          group.send(stream, mine.view(), next), group.send(stream, mine.view(), previous),
          group.receive(stream, up.view(), previous), group.receive(stream, down.view(), next)};
      for (const Ticket& ticket : tickets) ticket.wait(stream);
      ASSERT_TRUE(up.same(Buffer(DType::bf16, count).fill(static_cast<uint64_t>(previous))));
      ASSERT_TRUE(down.same(Buffer(DType::bf16, count).fill(static_cast<uint64_t>(next))));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Gloo,
                         ::testing::Combine(::testing::Values(2, 3, 5), ::testing::Bool()));

TEST(GlooOrder, EveryRankGetsTheSameBits) {
  std::vector<Buffer> results(5, Buffer(DType::bf16, 3001));
  for (int run = 0; run < 2; ++run) {
    on_hosts(5, kPairs, [&](World& world, Stream& stream) {
      Buffer data = Buffer(DType::bf16, 3001).fill(static_cast<uint64_t>(world.rank()));
      world.all().all_reduce(stream, data.view(), data.view()).wait(stream);
      Buffer& known = results[static_cast<size_t>(world.rank())];
      EXPECT_TRUE(run == 0 || known.same(data));
      known = data;
    });
  }
  for (const Buffer& result : results) EXPECT_TRUE(result.same(results[0]));
}

TEST(GlooFailure, AbortReachesEveryRankWithItsReason) {
  for (const Arrange& hosts : {kApart, kPairs}) {
    std::atomic<int> in_time = 0;  // ranks that have left the barrier
    on_hosts(4, hosts, [&](World& world, Stream& stream) {
      Group& group = world.all();
      Buffer data = Buffer(DType::f32, 10).fill(1);
      group.barrier(stream).wait(stream);
      ++in_time;
      const double begin = monotonic_seconds();
      if (world.rank() == 2) {
        await(in_time, 4);
        sleep_seconds(0.05);
        group.abort("out of ideas");
      }
      const std::string message =
          peer_error([&] { group.all_reduce(stream, data.view(), data.view()).wait(stream); });
      EXPECT_NE(message.find("aborted by rank 2 after barrier, call 1: out of ideas"),
                std::string::npos)
          << message;
      EXPECT_LT(monotonic_seconds() - begin, kAtOnceSeconds);
    });
  }
}

// How long connections may take to be made is not a limit of the work between calls.
TEST(GlooWait, LastsAsLongAsAnotherRankComputes) {
  constexpr double kStartSeconds = 5;
  const Arrange hosts = [](WorldOptions& own) {
    own.host = std::to_string(own.rank);
    own.timeout_seconds = kStartSeconds;
  };
  on_hosts(2, hosts, [](World& world, Stream& stream) {
    Group& group = world.all();
    Buffer data = Buffer(DType::f32, 10).fill(1);
    group.barrier(stream).wait(stream);
    if (world.rank() == 1) sleep_seconds(kStartSeconds + 2);
    group.all_reduce(stream, data.view(), data.view()).wait(stream);
    group.barrier(stream).wait(stream);
  });
}

TEST(GlooFailure, DifferentCallsAreNamed) {
  on_hosts(3, kApart, [](World& world, Stream& stream) {
    Group& group = world.all();
    Buffer data = Buffer(DType::f32, 10).fill(1);
    const int64_t count = world.rank() == 1 ? 9 : 10;
    const std::string message = peer_error(
        [&] { group.all_reduce(stream, data.view(0, count), data.view(0, count)).wait(stream); });
    EXPECT_NE(message.find("call 1: rank 0 all_reduce(sum, 10 f32), rank 1 all_reduce(sum, 9 f32)"),
              std::string::npos)
        << message;
  });
}

}  // namespace
}  // namespace tutti::comm::testing
