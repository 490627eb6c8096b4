#include "tutti/comm/nccl_group.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/comm/nccl_stand_in.h"
#include "tutti/engine/device_stream.h"

namespace tutti::comm {
namespace {

class StandInStream : public engine::DeviceStream {
 public:
  StandInStream() : DeviceStream(engine::cpu_ops()) {
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  ~StandInStream() override { cudaStreamDestroy(stream_); }
  void synchronize() override { stand_in_synchronize(stream_); }
  void* native_handle() override { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

struct Rank {
  int rank = 0;
  StandInStream stream;
  std::vector<std::unique_ptr<Group>> groups;  // two, of all ranks
  Group& group() { return *groups[0]; }
};

void run_ranks(int count, const std::function<void(Rank&)>& body) {
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      Rank mine;
      mine.rank = rank;
      for (const char* name : {"first", "second"}) {
        GroupInfo info;
        info.name = name;
        info.rank = rank;
        info.members.clear();
        for (int64_t i = 0; i < count; ++i) info.members.push_back(i);
        mine.groups.push_back(make_nccl_group(info, store, name, 0, 60));
      }
      body(mine);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Numbers {
  std::vector<float> values;
  explicit Numbers(size_t count, float value = 0) : values(count, value) {}
  engine::Vector view() {
    return engine::vector(values.data(), DType::f32, static_cast<int64_t>(values.size()));
  }
};

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
        EXPECT_EQ(in.values.back(), 2);
      }
    } else {
      for (int turn = 0; turn < 3; ++turn) {
        mine.group().receive(mine.stream, in.view(), 0).wait(mine.stream);
        mine.stream.synchronize();
        EXPECT_EQ(in.values.back(), 1);
        mine.group().send(mine.stream, out.view(), 0).wait(mine.stream);
        mine.stream.synchronize();
      }
    }
  });
}

// Rank 0 hears from rank 2 only after rank 1 has heard from rank 0.
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
      EXPECT_EQ(other.values, buffer.values);
    }
  });
}

// As a pipeline does: rank 0 never asks for its ticket, and waits in another group.
TEST(NcclGroup, AMessageStartsWithoutBeingWaitedFor) {
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
    EXPECT_EQ(in.values, out.values);
  });
}

TEST(NcclGroup, MessagesKeepTheirOrderBesideCollectives) {
  run_ranks(3, [](Rank& mine) {
    constexpr size_t kMessages = 300;  // more than a lane has events
    Group& group = mine.group();
    const int next = (mine.rank + 1) % 3, previous = (mine.rank + 2) % 3;
    std::vector<Numbers> out, in;
    for (size_t i = 0; i < kMessages; ++i) {
      out.emplace_back(i % 4, static_cast<float>(i));
      in.emplace_back(i % 4);
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
    EXPECT_EQ(sum.values, (std::vector<float>{27, 27}));
    for (size_t i = 0; i < kMessages; ++i) ASSERT_EQ(in[i].values, out[i].values) << i;
  });
}

TEST(NcclGroup, AnAbortReachesWhoWaitsForAMessage) {
  run_ranks(2, [](Rank& mine) {
    Numbers in(1);
    if (mine.rank == 1) return mine.group().abort("no more");
    try {
      mine.group().receive(mine.stream, in.view(), 1).wait(mine.stream);
      FAIL() << "it was received";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::peer);
      EXPECT_NE(std::string(error.what()).find("no more"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace tutti::comm
