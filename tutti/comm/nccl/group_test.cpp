// Groups through NCCL on devices that are the host (comm/testing/on_host/nccl.cpp):
// TUTTI_HOST_DEVICES of them.
#include "tutti/comm/nccl/group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/comm/testing/test_support.h"
#include "tutti/engine/arena.h"
#include "tutti/engine/backend.h"

namespace tutti::comm::testing {
namespace {

struct Rank {
  int rank = 0;
  Stream& stream;
  std::vector<std::unique_ptr<Group>> groups = {};  // two, of all ranks
  Group& group() { return *groups[0]; }
};

// Each with a device of its own.
void run_ranks(int count, const std::function<void(Rank&)>& body) {
  const engine::Backend& cuda = engine::find_backend("cuda");
  ASSERT_GE(static_cast<int>(cuda.devices().size()), count) << "see TUTTI_HOST_DEVICES";
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Stream> stream = cuda.make_stream({.device = rank});
      Rank mine{rank, *stream};
      for (const char* name : {"first", "second"}) {
        GroupInfo info;
        info.name = name;
        info.rank = rank;
        info.members.clear();
        for (int i = 0; i < count; ++i) {
          info.members.push_back(i);
          for (int other = 0; other < count; ++other) {
            if (other != i) info.links.push_back({i, other});
          }
        }
        mine.groups.push_back(make_nccl_group(info, store, name, rank, 60));
      }
      body(mine);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Memory that both the host and the device reach.
class Pinned {
 public:
  Pinned(DType dtype, int64_t count)
      : arena_(std::make_unique<engine::Arena>(
            "test", std::max<int64_t>(1, count * dtype_bytes(dtype)), engine::ArenaKind::pinned)),
        dtype_(dtype),
        count_(count) {}
  explicit Pinned(Buffer buffer, DType dtype) : Pinned(dtype, buffer.count()) {
    if (count_ > 0) std::memcpy(arena_->data(), buffer.view().data, bytes());
  }
  Vector view() const { return view(0, count_); }
  Vector view(int64_t begin, int64_t count) const {
    return {static_cast<char*>(arena_->data()) + begin * dtype_bytes(dtype_), dtype_, count};
  }
  Buffer read() const {
    Buffer out(dtype_, count_);
    if (count_ > 0) std::memcpy(out.view().data, arena_->data(), bytes());
    return out;
  }

 private:
  size_t bytes() const { return static_cast<size_t>(count_ * dtype_bytes(dtype_)); }
  std::unique_ptr<engine::Arena> arena_;
  DType dtype_;
  int64_t count_;
};

// Of f32.
struct Numbers : Pinned {
  explicit Numbers(int64_t count, float value = 0) : Pinned(DType::f32, count) {
    for (int64_t i = 0; i < count; ++i) data()[i] = value;
  }
  float* data() const { return static_cast<float*>(view().data); }
  std::vector<float> values() const { return {data(), data() + view().count}; }
};

void expect_same(const Pinned& actual, const Buffer& expected, const char* what, DType dtype) {
  EXPECT_TRUE(actual.read().same(expected)) << what << " " << dtype_name(dtype);
}

// Nothing is done before the stream is waited for, and every buffer, in place or not, has what the
// plain references say.
TEST(NcclGroup, CollectivesOfAllTypes) {
  for (const int ranks : {2, 3, 4}) {
    run_ranks(ranks, [ranks](Rank& mine) {
      Group& group = mine.group();
      const auto me = static_cast<size_t>(mine.rank);
      for (const DType dtype : kTypes) {
        for (const int64_t count : {0, 1, 7, 1001}) {
          const int64_t begin = mine.rank * count;
          const std::vector<Buffer> sends = buffers_of_ranks(ranks, dtype, count, 11);
          const std::vector<Buffer> all_sends = buffers_of_ranks(ranks, dtype, count * ranks, 22);
          const Pinned send(sends[me], dtype), all_send(all_sends[me], dtype);
          const Pinned sum(dtype, count), part(dtype, count), gathered(dtype, count * ranks);
          const Pinned largest(sends[me], dtype), scattered(all_sends[me], dtype);
          const Pinned in_place(dtype, count * ranks), turned(dtype, count * ranks);
          const Pinned from_last(sends[me], dtype);
          if (count > 0) {
            std::memcpy(in_place.view(begin, count).data, send.view().data,
                        static_cast<size_t>(count * dtype_bytes(dtype)));
          }
          Stream& stream = mine.stream;
          group.all_reduce(stream, send.view(), sum.view()).wait(stream);
          group.all_reduce(stream, largest.view(), largest.view(), Reduce::max).wait(stream);
          group.reduce_scatter(stream, all_send.view(), part.view()).wait(stream);
          group.reduce_scatter(stream, scattered.view(), scattered.view(begin, count)).wait(stream);
          group.all_gather(stream, send.view(), gathered.view()).wait(stream);
          group.all_gather(stream, in_place.view(begin, count), in_place.view()).wait(stream);
          group.all_to_all(stream, all_send.view(), turned.view()).wait(stream);
          group.broadcast(stream, from_last.view(), ranks - 1).wait(stream);
          group.barrier(stream).wait(stream);
          stream.synchronize();

          const Buffer of_all = reduced(all_sends, dtype, Reduce::sum);
          Buffer own(dtype, count), everything(dtype, count * ranks), pieces(dtype, count * ranks);
          Buffer in_its_place = all_sends[me];
          for (int64_t i = 0; i < count; ++i) {
            own.set(i, of_all.at(begin + i));
            in_its_place.set(begin + i, of_all.at(begin + i));
            for (size_t rank = 0; rank < sends.size(); ++rank) {
              const int64_t to = static_cast<int64_t>(rank) * count + i;
              everything.set(to, sends[rank].at(i));
              pieces.set(to, all_sends[rank].at(begin + i));
            }
          }
          expect_same(sum, reduced(sends, dtype, Reduce::sum), "all-reduce", dtype);
          expect_same(largest, reduced(sends, dtype, Reduce::max), "maximum", dtype);
          expect_same(part, own, "reduce-scatter", dtype);
          expect_same(scattered, in_its_place, "reduce-scatter in place", dtype);
          expect_same(gathered, everything, "all-gather", dtype);
          expect_same(in_place, everything, "all-gather in place", dtype);
          expect_same(turned, pieces, "all-to-all", dtype);
          expect_same(from_last, sends.back(), "broadcast", dtype);
        }
      }
    });
  }
}

// Counts of their own from each to each, some of them 0.
TEST(NcclGroup, AllToAllOfAnyCounts) {
  run_ranks(3, [](Rank& mine) {
    const auto count = [](int64_t from, int64_t to) { return (from * 2 + to * 3) % 4; };
    std::vector<int64_t> sends, receives;
    std::vector<float> out, expected;
    for (int64_t other = 0; other < 3; ++other) {
      sends.push_back(count(mine.rank, other));
      receives.push_back(count(other, mine.rank));
      for (int64_t i = 0; i < sends.back(); ++i) {
        out.push_back(static_cast<float>(100 * mine.rank + 10 * other + i));
      }
      for (int64_t i = 0; i < receives.back(); ++i) {
        expected.push_back(static_cast<float>(100 * other + 10 * mine.rank + i));
      }
    }
    const Numbers from(static_cast<int64_t>(out.size())), to(static_cast<int64_t>(expected.size()));
    std::copy(out.begin(), out.end(), from.data());
    mine.group().all_to_all(mine.stream, from.view(), to.view(), sends, receives).wait(mine.stream);
    mine.stream.synchronize();
    EXPECT_EQ(to.values(), expected);
  });
}

// Rank 1 sends only when it has received: a receive that was asked for before must not hold back
// what rank 0 sends.
TEST(NcclGroup, DirectionsDoNotWaitForEachOther) {
  run_ranks(2, [](Rank& mine) {
    Numbers out(5, 1 + static_cast<float>(mine.rank)), in(5);
    if (mine.rank == 0) {
      for (int turn = 0; turn < 3; ++turn) {
        const Ticket received = mine.group().receive(mine.stream, in.view(), 1);
        EXPECT_FALSE(received.done());
        const Ticket sent = mine.group().send(mine.stream, out.view(), 1);
        received.wait(mine.stream);
        sent.wait(mine.stream);
        mine.stream.synchronize();
        EXPECT_EQ(in.values().back(), 2);
      }
    } else {
      for (int turn = 0; turn < 3; ++turn) {
        mine.group().receive(mine.stream, in.view(), 0).wait(mine.stream);
        mine.stream.synchronize();
        EXPECT_EQ(in.values().back(), 1);
        mine.group().send(mine.stream, out.view(), 0).wait(mine.stream);
        mine.stream.synchronize();
      }
    }
  });
}

// Rank 0 receives from rank 2 only after rank 1 has received from rank 0.
TEST(NcclGroup, PeersDoNotWaitForEachOther) {
  run_ranks(3, [](Rank& mine) {
    Numbers buffer(7, 3), other(7);
    Group& group = mine.group();
    if (mine.rank == 0) {
      const Ticket received = group.receive(mine.stream, other.view(), 2);
      const Ticket sent = group.send(mine.stream, buffer.view(), 1);
      received.wait(mine.stream);
      sent.wait(mine.stream);
    } else if (mine.rank == 1) {
      group.receive(mine.stream, other.view(), 0).wait(mine.stream);
      group.send(mine.stream, other.view(), 2).wait(mine.stream);
    } else {
      group.receive(mine.stream, buffer.view(), 1).wait(mine.stream);
      group.send(mine.stream, buffer.view(), 0).wait(mine.stream);
    }
    mine.stream.synchronize();
    if (mine.rank < 2) {
      EXPECT_EQ(other.values(), buffer.values());
    }
  });
}

// As a pipeline does: rank 0 never asks for its ticket, and waits in another group.
TEST(NcclGroup, MessagesStartWithoutAWait) {
  run_ranks(2, [](Rank& mine) {
    Numbers out(3, 4), in(3);
    if (mine.rank == 0) {
      const Ticket sent = mine.groups[0]->send(mine.stream, out.view(), 1);
      mine.groups[1]->receive(mine.stream, in.view(), 1).wait(mine.stream);
      mine.stream.synchronize();
      sent.wait(mine.stream);
    } else {
      sleep_seconds(0.1);  // comes after it was asked for
      mine.groups[0]->receive(mine.stream, in.view(), 0).wait(mine.stream);
      mine.groups[1]->send(mine.stream, in.view(), 0).wait(mine.stream);
    }
    mine.stream.synchronize();
    EXPECT_EQ(in.values(), out.values());
  });
}

TEST(NcclGroup, MessagesKeepTheirOrderBesideCollectives) {
  run_ranks(3, [](Rank& mine) {
    constexpr size_t kMessages = 300;  // more than a lane has events
    Group& group = mine.group();
    const int next = (mine.rank + 1) % 3, previous = (mine.rank + 2) % 3;
    std::vector<Numbers> out, in;
    for (size_t i = 0; i < kMessages; ++i) {
      out.emplace_back(static_cast<int64_t>(i % 4), static_cast<float>(i));
      in.emplace_back(static_cast<int64_t>(i % 4));
    }
    Numbers sum(2, 1);
    Ticket last, last_sent;
    for (size_t i = 0; i < kMessages; ++i) {
      last_sent = group.send(mine.stream, out[i].view(), next);
      last = group.receive(mine.stream, in[i].view(), previous);
      if (i % 100 == 0) group.all_reduce(mine.stream, sum.view(), sum.view()).wait(mine.stream);
    }
    last.wait(mine.stream);
    last_sent.wait(mine.stream);
    mine.stream.synchronize();
    EXPECT_TRUE(last.done());
    EXPECT_EQ(sum.values(), (std::vector<float>{27, 27}));
    for (size_t i = 0; i < kMessages; ++i) ASSERT_EQ(in[i].values(), out[i].values()) << i;
  });
}

// All ranks send before any receives: one call, which needs no second one to be done.
TEST(NcclGroup, AShiftGoesAroundTheRing) {
  for (const int ranks : {2, 3}) {
    run_ranks(ranks, [ranks](Rank& mine) {
      Group& group = mine.group();
      Numbers here(6, static_cast<float>(mine.rank)), there(6), sum(1, 1), none(0), nothing(0);
      for (int step = 1; step < ranks; ++step) {
        group.shift(mine.stream, here.view(), there.view()).wait(mine.stream);
        group.shift(mine.stream, none.view(), nothing.view()).wait(mine.stream);
        group.all_reduce(mine.stream, sum.view(), sum.view()).wait(mine.stream);
        mine.stream.synchronize();
        const auto from = static_cast<float>((mine.rank + ranks - step) % ranks);
        EXPECT_EQ(there.values(), std::vector<float>(6, from));
        std::swap(here, there);
      }
    });
  }
}

// NCCL connects in the first call of a kind, for which the host waits.
TEST(NcclGroup, AnAbortReachesWhoIsInACall) {
  run_ranks(2, [](Rank& mine) {
    Numbers own(1), all(2);
    if (mine.rank == 1) {
      sleep_seconds(0.05);
      return mine.group().abort("no more");
    }
    try {
      mine.group().all_gather(mine.stream, own.view(), all.view());
      FAIL() << "it was gathered";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::peer);
      EXPECT_NE(std::string(error.what()).find("no more"), std::string::npos) << error.what();
    }
  });
}

TEST(NcclGroup, WhoDoesNotComeIsMissed) {
  GroupInfo info;
  info.name = "two";
  info.members = {0, 1};
  try {
    make_nccl_group(info, make_memory_store(), "two", 0, 0.2);
    FAIL() << "it is there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer);
    EXPECT_NE(std::string(error.what()).find("here/1"), std::string::npos) << error.what();
  }
}

TEST(NcclGroupDeathTest, MessagesWithoutALinkAbort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto receive_without_link = [] {
    run_ranks(2, [](Rank& mine) {
      Numbers in(1);
      GroupInfo info;
      info.name = "without";
      info.rank = mine.rank;
      info.members = {0, 1};
      static const std::shared_ptr<Store> store = make_memory_store();
      const auto group = make_nccl_group(info, store, "without", mine.rank, 60);
      group->receive(mine.stream, in.view(), 1 - mine.rank);
    });
  };
  EXPECT_DEATH(receive_without_link(), "receive.* is along no link");
}

TEST(NcclGroup, AbortReachesRanksThatWaitForMessages) {
  run_ranks(2, [](Rank& mine) {
    Numbers in(1);
    if (mine.rank == 1) return mine.group().abort("no more");
    try {  // a device's stream cannot know yet: the next call does
      mine.group().receive(mine.stream, in.view(), 1).wait(mine.stream);
      mine.stream.synchronize();
      mine.group().barrier(mine.stream);
      FAIL() << "no rank has failed";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::peer);
      EXPECT_NE(std::string(error.what()).find("no more"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace tutti::comm::testing
