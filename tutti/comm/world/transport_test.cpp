#include "tutti/comm/world/transport.h"

#include <gtest/gtest.h>

namespace tutti::comm {
namespace {

TEST(Transport, IsNcclWhereEveryRankHasAGpuOfItsOwn) {
  // The same address on two hosts is not the same GPU.
  const TransportChoice choice =
      choose_transport({{"a", "1a"}, {"a", "2b"}, {"b", "1a"}, {"b", "2b"}}, true);
  EXPECT_TRUE(choice.nccl);
  EXPECT_EQ(choice.why, "NCCL: one GPU per rank");
  EXPECT_FALSE(choose_transport({{"a", "1a"}, {"a", "2b"}}, false).nccl);
}

TEST(Transport, IsTheHostsMemoryWhereAGpuIsShared) {
  const TransportChoice choice =
      choose_transport({{"a", "1a"}, {"b", "1a"}, {"a", "2b"}, {"b", "1a"}}, true);
  EXPECT_FALSE(choice.nccl);
  EXPECT_EQ(choice.why, "through the hosts' memory, slowly: ranks 1 and 3 share the GPU 1a");
}

TEST(Transport, IsTheHostsMemoryWithoutGpus) {
  EXPECT_FALSE(choose_transport({{"a", ""}, {"a", ""}}, true).nccl);
  EXPECT_EQ(choose_transport({{"a", ""}, {"a", ""}}, true).why, "");
  const TransportChoice mixed = choose_transport({{"a", "1a"}, {"a", ""}}, true);
  EXPECT_FALSE(mixed.nccl);
  EXPECT_EQ(mixed.why, "through the hosts' memory: rank 1 has no GPU");
}

TEST(Transport, LocationsRoundTripAsText) {
  for (const RankLocation& location :
       {RankLocation{"host", "0000:1a:00.0"}, RankLocation{"host", ""}}) {
    EXPECT_EQ(parse_rank_location(to_text(location)), location);
  }
}

}  // namespace
}  // namespace tutti::comm
