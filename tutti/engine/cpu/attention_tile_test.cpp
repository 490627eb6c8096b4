#include "tutti/engine/cpu/attention_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

// With one key of score x below a maximum of 0, the first partial sum is 2^x as computed.
TEST(AttentionTile, ExponentialIsAccurate) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: CPU only";
  for_each_isa_and_dtype([](DType dtype) {
    const TileOps& ops = tile_ops(dtype);
    std::vector<float> scores(kTile * kTile), maxima(kTile), sums(kTile * kSumLanes), out(kTile);
    std::vector<uint32_t> p(kTile * kTile);
    for (int64_t step = 0; step < 200; ++step) {
      std::fill(maxima.begin(), maxima.end(), 0.0F);
      std::fill(sums.begin(), sums.end(), 0.0F);
      for (int64_t r = 0; r < kTile; ++r) {
        scores[static_cast<size_t>(r * kTile)] =
            -126.0F * static_cast<float>(step * kTile + r) / static_cast<float>(200 * kTile);
      }
      SoftmaxTile tile;
      tile.mask = {kTile, 1, kTile};
      tile.scores = scores.data();
      tile.log2_scale = 1;
      tile.row_max = maxima.data();
      tile.row_sum = sums.data();
      tile.out = out.data();
      tile.out_cols = 0;
      tile.p = p.data();
      ops.softmax(tile);
      for (int64_t r = 0; r < kTile; ++r) {
        const double want = std::exp2(static_cast<double>(scores[static_cast<size_t>(r * kTile)]));
        ASSERT_NEAR(sums[static_cast<size_t>(r * kSumLanes)], want, 2e-7 * want);
      }
    }
  });
}

}  // namespace
}  // namespace tutti::engine::testing
