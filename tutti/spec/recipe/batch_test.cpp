#include "tutti/spec/recipe/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tutti::spec {
namespace {

// Whatever the mesh and micro-batch, the ranks together take the samples of the step, each once.
TEST(BatchPlan, StepsUseTheSameSamplesOnEveryMesh) {
  for (const int64_t dp : {1, 2, 3, 6}) {
    for (const int64_t micro : {1, 2, 4}) {
      const BatchPlan plan = {24, micro, dp, 16};
      if (24 % (micro * dp) != 0) continue;
      for (const int64_t step : {1, 2, 7}) {
        std::vector<int64_t> all;
        for (int64_t rank = 0; rank < dp; ++rank) {
          const std::vector<int64_t> mine = plan.samples(step, rank);
          EXPECT_EQ(static_cast<int64_t>(mine.size()), 24 / dp);
          all.insert(all.end(), mine.begin(), mine.end());
        }
        std::sort(all.begin(), all.end());
        for (int64_t i = 0; i < 24; ++i) {
          EXPECT_EQ(all[static_cast<size_t>(i)], (step - 1) * 24 + i);
        }
      }
    }
  }
}

TEST(BatchPlan, OneRankReadsInOrder) {
  const BatchPlan plan = {6, 2, 1, 16};
  EXPECT_EQ(plan.accumulation(), 3);
  EXPECT_EQ(plan.tokens_per_step(), 96);
  EXPECT_EQ(plan.samples(2, 0), (std::vector<int64_t>{6, 7, 8, 9, 10, 11}));
}

}  // namespace
}  // namespace tutti::spec
