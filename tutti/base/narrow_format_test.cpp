#include "tutti/base/narrow_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tutti {
namespace {

TEST(NarrowFormat, LayoutAlignsRowsAndIncludesScales) {
  const NarrowLayout eight = narrow_layout(NarrowKind::e4m3, 3, 17);
  EXPECT_EQ(eight.row_bytes, 32);
  EXPECT_EQ(eight.blocks, 0);
  EXPECT_EQ(eight.payload_bytes, 3 * 17 + 4);
  EXPECT_EQ(eight.bytes, eight.scales_offset);

  const NarrowLayout mx = narrow_layout(NarrowKind::mxfp8, 130, 65);
  EXPECT_EQ(mx.row_bytes, 80);
  EXPECT_EQ(mx.blocks, 3);
  EXPECT_EQ(mx.payload_bytes, 130 * (65 + 3));
  EXPECT_EQ(mx.scales_offset, 256 + 130 * 80 + (-(130 * 80) & 255));
  EXPECT_EQ(mx.bytes, mx.scales_offset + 256 * 4);

  const NarrowLayout four = narrow_layout(NarrowKind::nvfp4, 2, 33);
  EXPECT_EQ(four.row_bytes, 32);
  EXPECT_EQ(four.blocks, 3);
  EXPECT_EQ(four.payload_bytes, 2 * (17 + 3) + 4);
}

TEST(NarrowFormat, TensorScaleMapsTheLargestToTheMaximum) {
  for (const float amax : {1e-30F, 3e-5F, 1.0F, 7.25F, 448.0F, 6e4F, 1e30F}) {
    EXPECT_FLOAT_EQ(amax * tensor_scale(NarrowKind::e4m3, amax), 448);
    EXPECT_FLOAT_EQ(amax * tensor_scale(NarrowKind::e5m2, amax), 57344);
    EXPECT_FLOAT_EQ(amax * tensor_scale(NarrowKind::nvfp4, amax), 2688);
    EXPECT_EQ(tensor_scale(NarrowKind::mxfp8, amax), 1);
  }
  EXPECT_EQ(tensor_scale(NarrowKind::e4m3, 0), 1);
  EXPECT_EQ(tensor_scale(NarrowKind::e5m2, INFINITY), 1);
  // The inverse of no scale is lost.
  const float tiny = tensor_scale(NarrowKind::e5m2, std::numeric_limits<float>::denorm_min());
  EXPECT_TRUE(std::isnormal(tiny) && std::isnormal(1 / tiny));
}

// OCP MX 1.0, section 6.3: the largest power of two not above amax, over that of the format.
TEST(NarrowFormat, SharedExponentOfMxfp8) {
  const auto scale = [](float amax) { return decode_e8m0(mxfp8_scale(amax)); };
  EXPECT_EQ(scale(448), 1);
  EXPECT_EQ(scale(256), 1);
  EXPECT_EQ(scale(255.9F), 0.5F);
  EXPECT_EQ(scale(511), 1);  // 511 then saturates to 448
  EXPECT_EQ(scale(512), 2);
  EXPECT_EQ(scale(1), 0x1p-8F);
  EXPECT_EQ(scale(std::numeric_limits<float>::max()), 0x1p119F);
  EXPECT_EQ(scale(0), 0x1p-127F);
  EXPECT_EQ(scale(0x1p-126F), 0x1p-127F) << "clamped";
  EXPECT_EQ(mxfp8_scale(INFINITY), kE8m0Nan);
  for (int code = 0; code <= mxfp8_scale(std::numeric_limits<float>::max()); ++code) {
    const auto byte = static_cast<uint8_t>(code);
    EXPECT_EQ(mxfp8_factor(byte) * decode_e8m0(byte), 1) << code;
  }
}

TEST(NarrowFormat, BlockScaleOfNvfp4IsRelativeToTheTensors) {
  const float amax = 3.7F;
  const float scale = tensor_scale(NarrowKind::nvfp4, amax);
  EXPECT_EQ(decode<kE4m3>(nvfp4_scale(amax, scale)), 448) << "the block with the largest";
  const uint8_t half = nvfp4_scale(amax / 2, scale);
  EXPECT_EQ(decode<kE4m3>(half), 224);
  EXPECT_FLOAT_EQ(amax / 2 * nvfp4_factor(half, scale), 6);
  EXPECT_EQ(nvfp4_scale(0, scale), 0);
  EXPECT_EQ(nvfp4_factor(0, scale), 0);
  EXPECT_TRUE(std::isnan(decode<kE4m3>(nvfp4_scale(INFINITY, 1))));
}

}  // namespace
}  // namespace tutti
