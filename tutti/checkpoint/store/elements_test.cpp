#include "tutti/checkpoint/store/elements.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"

namespace tutti::checkpoint {
namespace {

// The value of f16 bits by the definition of IEEE 754.
double half_value(uint16_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const int exponent = bits >> 10 & 0x1f;
  const double fraction = bits & 0x3ff;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Elements, EveryHalfWidensAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float wide = f16_bits_to_f32(half);
    if ((half & 0x7c00U) == 0x7c00U) {
      EXPECT_FALSE(std::isfinite(wide)) << bits;
      EXPECT_EQ(std::isnan(wide), (half & 0x3ffU) != 0) << bits;
      continue;
    }
    EXPECT_EQ(static_cast<double>(wide), half_value(half)) << bits;
    EXPECT_EQ(to_f16_bits(wide), half) << bits;
  }
}

TEST(Elements, HalfRoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bffU; ++bits) {  // every pair of neighbours
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const auto middle = static_cast<float>((half_value(low) + half_value(high)) / 2);  // exact
    EXPECT_EQ(to_f16_bits(middle), low % 2 == 0 ? low : high) << bits;
    EXPECT_EQ(to_f16_bits(std::nextafterf(middle, 0.0F)), low) << bits;
    EXPECT_EQ(to_f16_bits(std::nextafterf(middle, 1e9F)), high) << bits;
    EXPECT_EQ(to_f16_bits(-middle), (low % 2 == 0 ? low : high) | 0x8000U) << bits;
  }
  EXPECT_EQ(to_f16_bits(65519.996F), 0x7bffU);
  EXPECT_EQ(to_f16_bits(65520.0F), 0x7c00U);
  EXPECT_EQ(to_f16_bits(0x1p-26F), 0U);
}

TEST(Elements, Bf16RoundsToEven) {
  const std::vector<uint32_t> from = {0x3f808000U, 0x3f818000U, 0x3f807fffU, 0x3f808001U,
                                      0x80000000U};
  std::vector<uint16_t> to(from.size());
  convert_elements(DType::f32, from.data(), DType::bf16, to.data(), 5, "t");
  EXPECT_EQ(to, (std::vector<uint16_t>{0x3f80U, 0x3f82U, 0x3f80U, 0x3f81U, 0x8000U}));
}

TEST(Elements, WideningIsExactFromAnyAddress) {
  for (const DType type : {DType::bf16, DType::f16}) {
    std::string bytes(1 + 2 * 257, '\0');
    const uint64_t key = stream_key(1, "elements");
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(random_u64(key, i) & 0x3fU);  // no infinities
    }
    std::vector<float> wide(257);
    convert_elements(type, bytes.data() + 1, DType::f32, wide.data(), 257, "t");
    std::string back(2 * 257, 'x');
    convert_elements(DType::f32, wide.data(), type, back.data(), 257, "t");
    EXPECT_EQ(back, bytes.substr(1));
  }
}

TEST(Elements, SaysWhichElementIsNotFinite) {
  std::vector<float> values(100, 1.0F);
  std::vector<float> out(100);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), -INFINITY}) {
    values[42] = bad;
    EXPECT_TRUE(says(error_of([&] {
                       convert_elements(DType::f32, values.data(), DType::f32, out.data(), 100,
                                        "f: tensor 'w'", 1000);
                     }),
                     ErrorKind::corrupt, "f: tensor 'w': element 1042 is not a finite number"));
  }
  const std::vector<uint16_t> halves = {0x3c00U, 0x7e00U};
  EXPECT_TRUE(says(error_of([&] {
                     convert_elements(DType::f16, halves.data(), DType::f32, out.data(), 2, "w");
                   }),
                   ErrorKind::corrupt, "element 1"));
}

TEST(Elements, RefusesWhatDoesNotFitIntoHalf) {
  const std::vector<float> values = {1, 65504, 65520};
  std::vector<uint16_t> out(3);
  EXPECT_TRUE(says(error_of([&] {
                     convert_elements(DType::f32, values.data(), DType::f16, out.data(), 3, "w");
                   }),
                   ErrorKind::usage, "w: element 2 is too large for f16; use f32 or bf16"));
}

}  // namespace
}  // namespace tutti::checkpoint
