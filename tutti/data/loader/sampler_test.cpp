#include "tutti/data/loader/sampler.h"

#include <algorithm>
#include <set>
#include <vector>

#include "tutti/data/testing/test_support.h"

namespace tutti::data {
namespace {

std::vector<int64_t> epoch_firsts(const SamplePlan& plan, int64_t epoch) {
  std::vector<int64_t> firsts;
  const int64_t n = plan.windows_per_epoch();
  for (int64_t i = epoch * n; i < (epoch + 1) * n; ++i) {
    const SampleWindow window = plan.window_of(i);
    EXPECT_EQ(window.epoch, epoch);
    firsts.push_back(window.first);
  }
  return firsts;
}

TEST(Sampler, EveryWindowOfTheShiftedGridOncePerEpoch) {
  for (const auto& [tokens, sequence] : std::vector<std::pair<int64_t, int64_t>>{
           {2, 1}, {9, 8}, {17, 8}, {24, 8}, {1001, 7}, {5000, 64}}) {
    const SamplePlan plan = make_sample_plan(tokens, sequence, 42);
    const int64_t n = plan.windows_per_epoch();
    EXPECT_EQ(n, (tokens - 1) / sequence);
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<int64_t> firsts = epoch_firsts(plan, epoch);
      std::sort(firsts.begin(), firsts.end());
      const int64_t offset = plan.epoch_offset(epoch);
      EXPECT_TRUE(offset >= 0 && offset < sequence);
      for (int64_t w = 0; w < n; ++w) {
        EXPECT_EQ(firsts[static_cast<size_t>(w)],
                  std::min(offset + w * sequence, tokens - 1 - sequence));
      }
      EXPECT_EQ(std::set<int64_t>(firsts.begin(), firsts.end()).size(), static_cast<size_t>(n));
    }
  }
}

TEST(Sampler, OrderAndAlignmentDifferByEpochAndSeed) {
  const SamplePlan plan = make_sample_plan(100000, 50, 1);
  const SamplePlan other = make_sample_plan(100000, 50, 2);
  EXPECT_NE(epoch_firsts(plan, 0), epoch_firsts(plan, 1));
  EXPECT_NE(epoch_firsts(plan, 0), epoch_firsts(other, 0));
  std::set<int64_t> offsets;
  for (int64_t epoch = 0; epoch < 50; ++epoch) offsets.insert(plan.epoch_offset(epoch));
  EXPECT_GT(offsets.size(), 20U);
  const std::vector<int64_t> order = epoch_firsts(plan, 0);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

TEST(Sampler, IsAPureFunctionOfSeedAndSample) {
  const SamplePlan plan = make_sample_plan(3000, 16, 7);
  std::vector<int64_t> forward, backward;
  for (int64_t i = 0; i < 1000; ++i) forward.push_back(plan.window_of(i).first);
  const SamplePlan again = make_sample_plan(3000, 16, 7);
  for (int64_t i = 999; i >= 0; --i) backward.push_back(again.window_of(i).first);
  EXPECT_TRUE(std::equal(forward.begin(), forward.end(), backward.rbegin()));
}

TEST(Sampler, TooShortIsAnError) {
  const std::string message = error_of(ErrorKind::usage, [] { make_sample_plan(64, 64, 0); });
  EXPECT_TRUE(contains(message, "64 tokens")) << message;
  error_of(ErrorKind::usage, [] { make_sample_plan(64, 0, 0); });
  EXPECT_EQ(make_sample_plan(65, 64, 0).window_of(3).first, 0);
}

}  // namespace
}  // namespace tutti::data
