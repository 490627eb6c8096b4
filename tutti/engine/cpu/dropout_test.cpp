#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/rng.h"
#include "tutti/engine/recorder.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

// clang-tidy does not see that copies of matrices are modified through views.
// NOLINTBEGIN(performance-unnecessary-copy-initialization)

using testing::for_each_isa;
using testing::for_each_isa_and_dtype;
using testing::make_test_stream;
using testing::random_matrix;
using testing::test_stream;
using testing::TestMatrix;

constexpr uint64_t kKey = 0x1234567890abcdefU;

bool kept(uint64_t key, int64_t row, int64_t column, float probability) {
  const PhiloxBlock words =
      philox(key, static_cast<uint64_t>(row), static_cast<uint64_t>(column / 4));
  return uniform01(words[static_cast<size_t>(column % 4)]) >= probability;
}

void drop(Matrix x, float probability, int64_t first_row = 0, uint64_t key = kKey) {
  test_stream().ops().dropout(
      test_stream(), {.x = x, .probability = probability, .key = key, .first_row = first_row});
}

TEST(Dropout, OutOfPlaceEqualsInPlace) {
  for_each_isa_and_dtype([&](DType dtype) {
    const TestMatrix before = random_matrix(3, 101, dtype, 1, 1.0, 3);
    TestMatrix in_place = before;
    drop(in_place, 0.3F, 5);
    const TestMatrix x = before;
    const TestMatrix out = testing::poisoned_matrix(3, 101, dtype, 7);
    test_stream().ops().dropout(
        test_stream(), {.x = x, .probability = 0.3F, .key = kKey, .first_row = 5, .out = out});
    EXPECT_TRUE(x.same_bytes(before));
    EXPECT_EQ(out.values(), in_place.values());
    EXPECT_TRUE(out.outside_untouched());
  });
}

// A rank with some columns of a matrix drops the same elements there as one with all columns.
TEST(Dropout, ShardsOfColumnsEqualTheWhole) {
  for_each_isa_and_dtype([&](DType dtype) {
    const TestMatrix before = random_matrix(3, 301, dtype);
    TestMatrix whole = before;
    drop(whole, 0.3F, 5);
    for (const int64_t first : {1, 2, 3, 4, 67, 100}) {
      for (const int64_t count : {1, 5, 64, 101, 200}) {
        const TestMatrix x = before;
        test_stream().ops().dropout(test_stream(), {.x = x.view().slice_cols(first, count),
                                                    .probability = 0.3F,
                                                    .key = kKey,
                                                    .first_row = 5,
                                                    .first_column = first});
        for (int64_t r = 0; r < 3; ++r) {
          for (int64_t j = first; j < first + count; ++j) {
            ASSERT_EQ(x.at(r, j), whole.at(r, j))
                << first << " + " << count << ": " << r << ", " << j;
          }
        }
      }
    }
  });
}

TEST(Dropout, SupportsNonConsecutiveRows) {
  for_each_isa_and_dtype([&](DType dtype) {
    const TestMatrix before = random_matrix(9, 101, dtype);
    TestMatrix whole = before, some(3, 101, dtype), rows(1, 3, DType::i32);
    drop(whole, 0.3F, 40);
    const int64_t chosen[] = {7, 0, 4};
    for (int64_t r = 0; r < 3; ++r) {
      rows.set(0, r, static_cast<double>(chosen[r]));
      for (int64_t j = 0; j < 101; ++j) some.set(r, j, before.at(chosen[r], j));
    }
    test_stream().ops().dropout(
        test_stream(),
        {.x = some, .probability = 0.3F, .key = kKey, .first_row = 40, .rows = rows});
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t j = 0; j < 101; ++j) ASSERT_EQ(some.at(r, j), whole.at(chosen[r], j));
    }
  });
}

TEST(Dropout, EqualsReferenceElementByElement) {
  for_each_isa_and_dtype([&](DType dtype) {
    for (const int64_t n : {1, 3, 21}) {
      for (const int64_t m : {1, 24, 101, 768}) {
        for (const int64_t first_row : {int64_t{0}, int64_t{7} << 33}) {
          const TestMatrix before = random_matrix(n, m, dtype, 1, 1.0, 3);
          TestMatrix x = before;
          drop(x, 0.3F, first_row);
          const float scale = 1.0F / (1.0F - 0.3F);
          for (int64_t r = 0; r < n; ++r) {
            for (int64_t j = 0; j < m; ++j) {
              const float scaled = static_cast<float>(before.at(r, j)) * scale;
              const float expected =
                  !kept(kKey, first_row + r, j, 0.3F)
                      ? 0.0F
                      : (dtype == DType::bf16 ? to_f32(to_bf16(scaled)) : scaled);
              ASSERT_EQ(x.at(r, j), static_cast<double>(expected)) << r << ", " << j;
            }
          }
          EXPECT_TRUE(x.outside_untouched());
        }
      }
    }
  });
}

// Forward and backward are the same call: elements dropped forward have no gradient.
TEST(Dropout, BackwardAppliesTheForwardMask) {
  for_each_isa([&] {
    TestMatrix x = testing::zero_matrix(5, 101).fill(3);
    TestMatrix gradient = testing::zero_matrix(5, 101).fill(-2);
    drop(x, 0.5F);
    drop(gradient, 0.5F);
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t j = 0; j < 101; ++j) EXPECT_EQ(x.at(r, j) / 3, gradient.at(r, j) / -2);
    }
  });
}

TEST(Dropout, DropsAtTheGivenRateAndPreservesTheMean) {
  constexpr int64_t kN = 256;
  constexpr int64_t kM = 1000;
  for (const float p : {0.1F, 0.5F, 0.9F}) {
    TestMatrix x = testing::zero_matrix(kN, kM).fill(1);
    drop(x, p);
    double zeros = 0;
    double sum = 0;
    for (const double value : x.values()) {
      zeros += value == 0 ? 1 : 0;
      sum += value;
    }
    const double count = kN * kM;
    const double deviation =
        std::sqrt(static_cast<double>(p) * (1 - static_cast<double>(p)) / count);
    EXPECT_NEAR(zeros / count, static_cast<double>(p), 5 * deviation);
    EXPECT_NEAR(sum / count, 1, 5 * deviation / (1 - static_cast<double>(p)));
  }
}

TEST(Dropout, MaskDependsOnTheGlobalRow) {
  for_each_isa([&] {
    const TestMatrix before = random_matrix(12, 77);
    TestMatrix whole = before;
    drop(whole, 0.4F, 100);
    TestMatrix parts = before;
    drop(parts.view().slice_rows(0, 5), 0.4F, 100);
    drop(parts.view().slice_rows(5, 7), 0.4F, 105);
    EXPECT_TRUE(whole.same_bytes(parts));

    TestMatrix other_key = before;
    drop(other_key, 0.4F, 100, kKey + 1);
    EXPECT_FALSE(whole.same_bytes(other_key));
  });
}

TEST(Dropout, DoesNotDependOnThreads) {
  const TestMatrix before = random_matrix(33, 130);
  const auto run = [&](int threads) {
    TestMatrix x = before;
    const auto stream = make_test_stream(threads);
    stream->ops().dropout(*stream, {x, 0.2F, kKey, 3});
    return x;
  };
  EXPECT_TRUE(run(1).same_bytes(run(3)));
}

TEST(Dropout, ZeroProbabilityAndEmptyShapesChangeNothing) {
  TestMatrix x = random_matrix(3, 24);
  const TestMatrix before = x;
  drop(x, 0.0F);
  EXPECT_TRUE(x.same_bytes(before));
  drop(TestMatrix(0, 24), 0.5F);
  drop(TestMatrix(3, 0), 0.5F);
}

TEST(Dropout, DroppedElementsAreZeroEvenIfNan) {
  TestMatrix x = testing::poisoned_matrix(4, 100);  // NaN
  drop(x, 0.5F);
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t j = 0; j < 100; ++j) {
      EXPECT_EQ(x.at(r, j) == 0, !kept(kKey, r, j, 0.5F));
    }
  }
}

TEST(Dropout, RecordsTheOperation) {
  TestMatrix x = random_matrix(3, 24, DType::bf16);
  Recorder recorder;
  const auto stream = make_test_stream(1);
  stream->set_recorder(&recorder);
  stream->ops().dropout(*stream, {x, 0.5F, kKey, 0});
  ASSERT_EQ(recorder.records().size(), 1U);
  EXPECT_STREQ(recorder.records()[0].op, "dropout");
  EXPECT_EQ(recorder.records()[0].dims[0], 3);
  EXPECT_EQ(recorder.records()[0].dims[1], 24);
  EXPECT_EQ(recorder.records()[0].bytes, 2 * 3 * 24 * 2);
}

// NOLINTEND(performance-unnecessary-copy-initialization)

}  // namespace
}  // namespace tutti::engine
