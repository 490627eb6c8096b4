#include "tutti/base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace tutti {
namespace {

// Known answers of Random123 1.14 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Digits of pi: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(StreamKey, DependsOnEveryPartAndOnTheirBorders) {
  const std::set<uint64_t> keys = {stream_key(1, "init", "a"),    stream_key(2, "init", "a"),
                                   stream_key(1, "dropout", "a"), stream_key(1, "init", "b"),
                                   stream_key(1, "init"),         stream_key(1, "inita"),
                                   stream_key(11, "init", "a"),   stream_key(1, "", "init")};
  EXPECT_EQ(keys.size(), 8U);
  EXPECT_EQ(stream_key(1, "init", "a"), stream_key(1, "init", "a"));
}

TEST(Uniform, LiesInTheHalfOpenUnitInterval) {
  EXPECT_EQ(uniform01(0), 0.0F);
  EXPECT_LT(uniform01(0xffffffffU), 1.0F);
  EXPECT_EQ(uniform01(0x80000000U), 0.5F);
}

// Mean 1/2, variance 1/12, and 20 equal cells: chi-squared with 19 degrees of freedom stays below
// its 99.9% point, 43.8.
TEST(Uniform, IsUniform) {
  constexpr int kCount = 200000;
  constexpr int kCells = 20;
  std::vector<int> cells(kCells, 0);
  double sum = 0;
  double squares = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double u = random_uniform(42, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
    ++cells[static_cast<size_t>(u * kCells)];
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 0.5, 4 / std::sqrt(12.0 * kCount));
  EXPECT_NEAR(squares / kCount - mean * mean, 1.0 / 12, 1e-3);
  double chi_squared = 0;
  for (const int cell : cells) {
    const double expected = static_cast<double>(kCount) / kCells;
    chi_squared += std::pow(cell - expected, 2) / expected;
  }
  EXPECT_LT(chi_squared, 43.8);
}

TEST(FillNormal, HasTheMomentsOfANormal) {
  constexpr int64_t kCount = 400000;
  std::vector<float> x(kCount);
  fill_normal(x.data(), kCount, stream_key(3, "init", "w"), 0, 0.5F, 2.0F);
  double moments[5] = {};
  int64_t within_one = 0;
  for (const float value : x) {
    ASSERT_TRUE(std::isfinite(value));
    const double z = (value - 0.5) / 2.0;
    double power = 1;
    for (double& moment : moments) {
      moment += power / kCount;
      power *= z;
    }
    within_one += std::abs(z) < 1 ? 1 : 0;
  }
  // Standard errors: sqrt(Var(z^k) / n) with Var = 1, 2, 15, 96.
  const double root = std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(moments[1], 0, 4 * std::sqrt(1.0) / root);
  EXPECT_NEAR(moments[2], 1, 4 * std::sqrt(2.0) / root);
  EXPECT_NEAR(moments[3], 0, 4 * std::sqrt(15.0) / root);
  EXPECT_NEAR(moments[4], 3, 4 * std::sqrt(96.0) / root);
  EXPECT_NEAR(static_cast<double>(within_one) / kCount, 0.682689, 0.003);
}

// The value of an element depends on its global index only: any cut into shards gives the same.
TEST(FillNormal, ShardsEqualTheWhole) {
  std::vector<float> whole(103);
  fill_normal(whole.data(), 103, 9, 0, 0, 1);
  for (const uint64_t first : {0U, 1U, 2U, 3U, 4U, 7U, 50U, 101U, 102U, 103U}) {
    for (const uint64_t count : {0U, 1U, 2U, 3U, 5U, 17U, 53U}) {
      const uint64_t end = std::min<uint64_t>(103, first + count);
      std::vector<float> shard(end - first + 1, -77.0F);
      fill_normal(shard.data(), static_cast<int64_t>(end - first), 9, first, 0, 1);
      for (uint64_t i = first; i < end; ++i) ASSERT_EQ(shard[i - first], whole[i]);
      ASSERT_EQ(shard.back(), -77.0F);  // not a value too many
    }
  }
}

TEST(FillNormal, KeysGiveDifferentValues) {
  std::vector<float> a(64);
  std::vector<float> b(64);
  fill_normal(a.data(), 64, 1, 0, 0, 1);
  fill_normal(b.data(), 64, 2, 0, 0, 1);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NE(a[i], b[i]);
}

TEST(PermuteIndex, IsABijectionForEverySize) {
  std::vector<uint64_t> sizes = {4095, 4096, 4097, 10000, 65536, 100003};
  for (uint64_t n = 1; n <= 300; ++n) sizes.push_back(n);
  for (const uint64_t n : sizes) {
    for (const uint64_t key : {0ULL, 1ULL, 0x123456789abcdefULL}) {
      std::vector<bool> seen(n, false);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t to = permute_index(i, n, key);
        ASSERT_LT(to, n);
        ASSERT_FALSE(seen[to]) << n << " " << i;
        seen[to] = true;
      }
    }
  }
}

TEST(PermuteIndex, WorksForHugeSizes) {
  for (const uint64_t n :
       {uint64_t{1} << 40, (uint64_t{1} << 40) + 1, (uint64_t{1} << 62) + 5, ~uint64_t{0}}) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 1000; ++i) {
      seen.insert(permute_index(i, n, 5));
      seen.insert(permute_index(n - 1 - i, n, 5));
    }
    EXPECT_EQ(seen.size(), 2000U);
    EXPECT_LT(*seen.rbegin(), n);
  }
}

// A shuffle leaves about one fixed point, mixes neighbours far apart, and differs between keys.
TEST(PermuteIndex, LooksLikeAShuffle) {
  constexpr uint64_t kCount = 20000;
  int fixed = 0;
  int equal = 0;
  double distance = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const uint64_t a = permute_index(i, kCount, 1);
    fixed += a == i ? 1 : 0;
    equal += a == permute_index(i, kCount, 2) ? 1 : 0;
    if (i > 0) {
      distance +=
          std::abs(static_cast<double>(a) - static_cast<double>(permute_index(i - 1, kCount, 1)));
    }
  }
  EXPECT_LE(fixed, 8);
  EXPECT_LE(equal, 8);
  // Two independent uniform indices are n / 3 apart on average.
  EXPECT_NEAR(distance / (kCount - 1), kCount / 3.0, kCount * 0.01);
}

TEST(FillUniform, IsABoundedUniformFunctionOfTheIndex) {
  std::vector<float> all(4001), part(1000);
  const uint64_t key = stream_key(3, "test");
  fill_uniform(all.data(), 4001, key, 0, 0.25F);
  fill_uniform(part.data(), 1000, key, 1003, 0.25F);
  double sum = 0, squares = 0;
  for (const float x : all) {
    EXPECT_GE(x, -0.25F);
    EXPECT_LT(x, 0.25F);
    sum += static_cast<double>(x);
    squares += static_cast<double>(x) * static_cast<double>(x);
  }
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 1003));
  EXPECT_NEAR(sum / 4001, 0, 0.01);
  EXPECT_NEAR(squares / 4001, 0.25 * 0.25 / 3, 0.001);  // the variance of a uniform
}

}  // namespace
}  // namespace tutti
