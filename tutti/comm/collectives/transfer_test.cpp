#include <gtest/gtest.h>

#include "tutti/comm/testing/test_support.h"

namespace tutti::comm::testing {
namespace {

WorldOptions with(bool direct) {
  WorldOptions options;
  options.direct = direct;
  return options;
}

// Small, one piece, many pieces.
const std::vector<int64_t> kTransferCounts = {0, 1, 1001, 70003, 300007};

TEST(Transfer, RingsInBothDirectionsAtOnce) {
  for (const bool direct : {true, false}) {
    for (const int ranks : {2, 3, 5}) {
      run_threads(
          mesh_of(ranks),
          [&](World& world, Stream& stream) {
            Group& group = world.all();
            const int next = (group.rank() + 1) % group.size();
            const int previous = (group.rank() + group.size() - 1) % group.size();
            for (const DType dtype : kTypes) {
              for (const int64_t count : kTransferCounts) {
                Buffer up = Buffer(dtype, count).fill(static_cast<uint64_t>(group.rank()));
                Buffer down = Buffer(dtype, count).fill(static_cast<uint64_t>(group.rank() + 50));
                Buffer from_previous(dtype, count);
                Buffer from_next(dtype, count);
                // All send first: no rank waits for a receiver to be ready.
                const Ticket tickets[] = {group.send(stream, up.view(), next),
                                          group.send(stream, down.view(), previous),
                                          group.receive(stream, from_previous.view(), previous),
                                          group.receive(stream, from_next.view(), next)};
                for (const Ticket& ticket : tickets) ticket.wait(stream);
                ASSERT_TRUE(
                    from_previous.same(Buffer(dtype, count).fill(static_cast<uint64_t>(previous))));
                ASSERT_TRUE(
                    from_next.same(Buffer(dtype, count).fill(static_cast<uint64_t>(next + 50))));
              }
            }
          },
          with(direct));
    }
  }
}

TEST(Transfer, MessagesKeepTheirOrderIndependentOfOtherRanks) {
  run_threads(mesh_of(3), [](World& world, Stream& stream) {
    Group& group = world.all();
    constexpr int kMessages = 100;
    if (group.rank() < 2) {
      std::vector<Buffer> data;
      data.reserve(kMessages);
      Ticket last;
      for (int i = 0; i < kMessages; ++i) {
        data.push_back(Buffer(DType::i32, i).fill(static_cast<uint64_t>(i + group.rank())));
        last = group.send(stream, data.back().view(), 2);
      }
      last.wait(stream);
      return;
    }
    std::vector<Buffer> from[2];
    for (const int peer : {1, 0}) from[peer].reserve(kMessages);
    Ticket never;
    for (int i = 0; i < kMessages; ++i) {
      for (const int peer : {1, 0}) {
        from[peer].emplace_back(DType::i32, i);
        group.receive(stream, from[peer].back().view(), peer).wait(stream);
      }
    }
    for (const int peer : {1, 0}) {
      for (int i = 0; i < kMessages; ++i) {
        ASSERT_TRUE(from[peer][static_cast<size_t>(i)].same(
            Buffer(DType::i32, i).fill(static_cast<uint64_t>(i + peer))));
      }
    }
  });
}

TEST(Transfer, RunsBesideCollectives) {
  run_threads(mesh_of(2), [](World& world, Stream& stream) {
    Group& group = world.all();
    Buffer message(DType::f32, 10);
    message.fill(1);
    Buffer sum(DType::f32, 50000);
    sum.fill(2);
    // The message is needed by rank 1 before it joins the collective that rank 0 is in already.
    if (group.rank() == 0) {
      const Ticket reduced = group.all_reduce(stream, sum.view(), sum.view());
      group.send(stream, message.view(), 1).wait(stream);
      reduced.wait(stream);
    } else {
      Buffer got(DType::f32, 10);
      group.receive(stream, got.view(), 0).wait(stream);
      EXPECT_TRUE(got.same(message));
      group.all_reduce(stream, sum.view(), sum.view()).wait(stream);
    }
  });
}

}  // namespace
}  // namespace tutti::comm::testing
