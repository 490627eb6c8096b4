#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

void convert(const TestMatrix& x, TestMatrix& out) {
  test_stream().ops().convert(test_stream(), {.x = x, .out = out});
}

TEST(Convert, EveryBf16RoundTripsThroughF32) {
  for_each_isa([] {
    TestMatrix all(1, 1 << 16, DType::bf16);
    for (int bits = 0; bits < 1 << 16; ++bits) {
      static_cast<bf16*>(all.view().data)[bits].bits = static_cast<uint16_t>(bits);
    }
    TestMatrix wide = poisoned_vector(1 << 16);
    TestMatrix back = poisoned_vector(1 << 16, DType::bf16);
    convert(all, wide);
    convert(wide, back);
    for (int bits = 0; bits < 1 << 16; ++bits) {
      const bf16 x{static_cast<uint16_t>(bits)};
      const bf16 y = static_cast<const bf16*>(back.view().data)[bits];
      if (std::isnan(to_f32(x))) {
        EXPECT_TRUE(std::isnan(to_f32(y)));
      } else {
        EXPECT_EQ(x.bits, y.bits);
      }
    }
  });
}

TEST(Convert, RoundsToNearestEven) {
  const std::vector<double> values = {
      1 + 0x1p-8, 1 + 0x3p-8, 1 + 0x1p-8 + 0x1p-20, -1 - 0x1p-8, 3.5e38, 0x1p-140, 0.0, 1e30};
  for_each_isa([&] {
    TestMatrix x = TestMatrix(1, 8).assign(values);
    TestMatrix out = poisoned_vector(8, DType::bf16);
    convert(x, out);
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(out.at(0, i), static_cast<double>(to_f32(to_bf16(static_cast<float>(x.at(0, i))))));
    }
    EXPECT_EQ(out.at(0, 0), 1.0);         // tie: to the even neighbour below
    EXPECT_EQ(out.at(0, 1), 1 + 0x1p-6);  // tie: to the even neighbour above
    EXPECT_EQ(out.at(0, 2), 1 + 0x1p-7);
    EXPECT_TRUE(std::isinf(out.at(0, 4)));
  });
}

TEST(Convert, OddLengths) {
  for_each_isa([] {
    for (const int64_t count : {0, 1, 3, 15, 17, 101, 10000}) {
      const TestMatrix x = random_vector(count, DType::bf16);
      TestMatrix out = poisoned_vector(count);
      convert(x, out);
      EXPECT_TRUE(close(out, x.values(), 0));
    }
  });
}

TEST(Convert, CopiesBetweenEqualTypes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t count : {0, 1, 17, 10000}) {
      const TestMatrix x = random_vector(count, dtype);
      TestMatrix out = poisoned_vector(count, dtype);
      convert(x, out);
      EXPECT_TRUE(close(out, x.values(), 0));
    }
  }
}

}  // namespace
}  // namespace tutti::engine::testing
