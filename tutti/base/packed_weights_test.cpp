#include "tutti/base/packed_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tutti/base/rng.h"

namespace tutti {
namespace {

struct Packed {
  std::vector<uint8_t> codes;
  std::vector<bf16> scales;
  std::vector<float> back;
};

Packed pack(PackKind kind, const std::vector<float>& values) {
  const auto columns = static_cast<int64_t>(values.size());
  const PackedLayout layout = packed_layout(kind, 1, columns);
  Packed out;
  out.codes.resize(static_cast<size_t>(layout.row_bytes));
  out.scales.resize(static_cast<size_t>(layout.groups));
  out.back.resize(values.size());
  pack_row(kind, values.data(), columns, out.codes.data(), out.scales.data());
  unpack_row(kind, out.codes.data(), out.scales.data(), columns, out.back.data());
  return out;
}

std::vector<float> normal_values(int64_t count) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<uint64_t>(i);
    const double radius = std::sqrt(-2 * std::log(1 - random_uniform(7, 2 * index)));
    out.push_back(static_cast<float>(0.02 * radius *
                                     std::cos(6.283185307 * random_uniform(7, 2 * index + 1))));
  }
  return out;
}

double relative_error(const std::vector<float>& from, const std::vector<float>& to) {
  double off = 0;
  double all = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    off += std::pow(static_cast<double>(from[i]) - static_cast<double>(to[i]), 2);
    all += std::pow(static_cast<double>(from[i]), 2);
  }
  return std::sqrt(off / all);
}

TEST(PackedWeights, TakeTheBytesThatTheyName) {
  EXPECT_EQ(packed_layout(PackKind::int8, 3, 64).bytes, 3 * (64 + 2 * 2));
  EXPECT_EQ(packed_layout(PackKind::int4, 3, 256).bytes, 3 * (128 + 8 * 2));  // 4.5 bits each
  EXPECT_EQ(packed_layout(PackKind::int4, 2, 129).row_bytes, 128);
}

// No value is off by more than half a step, but where int4 gives up the largest for the others.
TEST(PackedWeights, ErrAtMostHalfAStep) {
  for (const int64_t columns : {1, 31, 32, 33, 100, 4096}) {
    const std::vector<float> values = normal_values(columns);
    const Packed packed = pack(PackKind::int8, values);
    for (size_t i = 0; i < values.size(); ++i) {
      // The scale is off by 2^-9 at most, so the largest may be off by 127 times that.
      const float scale = to_f32(packed.scales[i / kPackGroup]);
      EXPECT_LE(std::abs(packed.back[i] - values[i]), 0.76F * scale) << i;
    }
  }
}

// Of normally distributed values: 8 bits 0.5%, 4 bits 8 to 9%, less than with the plain scale.
TEST(PackedWeights, ErrAsLittleAsTheirBitsAllow) {
  const std::vector<float> values = normal_values(1 << 14);
  EXPECT_LT(relative_error(values, pack(PackKind::int8, values).back), 0.0065);
  EXPECT_LT(relative_error(values, pack(PackKind::int4, values).back), 0.085);
}

TEST(PackedWeights, ValuesThatTheyHoldComeBack) {
  std::vector<float> values;
  for (int i = -127; i <= 127; ++i) values.push_back(0.25F * static_cast<float>(i));
  values.resize(256, 31.75F);  // every group has the scale of its largest
  for (size_t first = 0; first < values.size(); first += 32) values[first] = 31.75F;
  EXPECT_EQ(pack(PackKind::int8, values).back, values);
  std::vector<float> few;
  for (int i = 0; i < 64; ++i) few.push_back(0.5F * static_cast<float>(i % 16 - 8));
  EXPECT_EQ(pack(PackKind::int4, few).back, few);
}

TEST(PackedWeights, ZerosAndWhatIsNotFiniteStay) {
  for (const PackKind kind : {PackKind::int8, PackKind::int4}) {
    std::vector<float> values(70, 0.0F);
    EXPECT_EQ(pack(kind, values).back, values);
    values[40] = std::numeric_limits<float>::infinity();
    const Packed packed = pack(kind, values);
    EXPECT_EQ(packed.back[0], 0);
    EXPECT_TRUE(std::isnan(packed.back[40]));
    EXPECT_EQ(packed.back[69], 0);
    values[40] = 1e-40F;  // a scale that vanishes
    EXPECT_FALSE(std::isnan(pack(kind, values).back[40]));
  }
}

TEST(PackedWeights, CodesAreTakenOutAndPutBack) {
  for (const PackKind kind : {PackKind::int8, PackKind::int4}) {
    for (const int64_t columns : {1, 32, 33, 64, 96, 128, 160, 300}) {
      const std::vector<float> values = normal_values(columns);
      const Packed packed = pack(kind, values);
      std::vector<int8_t> numbers(values.size());
      get_codes(kind, packed.codes.data(), columns, numbers.data());
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(packed.back[i], to_f32(packed.scales[i / 32]) * static_cast<float>(numbers[i]));
      }
      std::vector<uint8_t> again(packed.codes.size(), 0x55);
      set_codes(kind, numbers.data(), columns, again.data());
      EXPECT_EQ(again, packed.codes) << columns;
    }
  }
}

}  // namespace
}  // namespace tutti
