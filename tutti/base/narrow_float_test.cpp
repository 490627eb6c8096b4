#include "tutti/base/narrow_float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/base/rng.h"
#include "tutti/base/testing/narrow.h"

namespace tutti {
namespace {

using testing::defined_value;
using testing::nearest_code;

static_assert(decode<kE4m3>(0x7e) == 448 && decode<kE5m2>(0x7b) == 57344);
static_assert(decode<kE4m3>(0x01) == 0x1p-9F && decode<kE5m2>(0x01) == 0x1p-16F);
static_assert(encode<kE4m3>(1.0F, Overflow::special) == 0x38);
static_assert(kE4m3.bias() == 7 && kE5m2.bias() == 15 && kE2m1.bias() == 1);
static_assert(kE4m3.largest_exponent() == 8 && kE5m2.largest_exponent() == 15 &&
              kE2m1.largest_exponent() == 2);

template <typename Tag>
class NarrowFloats : public ::testing::Test {};
template <int E, int M, Specials S>
struct Tag {
  static constexpr NarrowFloat kFormat = {E, M, S};
};
using Formats = ::testing::Types<Tag<4, 3, Specials::nan_only>, Tag<5, 2, Specials::ieee>,
                                 Tag<2, 1, Specials::none>>;
TYPED_TEST_SUITE(NarrowFloats, Formats);

TYPED_TEST(NarrowFloats, EveryCodeRoundTripsToItsValue) {
  constexpr NarrowFloat f = TypeParam::kFormat;
  for (uint32_t code = 0; code < 2 * f.sign_bit(); ++code) {
    const double expected = defined_value(f, code);
    const float value = decode<f>(static_cast<uint8_t>(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_EQ(encode<f>(value, Overflow::saturate) & (f.sign_bit() - 1), f.nan_code());
      continue;
    }
    EXPECT_EQ(static_cast<double>(value), expected) << code;
    EXPECT_EQ(std::signbit(value), std::signbit(expected)) << code;
    EXPECT_EQ(encode<f>(value, Overflow::special), code);
    if (std::isinf(expected)) {
      EXPECT_EQ(decode<f>(encode<f>(value, Overflow::saturate)), std::copysign(kLargest<f>, value));
      continue;
    }
    EXPECT_EQ(encode<f>(value, Overflow::saturate), code);
    EXPECT_EQ(encode_stochastic<f>(value, 0), code) << "exact values are not rounded";
    EXPECT_EQ(encode_stochastic<f>(value, ~0U), code);
  }
}

TYPED_TEST(NarrowFloats, TiesRoundToEven) {
  constexpr NarrowFloat f = TypeParam::kFormat;
  for (uint32_t code = 0; code < f.largest_code(); ++code) {
    const double low = defined_value(f, code);
    const double high = defined_value(f, code + 1);
    const auto half = static_cast<float>((low + high) / 2);  // exact
    const uint32_t even = code % 2 == 0 ? code : code + 1;
    for (const float sign : {1.0F, -1.0F}) {
      const uint32_t top = sign < 0 ? f.sign_bit() : 0;
      const auto to = [&](float x) { return encode<f>(sign * x, Overflow::special); };
      EXPECT_EQ(to(half), even | top) << half;
      EXPECT_EQ(to(std::nextafter(half, 0.0F)), code | top) << half;
      EXPECT_EQ(to(std::nextafter(half, INFINITY)), (code + 1) | top) << half;
    }
  }
}

// Up to half a step above the largest value rounds to it (a tie: to even); beyond is overflow.
TYPED_TEST(NarrowFloats, OverflowSaturatesOrIsSpecial) {
  constexpr NarrowFloat f = TypeParam::kFormat;
  const auto largest = static_cast<uint8_t>(f.largest_code());
  const float value = kLargest<f>;
  const float step = value - decode<f>(static_cast<uint8_t>(largest - 1));
  const float half = value + step / 2;
  const auto special = static_cast<uint8_t>(f.specials == Specials::ieee       ? f.infinity_code()
                                            : f.specials == Specials::nan_only ? f.nan_code()
                                                                               : f.largest_code());
  EXPECT_EQ(encode<f>(std::nextafter(half, 0.0F), Overflow::special), largest);
  EXPECT_EQ(encode<f>(half, Overflow::special), largest % 2 == 0 ? largest : special);
  EXPECT_EQ(encode<f>(std::nextafter(half, INFINITY), Overflow::special), special);
  for (const float x : {half * 1.01F, 1e9F, std::numeric_limits<float>::max(),
                        std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(encode<f>(x, Overflow::special), special);
    EXPECT_EQ(encode<f>(-x, Overflow::special), special | f.sign_bit());
    EXPECT_EQ(encode<f>(x, Overflow::saturate), largest);
    EXPECT_EQ(encode<f>(-x, Overflow::saturate), largest | f.sign_bit());
    EXPECT_EQ(encode_stochastic<f>(x, ~0U), largest);
  }
}

// Every exponent of f32 with both signs, 2^20 patterns spread over all 2^32.
TYPED_TEST(NarrowFloats, AnyF32GoesToTheNearest) {
  constexpr NarrowFloat f = TypeParam::kFormat;
  for (uint64_t i = 0; i < (1U << 17); ++i) {
    const auto bits = static_cast<uint32_t>(i * 32771 * 1021);
    const auto x = std::bit_cast<float>(bits);
    if (std::isnan(x)) continue;
    ASSERT_EQ(encode<f>(x, Overflow::saturate), nearest_code(f, static_cast<double>(x))) << x;
  }
  // And densely where the format has values: every 2^9-th pattern of half of its binades.
  const uint32_t first = std::bit_cast<uint32_t>(decode<f>(1)) / 4 * 3;
  const uint32_t last = std::bit_cast<uint32_t>(kLargest<f>);
  for (uint32_t bits = first; bits < last; bits += 8191) {
    const auto x = std::bit_cast<float>(bits);
    ASSERT_EQ(encode<f>(x, Overflow::special), nearest_code(f, static_cast<double>(x))) << x;
  }
}

TYPED_TEST(NarrowFloats, StochasticRoundingIsUnbiasedBetweenNeighbours) {
  constexpr NarrowFloat f = TypeParam::kFormat;
  for (uint32_t code = 0; code < f.largest_code(); code += 1 + f.largest_code() / 16) {
    const double low = defined_value(f, code);
    const double high = defined_value(f, code + 1);
    for (const double part : {0.125, 0.5, 0.75}) {
      const auto x = static_cast<float>(low + part * (high - low));
      constexpr int kDraws = 4096;
      int up = 0;
      for (uint32_t i = 0; i < kDraws; ++i) {
        const uint8_t got = encode_stochastic<f>(x, philox(code, i)[0]);
        ASSERT_TRUE(got == code || got == code + 1) << x;
        up += got == code + 1 ? 1 : 0;
      }
      EXPECT_NEAR(up / double{kDraws}, part, 0.04) << x;  // 5 standard deviations
    }
  }
}

TEST(NarrowFloat, ScalesArePowersOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const float value = decode_e8m0(static_cast<uint8_t>(code));
    EXPECT_EQ(static_cast<double>(value), std::ldexp(1.0, code - 127));
    EXPECT_EQ(encode_e8m0(code - 127), code);
  }
  EXPECT_TRUE(std::isnan(decode_e8m0(kE8m0Nan)));
  EXPECT_EQ(encode_e8m0(-300), 0);
  EXPECT_EQ(encode_e8m0(300), 254);
}

}  // namespace
}  // namespace tutti
