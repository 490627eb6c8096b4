#include "tutti/data/corpus/blend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numeric>

#include "tutti/base/rng.h"
#include "tutti/data/testing/test_support.h"

namespace tutti::data {
namespace {

// Of every corpus: least and greatest of (count - share) over all prefixes up to `samples`. The
// difference is the greatest deviation of any window.
struct Deviation {
  double least = 0, greatest = 0;
};
std::vector<Deviation> deviations(const Blend& blend, int64_t samples) {
  const auto corpora = static_cast<size_t>(blend.corpora());
  std::vector<Deviation> out(corpora);
  std::vector<int64_t> counts(corpora, 0);
  for (int64_t i = 0; i < samples; ++i) {
    const BlendPosition position = blend.position(i);
    const auto at = static_cast<size_t>(position.corpus);
    EXPECT_EQ(position.index, counts[at]) << i;
    ++counts[at];
    for (size_t c = 0; c < corpora; ++c) {
      const double share = static_cast<double>(blend.share(static_cast<int64_t>(c))) *
                           static_cast<double>(i + 1) / static_cast<double>(blend.cycle());
      const double deviation = static_cast<double>(counts[c]) - share;
      out[c].least = std::min(out[c].least, deviation);
      out[c].greatest = std::max(out[c].greatest, deviation);
    }
  }
  return out;
}

TEST(Blend, EveryWindowHasTheSharesOfTheWeights) {
  const uint64_t key = stream_key(7, "blend test");
  uint64_t draws = 0;
  const auto draw = [&](uint64_t n) { return random_u64(key, draws++) % n; };
  for (int trial = 0; trial < 300; ++trial) {
    const size_t corpora = 2 + draw(6);
    std::vector<double> weights;
    for (size_t c = 0; c < corpora; ++c) {
      const uint64_t kind = draw(3);
      weights.push_back(kind == 0   ? 1.0 + static_cast<double>(draw(5))
                        : kind == 1 ? 0.01 * static_cast<double>(1 + draw(300))
                                    : 0.001);
    }
    const Blend blend(weights);
    const double m = static_cast<double>(corpora);
    const double bound = 1 - 1 / (2 * m - 2) + 1e-9;
    const int64_t samples = std::min<int64_t>(3 * blend.cycle() + 5, 4000);
    for (const Deviation& deviation : deviations(blend, samples)) {
      EXPECT_LE(deviation.greatest, bound);
      EXPECT_GE(deviation.least, -bound);
      // Any window [a, b): the difference of two prefixes.
      EXPECT_LE(deviation.greatest - deviation.least, corpora == 2 ? 1 + 1e-9 : 2 * bound);
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (size_t c = 0; c < corpora; ++c) {
      EXPECT_NEAR(static_cast<double>(blend.share(static_cast<int64_t>(c))) /
                      static_cast<double>(blend.cycle()),
                  weights[c] / sum, 1e-12);
    }
  }
}

TEST(Blend, IrrationalAndTinyWeights) {
  const std::vector<double> weights = {std::sqrt(2.0), std::exp(1.0), 1e-5, M_PI};
  const Blend blend(weights);
  EXPECT_EQ(blend.cycle(), Blend::kMaxCycle);
  for (const Deviation& deviation : deviations(blend, blend.cycle())) {
    EXPECT_LT(deviation.greatest - deviation.least, 2);
  }
  for (int64_t c = 0; c < 4; ++c) {  // cycles repeat
    EXPECT_EQ(blend.count(c, 3 * blend.cycle() + 77), 3 * blend.share(c) + blend.count(c, 77));
  }
  const Blend tiny({0.99999, 0.00001});
  EXPECT_EQ(tiny.cycle(), 100000);
  EXPECT_EQ(tiny.share(1), 1);
}

TEST(Blend, OneCorpusIsItself) {
  const Blend blend({0.3});
  for (const int64_t i : {int64_t{0}, int64_t{1}, int64_t{123456789012}}) {
    EXPECT_EQ(blend.position(i).corpus, 0);
    EXPECT_EQ(blend.position(i).index, i);
  }
}

TEST(Blend, WeightsTooSmallForASampleAreRefused) {
  const std::string message = error_of(ErrorKind::usage, [] { Blend({1.0, M_PI * 1e-9}); });
  EXPECT_TRUE(contains(message, "one sample in 1048576")) << message;
}

TEST(Blend, IsMadeAndReadQuickly) {
  const std::clock_t start = std::clock();  // processor time: other programs share the machine
  const Blend blend({std::sqrt(2.0), 1, 2, 3, 4, 5, 6});
  int64_t sum = 0;
  for (int64_t i = 0; i < 100000; ++i) sum += blend.position(i * 12345678).index;
  EXPECT_GT(sum, 0);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 5);
}

}  // namespace
}  // namespace tutti::data
