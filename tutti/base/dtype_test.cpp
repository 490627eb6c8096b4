#include "tutti/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/base/error.h"
#include "tutti/base/rng.h"

namespace tutti {
namespace {

TEST(DType, NamesAndSizesRoundTrip) {
  const std::pair<DType, int64_t> sizes[] = {{DType::f32, 4}, {DType::bf16, 2}, {DType::f16, 2},
                                             {DType::f64, 8}, {DType::u8, 1},   {DType::i8, 1},
                                             {DType::u16, 2}, {DType::i16, 2},  {DType::i32, 4},
                                             {DType::i64, 8}, {DType::u64, 8}};
  for (const auto& [type, bytes] : sizes) {
    EXPECT_EQ(dtype_bytes(type), bytes) << dtype_name(type);
    EXPECT_EQ(parse_dtype(dtype_name(type)), type);
  }
}

TEST(DType, UnknownNameIsAUsageErrorNamingIt) {
  try {
    parse_dtype("float16");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("'float16'"), std::string::npos);
  }
}

bool is_nan_pattern(uint32_t bits) { return (bits & 0x7f80U) == 0x7f80U && (bits & 0x7fU) != 0; }

TEST(Bf16, EveryPatternRoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float value = to_f32({static_cast<uint16_t>(bits)});
    const uint16_t back = to_bf16(value).bits;
    if (is_nan_pattern(bits)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(back, bits | 0x40U);  // quiet, payload and sign kept
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

// Between two neighbours, the midpoint goes to the even one and everything else to the nearer;
// above the largest finite value the neighbour is infinity.
TEST(Bf16, RoundsToNearestEvenBetweenAllNeighbours) {
  for (uint32_t sign : {0x0000U, 0x8000U}) {
    for (uint32_t low = 0; low < 0x7f80U; ++low) {
      const uint32_t bits = (sign | low) << 16;
      const auto at = [&](uint32_t fraction) {
        float x;
        const uint32_t pattern = bits | fraction;
        std::memcpy(&x, &pattern, sizeof x);
        return to_bf16(x).bits;
      };
      const uint32_t down = sign | low;
      const uint32_t up = down + 1;
      ASSERT_EQ(at(0x0001), down);
      ASSERT_EQ(at(0x7fff), down);
      ASSERT_EQ(at(0x8000), low % 2 == 0 ? down : up);
      ASSERT_EQ(at(0x8001), up);
      ASSERT_EQ(at(0xffff), up);
    }
  }
}

TEST(Bf16, LargeInfiniteAndNan) {
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);  // infinity
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::infinity()).bits, 0x7f80);
  EXPECT_EQ(to_bf16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
  // A NaN whose payload lies in the lower half must not become infinity.
  float nan;
  const uint32_t bits = 0x7f800001U;
  std::memcpy(&nan, &bits, sizeof nan);
  EXPECT_TRUE(std::isnan(to_f32(to_bf16(nan))));
}

// |x - bf16(x)| <= 2^-8 |x|: half a unit in the last of 8 significant bits.
TEST(Bf16, RelativeErrorOfNormalNumbersIsBounded) {
  for (uint64_t i = 0; i < 100000; ++i) {
    const double exponent = 200.0 * (random_uniform(7, 2 * i) - 0.5);
    const float x = static_cast<float>((random_uniform(7, 2 * i + 1) - 0.5) * std::exp2(exponent));
    ASSERT_LE(std::abs(to_f32(to_bf16(x)) - x), std::abs(x) * 0x1p-8F) << x;
  }
}

}  // namespace
}  // namespace tutti
