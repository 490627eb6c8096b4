#include "tutti/engine/word_sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "tutti/base/narrow_float.h"

namespace tutti::engine {
namespace {

TEST(WordSum, SumsWordsOfEitherType) {
  for (const int64_t count : {0, 1, 7, 65536, 200001}) {
    SCOPED_TRACE(count);
    std::vector<float> wide(static_cast<size_t>(count));
    std::vector<bf16> narrow(static_cast<size_t>(count));
    uint32_t wide_sum = 0;
    uint32_t narrow_sum = 0;
    for (size_t i = 0; i < wide.size(); ++i) {
      const uint32_t word = static_cast<uint32_t>(i + 1) * 2654435761U;
      wide[i] = std::bit_cast<float>(word & 0xbfffffffU);  // no NaN
      narrow[i].bits = static_cast<uint16_t>(word >> 7);
      wide_sum += word & 0xbfffffffU;
      narrow_sum += narrow[i].bits;
    }
    EXPECT_EQ(word_sum(vector(wide.data(), DType::f32, count)), wide_sum);
    EXPECT_EQ(word_sum(vector(narrow.data(), DType::bf16, count)), narrow_sum);
  }
}

}  // namespace
}  // namespace tutti::engine
