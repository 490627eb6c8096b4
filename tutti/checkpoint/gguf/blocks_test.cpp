#include "tutti/checkpoint/gguf/blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/rng.h"
#include "tutti/checkpoint/store/elements.h"

namespace tutti::checkpoint {
namespace {

std::vector<float> drawn(int64_t count) {
  std::vector<float> values;
  const uint64_t key = stream_key(3, "blocks");
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(random_uniform(key, static_cast<uint64_t>(i)) * 4 - 2));
  }
  return values;
}

std::string encoded(GgufType type, const std::vector<float>& values) {
  std::string bytes(static_cast<size_t>(gguf_bytes(type, static_cast<int64_t>(values.size()))),
                    '\0');
  encode_gguf(type, values.data(), static_cast<int64_t>(values.size()), bytes.data(), "x");
  return bytes;
}

std::vector<float> round_trip(GgufType type, const std::vector<float>& values) {
  const std::string bytes = encoded(type, values);
  std::vector<float> out(values.size());
  decode_gguf(type, bytes.data(), static_cast<int64_t>(values.size()), out.data(), "x");
  return out;
}

// The bytes of a block by the definition of the format.
TEST(GgufBlocks, KnownBytes) {
  std::vector<float> values(32, 0.0F);
  values[0] = 127;
  values[1] = -127;
  values[2] = 1.4F;
  values[31] = -3;
  std::string bytes = encoded(GgufType::q8_0, values);
  ASSERT_EQ(bytes.size(), 34U);
  EXPECT_EQ(bytes.substr(0, 2), std::string("\x00\x3c", 2));  // 1 in half precision
  EXPECT_EQ(static_cast<int8_t>(bytes[2]), 127);
  EXPECT_EQ(static_cast<int8_t>(bytes[3]), -127);
  EXPECT_EQ(static_cast<int8_t>(bytes[4]), 1);
  EXPECT_EQ(static_cast<int8_t>(bytes[33]), -3);
  values[0] = 8;
  values[1] = -8;
  values[2] = 0;
  values[16] = 3;
  bytes = encoded(GgufType::q4_0, values);
  ASSERT_EQ(bytes.size(), 18U);
  EXPECT_EQ(bytes.substr(0, 2), std::string("\x00\xbc", 2));  // 8 / -8
  EXPECT_EQ(static_cast<unsigned char>(bytes[2]), 0x50);      // 8 is 0, 3 is 5
  EXPECT_EQ(static_cast<unsigned char>(bytes[3]), 0x8f);      // -8 is 15 at most, 0 is 8
}

// The error of an element is at most half a step, and a step more at the end of the 4-bit range.
TEST(GgufBlocks, ErrorsAreBounded) {
  const std::vector<float> values = drawn(32 * 50);
  for (const auto& [type, steps] :
       {std::pair(GgufType::q8_0, 127.0F), std::pair(GgufType::q4_0, 8.0F)}) {
    const std::vector<float> back = round_trip(type, values);
    for (size_t block = 0; block < values.size(); block += 32) {
      float most = 0;
      for (size_t i = block; i < block + 32; ++i) most = std::max(most, std::fabs(values[i]));
      const float bound = type == GgufType::q4_0 ? 1.01F : 0.51F;
      for (size_t i = block; i < block + 32; ++i) {
        EXPECT_LE(std::fabs(values[i] - back[i]), bound * most / steps + 1e-3F * most);
      }
    }
  }
  EXPECT_EQ(round_trip(GgufType::q8_0, std::vector<float>(32, 0)), std::vector<float>(32, 0));
  EXPECT_EQ(round_trip(GgufType::f32, values), values);
}

// Decoded values encode to the same values again.
TEST(GgufBlocks, DecodedValuesAreFixed) {
  for (const GgufType type : {GgufType::q8_0, GgufType::bf16, GgufType::f16}) {
    const std::vector<float> once = round_trip(type, drawn(32 * 8));
    const std::vector<float> twice = round_trip(type, once);
    for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(once[i], twice[i], 2e-3);
  }
}

TEST(GgufBlocks, NonFiniteValuesAreRefused) {
  std::vector<float> values(32, 1.0F);
  values[5] = std::numeric_limits<float>::quiet_NaN();
  for (const GgufType type : {GgufType::q8_0, GgufType::q4_0, GgufType::bf16}) {
    EXPECT_THROW(encoded(type, values), Error);
  }
  EXPECT_THROW(parse_gguf_type("q5_k"), Error);
  EXPECT_FALSE(gguf_type_of(12).has_value());
}

}  // namespace
}  // namespace tutti::checkpoint
