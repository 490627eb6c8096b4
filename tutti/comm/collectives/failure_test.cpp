// What the others learn when a rank aborts, leaves, asks for something else, or comes late.
#include <gtest/gtest.h>

#include <atomic>

#include "tutti/base/clock.h"
#include "tutti/comm/testing/test_support.h"

namespace tutti::comm::testing {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Abort, AllWaitingRanksLearnTheCulpritAndReason) {
  for (int culprit = 0; culprit < 4; ++culprit) {
    std::atomic<int> in_time = 0;  // ranks that have left the first call
    run_threads(mesh_of(4), [&](World& world, Stream& stream) {
      Group& group = world.all();
      Buffer data(DType::f32, 40000);
      data.fill(1);
      group.all_reduce(stream, data.view(), data.view()).wait(stream);
      ++in_time;
      const double begin = monotonic_seconds();
      if (world.rank() == culprit) {
        await(in_time, 4);
        sleep_seconds(0.02);
        group.abort("lost its mind");
      }
      const std::string message =
          peer_error([&] { group.all_reduce(stream, data.view(), data.view()).wait(stream); });
      EXPECT_TRUE(contains(message, fmt::format("aborted by rank {} after all_reduce(sum, 40000 "
                                                "f32), call 1: lost its mind",
                                                culprit)))
          << message;
      EXPECT_LT(monotonic_seconds() - begin, kAtOnceSeconds);
      EXPECT_EQ(message, peer_error([&] { group.barrier(stream); })) << "later calls, too";
    });
  }
}

TEST(Abort, ReachesRanksThatWaitInOtherGroups) {
  spec::Mesh mesh;
  mesh.tp = 2;
  mesh.dp = 2;
  run_threads(mesh, [&](World& world, Stream& stream) {
    Group& tp = world.group(spec::Axis::tp);
    Group& dp = world.group(spec::Axis::dp);
    Buffer data(DType::f32, 10);
    data.fill(1);
    std::string message;
    if (world.rank() == 0) {
      tp.abort("power cut");
      message = peer_error([&] { tp.barrier(stream).wait(stream); });
    } else if (world.rank() == 1) {  // waits for rank 3 in dp, and learns of it in tp
      message = peer_error([&] { dp.barrier(stream).wait(stream); });
    } else {  // 2 waits for rank 0 in dp; 3 for a message of rank 2
      message = peer_error([&] {
        if (world.rank() == 2) dp.barrier(stream).wait(stream);
        tp.receive(stream, data.view(), 0).wait(stream);
      });
    }
    EXPECT_TRUE(contains(message, "aborted by rank 0 before its first collective: power cut"))
        << message;
  });
}

TEST(Abort, OfLargeCallsLeavesNoRankInForeignMemory) {
  // The buffers die right after the error: a rank that still worked in them would crash here, or
  // show under a sanitizer.
  for (int round = 0; round < 30; ++round) {
    run_threads(mesh_of(3), [&](World& world, Stream& stream) {
      try {
        for (int call = 0; call < 10; ++call) {
          Buffer data(DType::f32, 300000);
          const Ticket ticket = world.all().all_reduce(stream, data.view(), data.view());
          if (world.rank() == round % 3 && call == round % 10) world.abort("now");
          ticket.wait(stream);
        }
        // The abort may come when the last call is over for everybody: whatever follows learns of
        // it.
        world.all().barrier(stream).wait(stream);
        FAIL() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::peer);
      }
    });
  }
}

TEST(Mismatch, NamesBothRanksAndBothCallsOnEveryRank) {
  const auto differs = [](const std::function<void(Group&, Stream&, bool odd)>& call,
                          const std::string& first, const std::string& second) {
    run_threads(mesh_of(3), [&](World& world, Stream& stream) {
      Group& group = world.all();
      // A rank that leaves the barrier late may learn of the failure there.
      const std::string message = peer_error([&] {
        group.barrier(stream).wait(stream);
        call(group, stream, group.rank() == 2);
      });
      EXPECT_TRUE(contains(message, "call 2: rank 0 " + first + ", rank 2 " + second)) << message;
    });
  };
  const auto reduce = [](DType dtype, int64_t count, Reduce how = Reduce::sum) {
    return [=](Group& group, Stream& stream) {
      Buffer data(dtype, count);
      group.all_reduce(stream, data.view(), data.view(), how).wait(stream);
    };
  };
  const auto pick = [](auto usual, auto odd) {
    return [=](Group& group, Stream& stream, bool is_odd) {
      is_odd ? odd(group, stream) : usual(group, stream);
    };
  };
  differs(pick(reduce(DType::f32, 9), reduce(DType::f32, 8)), "all_reduce(sum, 9 f32)",
          "all_reduce(sum, 8 f32)");
  differs(pick(reduce(DType::f32, 90000), reduce(DType::f32, 9)), "all_reduce(sum, 90000 f32)",
          "all_reduce(sum, 9 f32)");
  differs(pick(reduce(DType::f32, 9), reduce(DType::i32, 9)), "all_reduce(sum, 9 f32)",
          "all_reduce(sum, 9 i32)");
  differs(pick(reduce(DType::f32, 9), reduce(DType::f32, 9, Reduce::max)), "all_reduce(sum, 9 f32)",
          "all_reduce(max, 9 f32)");
  differs(pick(reduce(DType::bf16, 9),
               [](Group& group, Stream& stream) { group.barrier(stream).wait(stream); }),
          "all_reduce(sum, 9 bf16)", "barrier");
  differs(
      [](Group& group, Stream& stream, bool odd) {
        Buffer data(DType::i64, 3);
        group.broadcast(stream, data.view(), odd ? 1 : 0).wait(stream);
      },
      "broadcast(3 i64 from 0)", "broadcast(3 i64 from 1)");
}

TEST(Mismatch, OfCountsInAllToAll) {
  run_threads(mesh_of(2), [](World& world, Stream& stream) {
    Buffer send(DType::f32, 4);
    Buffer receive(DType::f32, 4);
    const std::vector<int64_t> counts = {2, 2};
    const std::vector<int64_t> other = {1, 3};
    const std::string message = peer_error([&] {
      world.all()
          .all_to_all(stream, send.view(), receive.view(), world.rank() == 0 ? other : counts,
                      counts)
          .wait(stream);
    });
    EXPECT_TRUE(contains(message, "rank 0 sends 1 elements to rank 0, which expects 2")) << message;
  });
}

TEST(Mismatch, OfMessages) {
  run_threads(mesh_of(2), [](World& world, Stream& stream) {
    Group& group = world.all();
    Buffer data(DType::f32, 5);
    const std::string message = peer_error([&] {
      if (world.rank() == 0) {
        group.send(stream, data.view(), 1).wait(stream);
        group.receive(stream, data.view(), 1).wait(stream);
      } else {
        group.receive(stream, data.view(0, 4), 0).wait(stream);
      }
    });
    EXPECT_TRUE(
        contains(message, "message 1: rank 0 send(5 f32 to 1), rank 1 receive(4 f32 from 0)"))
        << message;
  });
}

TEST(Leaving, IsAnErrorForWaitingRanks) {
  run_threads(mesh_of(3), [](World& world, Stream& stream) {
    const auto meet = [&] { world.all().barrier(stream).wait(stream); };
    if (world.rank() == 1) return meet();
    // A rank that leaves the first barrier late may learn of the failure there.
    const std::string message = peer_error([&] {
      meet();
      meet();
    });
    EXPECT_TRUE(contains(message, "rank 1 has left the group, after barrier, call 1")) << message;
  });
}

TEST(Activity, ShowsWhoIsInWhatSinceWhen) {
  run_threads(mesh_of(3), [](World& world, Stream& stream) {
    Group& group = world.all();
    Buffer data(DType::bf16, 30000);
    data.fill(1);
    const double begin = monotonic_seconds();  // no rank leaves the barrier before
    group.barrier(stream).wait(stream);
    if (world.rank() != 1) {
      group.all_reduce(stream, data.view(), data.view()).wait(stream);
      return;
    }
    std::vector<RankActivity> seen;
    const auto both_inside = [&] {
      return seen[0].inside && seen[0].calls == 2 && seen[2].inside && seen[2].calls == 2;
    };
    do {
      sleep_seconds(0.001);
      seen = world.activity();
    } while (!both_inside() && monotonic_seconds() < begin + 60);
    ASSERT_EQ(seen.size(), 3U);
    EXPECT_FALSE(seen[1].inside);
    EXPECT_EQ(seen[1].calls, 1U);
    for (const size_t rank : {0U, 2U}) {
      EXPECT_TRUE(seen[rank].inside);
      EXPECT_EQ(seen[rank].calls, 2U);
      EXPECT_EQ(call_text(seen[rank].last), "all_reduce(sum, 30000 bf16)");
      EXPECT_GE(seen[rank].since_seconds, begin - 1e-6) << "reported in whole nanoseconds";
      EXPECT_TRUE(seen[rank].alive);
    }
    EXPECT_TRUE(contains(activity_text(seen[2], seen[2].since_seconds + 2),
                         "rank 2: in all_reduce(sum, 30000 bf16), call 2, for 2.0"))
        << activity_text(seen[2], seen[2].since_seconds + 2);
    group.all_reduce(stream, data.view(), data.view()).wait(stream);
  });
}

}  // namespace
}  // namespace tutti::comm::testing
