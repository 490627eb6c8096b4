#include "tutti/node/core_share.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace tutti::node {
namespace {

TEST(CoreShare, RanksOfAHostHaveDisjointCoresOfEqualNumber) {
  const auto all = static_cast<int64_t>(share_cores(0, 1).cores.size());
  for (int64_t ranks = 1; ranks <= all; ++ranks) {
    std::set<int> taken;
    const size_t each = share_cores(0, ranks).cores.size();
    EXPECT_GE(each, 1U);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const CoreShare share = share_cores(rank, ranks);
      EXPECT_EQ(share.sharing, 1);
      EXPECT_EQ(share.cores.size(), each);
      for (const int core : share.cores) EXPECT_TRUE(taken.insert(core).second) << core;
    }
  }
}

TEST(CoreShare, MoreRanksThanCoresShareThem) {
  const auto all = static_cast<int64_t>(share_cores(0, 1).cores.size());
  std::set<int> taken;
  for (int64_t rank = 0; rank < 3 * all; ++rank) {
    const CoreShare share = share_cores(rank, 3 * all);
    ASSERT_EQ(share.cores.size(), 1U);
    EXPECT_EQ(share.sharing, 3);
    taken.insert(share.cores[0]);
  }
  EXPECT_EQ(static_cast<int64_t>(taken.size()), all);
}

TEST(CoreShare, AThreadStaysWhereItIsBound) {
  std::thread([] {
    const CoreShare share = share_cores(0, 2);
    bind_to(share);
    EXPECT_EQ(share_cores(0, 1).cores, share.cores);
  }).join();
}

TEST(CoreShare, TextNamesRanges) {
  EXPECT_EQ(cores_text({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(cores_text({5}), "5");
  EXPECT_EQ(cores_text({1, 3}), "1,3");
}

}  // namespace
}  // namespace tutti::node
