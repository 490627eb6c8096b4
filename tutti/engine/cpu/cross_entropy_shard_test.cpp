// Vocabulary parallel ranks compute the same as one rank with the whole vocabulary.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tutti/engine/testing/reference.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

constexpr float kShardScale = 0.125F;

TestMatrix shard_targets_of(int64_t rows, int64_t vocabulary) {
  TestMatrix targets = random_tokens(rows, vocabulary, 3);
  if (rows > 2) targets.set(0, 2, -1);
  return targets;
}

// Columns [first, first + padded) of `whole`, of which those below `vocabulary` are real; the
// others hold values that must not affect the result.
struct Part {
  int64_t first = 0;
  int64_t real = 0;
  TestMatrix logits;
};
std::vector<Part> split(const TestMatrix& whole, int64_t vocabulary, int64_t ways, int64_t padded,
                        DType dtype) {
  std::vector<Part> parts;
  for (int64_t way = 0; way < ways; ++way) {
    const int64_t first = way * padded;
    Part part = {first, std::clamp<int64_t>(vocabulary - first, 0, padded),
                 random_matrix(whole.view().rows, padded, dtype, 9, 30, 2)};
    for (int64_t r = 0; r < whole.view().rows; ++r) {
      for (int64_t j = 0; j < part.real; ++j) part.logits.set(r, j, whole.at(r, first + j));
    }
    parts.push_back(part);
  }
  return parts;
}

// The statistics of all ranks, concatenated as by an all-gather.
TestMatrix statistics_of(const std::vector<Part>& parts, const TestMatrix& targets,
                         int64_t vocabulary) {
  const int64_t rows = targets.view().cols;
  TestMatrix all = poisoned_vector(static_cast<int64_t>(parts.size()) * 2 * rows);
  for (size_t i = 0; i < parts.size(); ++i) {
    float* begin = static_cast<float*>(all.view().data) + static_cast<int64_t>(i) * 2 * rows;
    test_stream().ops().cross_entropy_shard(test_stream(),
                                            {.logits = parts[i].logits,
                                             .vocabulary = parts[i].real,
                                             .first_column = parts[i].first,
                                             .all_columns = vocabulary,
                                             .targets = targets,
                                             .statistics = vector(begin, DType::f32, 2 * rows)});
  }
  return all;
}

void merge(const Part& part, const TestMatrix& targets, const TestMatrix& statistics,
           TestMatrix& loss, const Matrix& d_logits, float softcap = 0) {
  test_stream().ops().cross_entropy_merge(test_stream(), {.logits = part.logits,
                                                          .vocabulary = part.real,
                                                          .first_column = part.first,
                                                          .targets = targets,
                                                          .statistics = statistics,
                                                          .gradient_scale = kShardScale,
                                                          .loss = loss,
                                                          .d_logits = d_logits,
                                                          .softcap = softcap});
}

TEST(CrossEntropyShard, GradientsOfShardsIncludeTheSoftcap) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: capped logits are CPU only";
  constexpr float kCap = 3.5F;
  for_each_isa_and_dtype([&](DType dtype) {
    for (const int64_t ways : {1, 2, 3}) {
      SCOPED_TRACE(ways);
      const int64_t rows = 5, vocabulary = 101;
      const TestMatrix whole = random_matrix(rows, vocabulary, dtype, 1, 3);
      const TestMatrix targets = shard_targets_of(rows, vocabulary);
      const auto expected = reference::cross_entropy(whole.values(), vocabulary, vocabulary,
                                                     targets.values(), kShardScale, vocabulary);
      const std::vector<Part> parts =
          split(whole, vocabulary, ways, (vocabulary + ways - 1) / ways, dtype);
      const TestMatrix statistics = statistics_of(parts, targets, vocabulary);
      for (const Part& part : parts) {
        TestMatrix loss = poisoned_vector(rows);
        TestMatrix d = poisoned_matrix(rows, part.logits.cols(), DType::f32, 1);
        merge(part, targets, statistics, loss, d, kCap);
        EXPECT_TRUE(close(loss, expected.loss, 4e-6));
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t j = 0; j < part.real; ++j) {
            const double t = whole.at(r, part.first + j) / static_cast<double>(kCap);
            const double want =
                expected.gradient[static_cast<size_t>(r * vocabulary + part.first + j)];
            ASSERT_NEAR(d.at(r, j), want * (1 - t * t), 2e-6) << r << ", " << j;
          }
        }
      }
    }
  });
}

TEST(CrossEntropyShard, ShardsEqualTheReference) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const int64_t rows : {0, 1, 3, 21}) {
      for (const int64_t vocabulary : {1, 24, 101, 5001}) {
        for (const int64_t ways : {1, 2, 3, 7}) {
          SCOPED_TRACE(fmt::format("{} rows, {} of {}", rows, vocabulary, ways));
          const int64_t padded = (vocabulary + ways - 1) / ways + 3;  // the last may be empty
          const TestMatrix whole = random_matrix(rows, vocabulary, dtype, 1, 3);
          const TestMatrix targets = shard_targets_of(rows, vocabulary);
          const auto expected = reference::cross_entropy(whole.values(), vocabulary, vocabulary,
                                                         targets.values(), kShardScale, vocabulary);
          const std::vector<Part> parts = split(whole, vocabulary, ways, padded, dtype);
          const TestMatrix statistics = statistics_of(parts, targets, vocabulary);
          TestMatrix first_loss = poisoned_vector(rows);
          merge(parts.front(), targets, statistics, first_loss, {});
          EXPECT_TRUE(close(first_loss, expected.loss, 4e-6));
          for (const Part& part : parts) {
            TestMatrix loss = poisoned_vector(rows);
            TestMatrix d = poisoned_matrix(rows, padded, dtype, 1);
            merge(part, targets, statistics, loss, d);
            EXPECT_TRUE(loss.same_bytes(first_loss));  // the same bits on every rank
            std::vector<double> columns;
            for (int64_t r = 0; r < rows; ++r) {
              for (int64_t j = 0; j < padded; ++j) {
                columns.push_back(
                    j < part.real
                        ? expected.gradient[static_cast<size_t>(r * vocabulary + part.first + j)]
                        : 0);
              }
            }
            EXPECT_TRUE(close(d, columns, dtype == DType::bf16 ? 4e-3 : 1e-5));
          }
        }
      }
    }
  });
}

// A gradient that overlays the logits in the same type, or in a narrower one at the start of a row.
void expect_overlay(DType logits, DType dtype) {
  SCOPED_TRACE(fmt::format("{} logits, {} gradient", dtype_name(logits), dtype_name(dtype)));
  const int64_t rows = 5;
  const int64_t vocabulary = 201;
  const TestMatrix targets = shard_targets_of(rows, vocabulary);
  const TestMatrix whole = random_matrix(rows, vocabulary, logits, 1, 3);
  const std::vector<Part> parts = split(whole, vocabulary, 2, 103, logits);
  const TestMatrix statistics = statistics_of(parts, targets, vocabulary);
  for (const Part& part : parts) {
    TestMatrix loss = poisoned_vector(rows);
    TestMatrix apart = poisoned_matrix(rows, 103, dtype);
    merge(part, targets, statistics, loss, apart);
    Matrix d = part.logits.view();
    const int64_t item = dtype_bytes(dtype);
    d.dtype = dtype;
    d.ld = d.ld * dtype_bytes(logits) / item;
    merge(part, targets, statistics, loss, d);
    for (int64_t r = 0; r < rows; ++r) {
      const auto* have = static_cast<const char*>(d.data) + r * d.ld * item;
      const auto* want = static_cast<const char*>(apart.view().data) + r * 103 * item;
      EXPECT_EQ(std::memcmp(have, want, static_cast<size_t>(103 * item)), 0) << "row " << r;
    }
  }
}

TEST(CrossEntropyShard, GradientMayOverlayTheLogits) {
  for_each_isa_and_dtype([](DType dtype) {
    expect_overlay(DType::f32, dtype);
    if (dtype == DType::bf16) expect_overlay(DType::bf16, dtype);
  });
}

TEST(CrossEntropyShard, GradientIsTheDerivativeOfTheLoss) {
  const int64_t rows = 3;
  const int64_t vocabulary = 11;
  const TestMatrix targets = shard_targets_of(rows, vocabulary);
  TestMatrix whole = random_matrix(rows, vocabulary);
  const auto loss_of = [&] {
    const std::vector<Part> parts = split(whole, vocabulary, 2, 6, DType::f32);
    TestMatrix loss = poisoned_vector(rows);
    merge(parts[0], targets, statistics_of(parts, targets, vocabulary), loss, {});
    return loss.values();
  };
  const std::vector<Part> parts = split(whole, vocabulary, 2, 6, DType::f32);
  const TestMatrix statistics = statistics_of(parts, targets, vocabulary);
  constexpr double kStep = 1e-2;
  for (const Part& part : parts) {
    TestMatrix loss = poisoned_vector(rows);
    TestMatrix d = poisoned_matrix(rows, 6);
    merge(part, targets, statistics, loss, d);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < part.real; ++j) {
        const double x = whole.at(r, part.first + j);
        whole.set(r, part.first + j, x + kStep);
        const double above = loss_of()[static_cast<size_t>(r)];
        whole.set(r, part.first + j, x - kStep);
        const double below = loss_of()[static_cast<size_t>(r)];
        whole.set(r, part.first + j, x);
        EXPECT_NEAR(d.at(r, j), kShardScale * (above - below) / (2 * kStep), 2e-5)
            << r << ", " << j;
      }
    }
  }
}

TEST(CrossEntropyShard, LargeLogitsDoNotOverflowAndNanPropagates) {
  for_each_isa([] {
    TestMatrix whole = TestMatrix(2, 500).fill(-3e4);
    whole.set(0, 400, 3e4);
    whole.set(1, 17, std::nan(""));
    const TestMatrix targets = TestMatrix(1, 2, DType::i32).assign({400, 400});
    const std::vector<Part> parts = split(whole, 500, 2, 250, DType::f32);
    TestMatrix loss = poisoned_vector(2);
    TestMatrix d = poisoned_matrix(2, 250);
    merge(parts[0], targets, statistics_of(parts, targets, 500), loss, d);
    EXPECT_EQ(loss.at(0, 0), 0);
    EXPECT_EQ(d.at(0, 17), 0);
    EXPECT_TRUE(std::isnan(loss.at(0, 1)));
  });
}

TEST(CrossEntropyShardDeathTest, TargetOutsideTheVocabularyAborts) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: the device checks values and faults";
  const TestMatrix targets = TestMatrix(1, 1, DType::i32).assign({7});
  const std::vector<Part> parts = split(random_matrix(1, 7), 7, 2, 4, DType::f32);
  EXPECT_DEATH(statistics_of(parts, targets, 7), "target 7 of row 0 is not below 7");
}

}  // namespace
}  // namespace tutti::engine::testing
