#include "tutti/checkpoint/huggingface/mxfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tutti::checkpoint {
namespace {

// Every code in both halves of a byte, with scales at both ends of bf16's range and near 1.
TEST(Mxfp4, HoldsEveryCodeExactly) {
  const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const std::vector<uint8_t> scales = {127, 0, 120, 252};
  std::vector<uint8_t> blocks;
  for (size_t b = 0; b < scales.size(); ++b) {
    for (unsigned i = 0; i < 16; ++i) {
      blocks.push_back(static_cast<uint8_t>(i | (15 - i) << 4));
    }
  }
  std::vector<bf16> out(scales.size() * kMxfp4Block);
  decode_mxfp4(blocks.data(), scales.data(), static_cast<int64_t>(out.size()), out.data());
  for (size_t b = 0; b < scales.size(); ++b) {
    for (unsigned i = 0; i < 32; ++i) {
      const unsigned code = i % 2 == 0 ? i / 2 : 15 - i / 2;
      const double sign = code < 8 ? 1 : -1;
      const double wanted = sign * std::ldexp(magnitudes[code % 8], scales[b] - 127);
      const float found = to_f32(out[b * kMxfp4Block + i]);
      EXPECT_EQ(static_cast<double>(found), wanted)
          << "scale " << int{scales[b]} << " code " << code;
      EXPECT_EQ(std::signbit(found), sign < 0);
    }
  }
}

// Beyond the largest value: the import refuses infinity.
TEST(Mxfp4, OverflowsToInfinity) {
  const std::vector<uint8_t> blocks(16, 0x77);
  const uint8_t scale = 254;
  std::vector<bf16> out(kMxfp4Block);
  decode_mxfp4(blocks.data(), &scale, kMxfp4Block, out.data());
  EXPECT_TRUE(std::isinf(to_f32(out[0])));
}

TEST(Mxfp4, ScaleOf255IsNan) {
  const std::vector<uint8_t> blocks(16, 0);  // zeros
  const uint8_t scale = 255;
  std::vector<bf16> out(kMxfp4Block);
  decode_mxfp4(blocks.data(), &scale, kMxfp4Block, out.data());
  for (const bf16 x : out) EXPECT_TRUE(std::isnan(to_f32(x)));
}

}  // namespace
}  // namespace tutti::checkpoint
