// Every collective against plain loops: 1 to 9 ranks as threads, all types, odd and empty sizes, in
// place and not, through each of the ways a group may choose.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <numeric>

#include "tutti/comm/local/control_block.h"
#include "tutti/comm/testing/test_support.h"
#include "tutti/engine/recorder.h"

namespace tutti::comm::testing {
namespace {

// Empty, one, odd, within one meeting; kRounds: more than one round of staging memory.
const std::vector<int64_t> kCounts = {0, 1, 7, 1000};
constexpr int64_t kRounds = 270011;

struct Case {
  DType dtype;
  int64_t count;
};
std::vector<Case> cases() {
  std::vector<Case> out;
  for (const DType dtype : kTypes) {
    for (const int64_t count : kCounts) out.push_back({dtype, count});
    out.push_back({dtype, ControlBlock::kInlineBytes / dtype_bytes(dtype) + 1237});
  }
  out.push_back({DType::f32, kRounds});
  return out;
}

class Collectives : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  // Runs check(group, stream) on every rank for one type and count.
  void run(const std::function<void(Group&, Stream&, Case)>& check) const {
    WorldOptions options;
    options.direct = std::get<1>(GetParam());
    run_threads(
        mesh_of(ranks()),
        [&](World& world, Stream& stream) {
          Group& group = world.all();
          for (const Case& one : cases()) {
            if (one.count == kRounds && ranks() % 4 != 2) continue;  // slow: 2 and 6 ranks
            check(group, stream, one);
          }
        },
        options);
  }
};

TEST_P(Collectives, AllReduce) {
  run([](Group& group, Stream& stream, Case one) {
    for (const Reduce reduce : {Reduce::sum, Reduce::max}) {
      std::vector<Buffer> sends = buffers_of_ranks(group.size(), one.dtype, one.count, 11);
      const Buffer expected = reduced(sends, one.dtype, reduce);
      Buffer& mine = sends[static_cast<size_t>(group.rank())];
      Buffer out(one.dtype, one.count);
      group.all_reduce(stream, mine.view(), out.view(), reduce).wait(stream);
      ASSERT_TRUE(out.same(expected)) << dtype_name(one.dtype) << " " << one.count;
      group.all_reduce(stream, mine.view(), mine.view(), reduce).wait(stream);
      ASSERT_TRUE(mine.same(expected)) << "in place " << dtype_name(one.dtype) << " " << one.count;
    }
  });
}

TEST_P(Collectives, ReduceScatter) {
  run([](Group& group, Stream& stream, Case one) {
    std::vector<Buffer> sends =
        buffers_of_ranks(group.size(), one.dtype, one.count * group.size(), 22);
    const Buffer expected = reduced(sends, one.dtype, Reduce::sum);
    Buffer& mine = sends[static_cast<size_t>(group.rank())];
    const Buffer before = mine;
    const int64_t begin = group.rank() * one.count;
    Buffer out(one.dtype, one.count);
    group.reduce_scatter(stream, mine.view(), out.view()).wait(stream);
    ASSERT_TRUE(mine.same(before));
    group.reduce_scatter(stream, mine.view(), mine.view(begin, one.count)).wait(stream);
    for (int64_t i = 0; i < one.count; ++i) {
      ASSERT_EQ(out.at(i), expected.at(begin + i));
      ASSERT_EQ(mine.at(begin + i), expected.at(begin + i));
    }
  });
}

TEST_P(Collectives, AllGather) {
  run([](Group& group, Stream& stream, Case one) {
    std::vector<Buffer> sends = buffers_of_ranks(group.size(), one.dtype, one.count, 33);
    Buffer& mine = sends[static_cast<size_t>(group.rank())];
    Buffer out(one.dtype, one.count * group.size());
    Buffer in_place(one.dtype, one.count * group.size());
    const int64_t begin = group.rank() * one.count;
    for (int64_t i = 0; i < one.count; ++i) in_place.set(begin + i, mine.at(i));
    group.all_gather(stream, mine.view(), out.view()).wait(stream);
    group.all_gather(stream, in_place.view(begin, one.count), in_place.view()).wait(stream);
    for (int64_t i = 0; i < out.count(); ++i) {
      ASSERT_EQ(out.at(i), sends[static_cast<size_t>(i / one.count)].at(i % one.count));
    }
    ASSERT_TRUE(in_place.same(out));
  });
}

// The rank's own part lies on pages that may only be read.
TEST_P(Collectives, AllGatherInPlaceDoesNotWriteWhatIsSent) {
  WorldOptions options;
  options.direct = std::get<1>(GetParam());
  run_threads(
      mesh_of(ranks()),
      [&](World& world, Stream& stream) {
        Group& group = world.all();
        const int64_t page = ::sysconf(_SC_PAGESIZE);
        // In one meeting, and beyond.
        for (const int64_t part : {page, ControlBlock::kInlineBytes + page}) {
          const auto bytes = static_cast<size_t>(part * group.size());
          auto* data = static_cast<unsigned char*>(
              ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
          ASSERT_NE(data, MAP_FAILED);
          unsigned char* const mine = data + group.rank() * part;
          std::memset(mine, group.rank() + 1, static_cast<size_t>(part));
          ASSERT_EQ(::mprotect(mine, static_cast<size_t>(part), PROT_READ), 0);
          const int64_t count = part / dtype_bytes(DType::f32);
          group
              .all_gather(stream, {mine, DType::f32, count},
                          {data, DType::f32, count * group.size()})
              .wait(stream);
          stream.synchronize();
          for (int rank = 0; rank < group.size(); ++rank) {
            EXPECT_EQ(data[(rank + 1) * part - 1], rank + 1);
          }
          ::munmap(data, bytes);
        }
      },
      options);
}

TEST_P(Collectives, Broadcast) {
  run([](Group& group, Stream& stream, Case one) {
    for (const int root : {0, group.size() - 1}) {
      std::vector<Buffer> sends = buffers_of_ranks(group.size(), one.dtype, one.count, 44);
      Buffer& mine = sends[static_cast<size_t>(group.rank())];
      group.broadcast(stream, mine.view(), root).wait(stream);
      ASSERT_TRUE(mine.same(Buffer(one.dtype, one.count).fill(44 + static_cast<uint64_t>(root))));
    }
  });
}

// Rank r sends (r + 2 s) % 3 times `count`, and s elements more, to rank s.
int64_t uneven(int64_t count, int from, int to) { return (from + 2 * to) % 3 * count + to; }

TEST_P(Collectives, AllToAll) {
  run([](Group& group, Stream& stream, Case one) {
    const int size = group.size();
    std::vector<int64_t> send_counts;
    std::vector<int64_t> receive_counts;
    for (int other = 0; other < size; ++other) {
      send_counts.push_back(uneven(one.count, group.rank(), other));
      receive_counts.push_back(uneven(one.count, other, group.rank()));
    }
    const auto sum = [](const std::vector<int64_t>& counts) {
      return std::accumulate(counts.begin(), counts.end(), int64_t{0});
    };
    Buffer send(one.dtype, sum(send_counts));
    Buffer receive(one.dtype, sum(receive_counts));
    // Rank r's data for rank s is filled with seed 100 r + s.
    const auto data = [&](int from, int to) {
      return Buffer(one.dtype, uneven(one.count, from, to))
          .fill(100 * static_cast<uint64_t>(from) + static_cast<uint64_t>(to));
    };
    int64_t at = 0;
    for (int other = 0; other < size; ++other) {
      const Buffer part = data(group.rank(), other);
      for (int64_t i = 0; i < part.count(); ++i) send.set(at++, part.at(i));
    }
    group.all_to_all(stream, send.view(), receive.view(), send_counts, receive_counts).wait(stream);
    at = 0;
    for (int other = 0; other < size; ++other) {
      const Buffer part = data(other, group.rank());
      for (int64_t i = 0; i < part.count(); ++i) ASSERT_EQ(receive.at(at++), part.at(i));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives,
                         ::testing::Combine(::testing::Range(1, 10), ::testing::Bool()),
                         [](const auto& one) {
                           return fmt::format("{}{}", std::get<0>(one.param),
                                              std::get<1>(one.param) ? "Direct" : "Staged");
                         });

TEST(CollectivesOrder, ManyCallsOnTheirWayAtOnce) {
  run_threads(mesh_of(3), [](World& world, Stream& stream) {
    Group& group = world.all();
    constexpr int kCalls = 700;  // more than the queue holds
    std::vector<Buffer> values;
    values.reserve(kCalls);
    Ticket last;
    for (int call = 0; call < kCalls; ++call) {
      values.push_back(Buffer(DType::i32, 1 + call % 5).fill(static_cast<uint64_t>(call)));
      last = group.all_reduce(stream, values.back().view(), values.back().view());
    }
    last.wait(stream);
    for (int call = 0; call < kCalls; ++call) {
      const Buffer one = Buffer(DType::i32, 1 + call % 5).fill(static_cast<uint64_t>(call));
      for (int64_t i = 0; i < one.count(); ++i) {
        ASSERT_EQ(values[static_cast<size_t>(call)].at(i), 3 * one.at(i));
      }
    }
  });
}

TEST(CollectivesOrder, GroupsProgressIndependently) {
  spec::Mesh mesh;
  mesh.tp = 2;
  mesh.dp = 2;
  run_threads(mesh, [](World& world, Stream& stream) {
    Group& tp = world.group(spec::Axis::tp);
    Group& dp = world.group(spec::Axis::dp);
    for (int round = 0; round < 50; ++round) {
      Buffer a(DType::f32, 5000);
      Buffer b(DType::f32, 7000);
      for (int64_t i = 0; i < a.count(); ++i) a.set(i, static_cast<double>(world.rank()));
      for (int64_t i = 0; i < b.count(); ++i) b.set(i, static_cast<double>(world.rank()));
      // Some ranks ask for one first, some for the other.
      Ticket of_a;
      Ticket of_b;
      if (world.rank() % 3 == 0) of_a = tp.all_reduce(stream, a.view(), a.view());
      of_b = dp.all_reduce(stream, b.view(), b.view());
      if (world.rank() % 3 != 0) of_a = tp.all_reduce(stream, a.view(), a.view());
      of_a.wait(stream);
      of_b.wait(stream);
      EXPECT_TRUE(of_a.done());
      // tp varies fastest: ranks {0, 1}, {2, 3}; dp: {0, 2}, {1, 3}.
      ASSERT_EQ(a.at(4999), world.rank() < 2 ? 1 : 5);
      ASSERT_EQ(b.at(6999), world.rank() % 2 == 0 ? 2 : 4);
    }
  });
}

TEST(CollectivesOrder, BarrierHoldsEverybodyBack) {
  std::atomic<int> arrived{0};
  run_threads(mesh_of(4), [&](World& world, Stream& stream) {
    for (int round = 1; round <= 20; ++round) {
      arrived.fetch_add(1);
      world.all().barrier(stream).wait(stream);
      EXPECT_GE(arrived.load(), 4 * round);
      world.all().barrier(stream).wait(stream);
    }
  });
}

TEST(CollectivesRecord, NotesTheFullBufferAndTheRanks) {
  run_threads(mesh_of(2), [](World& world, Stream& stream) {
    engine::Recorder recorder;
    Buffer full(DType::bf16, 100);
    Buffer half(DType::bf16, 50);
    stream.set_recorder(&recorder);
    world.all().all_gather(stream, half.view(), full.view()).wait(stream);
    world.all().reduce_scatter(stream, full.view(), half.view()).wait(stream);
    stream.set_recorder(nullptr);
    ASSERT_EQ(recorder.records().size(), 2U);
    EXPECT_STREQ(recorder.records()[0].op, "all_gather");
    EXPECT_STREQ(recorder.records()[1].op, "reduce_scatter");
    for (const engine::OpRecord& record : recorder.records()) {
      EXPECT_EQ(record.dims, (std::array<int64_t, engine::kMaxOpDims>{200, 2, 0, 0, 0, 0}));
      EXPECT_EQ(record.bytes, 200);
    }
  });
}

}  // namespace
}  // namespace tutti::comm::testing
