// The arithmetic that kernels share with the host, tested on the host, for machines without a GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tutti/base/rng.h"
#include "tutti/engine/cuda/activation_math.h"
#include "tutti/engine/cuda/adamw_math.h"
#include "tutti/engine/cuda/philox.h"
#include "tutti/engine/cuda/rope_math.h"
#include "tutti/engine/testing/reference.h"

namespace tutti::engine {
namespace {

TEST(DeviceMath, PhiloxEqualsThatOfBase) {
  for (const uint64_t key : {uint64_t{0}, uint64_t{1}, uint64_t{0x123456789abcdef0}}) {
    for (const uint64_t row : {uint64_t{0}, uint64_t{7}, uint64_t{1} << 40}) {
      for (const uint64_t block : {uint64_t{0}, uint64_t{3}, uint64_t{0xffffffff}}) {
        const PhiloxBlock want = philox(key, row, block);
        const PhiloxWords have = philox_words(key, row, block);
        for (size_t i = 0; i < 4; ++i) {
          EXPECT_EQ(have.at[i], want[i]);
          EXPECT_EQ(uniform_of(have.at[i]), uniform01(want[i]));
        }
      }
    }
  }
}

TEST(DeviceMath, SineAndCosineInAllQuadrantsAndOfLargeAngles) {
  for (const double first : {0.0, -9.0, 1e3, -131072.0, 1e8}) {
    for (int i = 0; i < 500; ++i) {
      const double angle = first + 0.0371 * i;
      const SineCosine found = sine_cosine(angle);
      ASSERT_NEAR(static_cast<double>(found.sine), std::sin(angle), 6e-8) << angle;
      ASSERT_NEAR(static_cast<double>(found.cosine), std::cos(angle), 6e-8) << angle;
    }
  }
}

TEST(DeviceMath, GeluAndItsSlope) {
  const auto exact = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  };
  for (int i = -300; i <= 300; ++i) {
    const auto x = static_cast<float>(i) * 0.02F;
    const auto at = static_cast<double>(x);
    EXPECT_NEAR(static_cast<double>(gelu(x)), exact(at), 1e-6);
    constexpr double kStep = 1e-5;
    // Near 1 the error of 1 - s is an ulp of the sigmoid s, 6e-8; its factor is below 35.
    EXPECT_NEAR(static_cast<double>(gelu_slope(x)),
                (exact(at + kStep) - exact(at - kStep)) / (2 * kStep), 3e-6);
  }
  for (const float x : {-1e30F, -200.0F, 200.0F, 1e30F}) {
    EXPECT_EQ(gelu(x), x > 0 ? x : 0);
    EXPECT_EQ(gelu_slope(x), x > 0 ? 1 : 0);
  }
  EXPECT_TRUE(std::isnan(gelu(std::nanf(""))) && std::isnan(gelu_slope(std::nanf(""))));
}

TEST(DeviceMath, AdamwMatchesTheReference) {
  constexpr double kRate = 0.01, kDecay = 0.1, kBeta1 = 0.9, kBeta2 = 0.95, kEpsilon = 1e-8;
  reference::AdamwState want{{0.7}, {0}, {0}};
  AdamwElement have{0.7F, 0, 0};
  for (int64_t step = 1; step <= 5; ++step) {
    const double gradient = 0.3 * static_cast<double>(step) - 0.8;
    const auto t = static_cast<double>(step);
    const AdamwFactors factors{
        .clip = 0.5F,
        .beta1 = 0.9F,
        .rest1 = 1 - 0.9F,
        .beta2 = 0.95F,
        .rest2 = 1 - 0.95F,
        .epsilon = 1e-8F,
        .step_size = static_cast<float>(kRate / (1 - std::pow(kBeta1, t))),
        .inverse_root = static_cast<float>(1 / std::sqrt(1 - std::pow(kBeta2, t)))};
    have =
        adamw_step(have, static_cast<float>(gradient), static_cast<float>(kRate * kDecay), factors);
    reference::adamw(want, {gradient}, {kDecay}, kRate, kBeta1, kBeta2, kEpsilon, 0.5, step);
    EXPECT_NEAR(static_cast<double>(have.p), want.master[0], 1e-6);
    EXPECT_NEAR(static_cast<double>(have.m), want.m[0], 1e-7);
    EXPECT_NEAR(static_cast<double>(have.v), want.v[0], 1e-7);
  }
}

}  // namespace
}  // namespace tutti::engine
