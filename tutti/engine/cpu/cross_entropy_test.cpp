#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tutti/engine/testing/reference.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

constexpr double kScale = 0.125;

TestMatrix targets_of(int64_t rows, int64_t vocabulary) {
  TestMatrix targets = random_tokens(rows, vocabulary, 3);
  if (rows > 2) targets.set(0, 2, -1);
  return targets;
}

void run(const Matrix& logits, int64_t vocabulary, const TestMatrix& targets, TestMatrix& loss,
         const Matrix& d_logits, float softcap = 0) {
  test_stream().ops().cross_entropy(test_stream(), {.logits = logits,
                                                    .vocabulary = vocabulary,
                                                    .targets = targets,
                                                    .gradient_scale = static_cast<float>(kScale),
                                                    .loss = loss,
                                                    .d_logits = d_logits,
                                                    .softcap = softcap});
}

TEST(CrossEntropy, EqualsTheReference) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const int64_t rows : {0, 1, 3, 21}) {
      for (const int64_t vocabulary : {1, 24, 101, 5001}) {  // the last in several chunks
        SCOPED_TRACE(fmt::format("{} rows, vocabulary {}", rows, vocabulary));
        const int64_t padded = vocabulary + 27;
        const TestMatrix logits = random_matrix(rows, padded, dtype, 1, 3, 2);
        const TestMatrix targets = targets_of(rows, vocabulary);
        const auto expected = reference::cross_entropy(logits.values(), padded, vocabulary,
                                                       targets.values(), kScale, padded);
        for (const DType d_dtype : {DType::f32, DType::bf16}) {
          TestMatrix loss = poisoned_vector(rows);
          TestMatrix d = poisoned_matrix(rows, padded, d_dtype, 1);
          run(logits, vocabulary, targets, loss, d);
          EXPECT_TRUE(close(loss, expected.loss, 3e-6));
          EXPECT_TRUE(close(d, expected.gradient, d_dtype == DType::bf16 ? 4e-3 : 1e-5));
        }
        TestMatrix loss = poisoned_vector(rows);
        run(logits, vocabulary, targets, loss, {});
        EXPECT_TRUE(close(loss, expected.loss, 3e-6));
      }
    }
  });
}

TEST(CrossEntropy, GradientMayOverlayTheLogits) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const DType d_dtype : {DType::f32, DType::bf16}) {
      if (dtype_bytes(d_dtype) > dtype_bytes(dtype)) continue;
      for (const int64_t vocabulary : {1, 24, 101, 5001}) {
        SCOPED_TRACE(fmt::format("vocabulary {}, gradient {}", vocabulary, dtype_name(d_dtype)));
        const int64_t rows = 5;
        const int64_t padded = vocabulary + 3;
        const TestMatrix logits = random_matrix(rows, padded, dtype, 1, 3);
        const TestMatrix targets = targets_of(rows, vocabulary);
        TestMatrix apart_loss = poisoned_vector(rows);
        TestMatrix apart = poisoned_matrix(rows, padded, d_dtype);
        run(logits, vocabulary, targets, apart_loss, apart);
        TestMatrix over = logits;
        TestMatrix over_loss = poisoned_vector(rows);
        Matrix d = over.view();
        d.dtype = d_dtype;
        d.ld = d.ld * dtype_bytes(dtype) / dtype_bytes(d_dtype);
        run(over, vocabulary, targets, over_loss, d);
        EXPECT_TRUE(over_loss.same_bytes(apart_loss));
        const int64_t item = dtype_bytes(d_dtype);
        for (int64_t r = 0; r < rows; ++r) {
          const auto* have = static_cast<const char*>(d.data) + r * d.ld * item;
          const auto* want = static_cast<const char*>(apart.view().data) + r * padded * item;
          EXPECT_EQ(std::memcmp(have, want, static_cast<size_t>(padded * item)), 0) << "row " << r;
        }
      }
    }
  });
}

TEST(CrossEntropy, GradientIsTheDerivativeOfTheLoss) {
  const int64_t rows = 3;
  const int64_t vocabulary = 11;
  const TestMatrix targets = targets_of(rows, vocabulary);
  TestMatrix logits = random_matrix(rows, vocabulary);
  TestMatrix loss = poisoned_vector(rows);
  TestMatrix d = poisoned_matrix(rows, vocabulary);
  run(logits, vocabulary, targets, loss, d);
  constexpr double kStep = 1e-2;
  const auto loss_at = [&](int64_t r, int64_t j, double value) {
    const double before = logits.at(r, j);
    logits.set(r, j, value);
    run(logits, vocabulary, targets, loss, {});
    logits.set(r, j, before);
    return loss.at(0, r);
  };
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < vocabulary; ++j) {
      const double x = logits.at(r, j);
      const double slope = (loss_at(r, j, x + kStep) - loss_at(r, j, x - kStep)) / (2 * kStep);
      EXPECT_NEAR(d.at(r, j), kScale * slope, 2e-5) << r << ", " << j;
    }
  }
}

// The gradient before the softcap is that of the capped logits times the derivative of the cap.
TEST(CrossEntropy, GradientIncludesTheSoftcap) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: capped logits are CPU only";
  for_each_isa_and_dtype([](DType dtype) {
    for (const int64_t rows : {0, 1, 21}) {
      for (const int64_t vocabulary : {1, 24, 101, 5001}) {
        for (const float cap : {3.5F, 30.0F}) {
          SCOPED_TRACE(fmt::format("{} rows, vocabulary {}, cap {}", rows, vocabulary, cap));
          const int64_t padded = vocabulary + 27;
          const TestMatrix logits = random_matrix(rows, padded, dtype, 1, 3, 2);
          const TestMatrix targets = targets_of(rows, vocabulary);
          auto expected = reference::cross_entropy(logits.values(), padded, vocabulary,
                                                   targets.values(), kScale, padded);
          const std::vector<double> capped = logits.values();
          for (size_t i = 0; i < capped.size(); ++i) {
            const double t = capped[i] / static_cast<double>(cap);
            expected.gradient[i] *= 1 - t * t;
          }
          for (const DType d_dtype : {DType::f32, DType::bf16}) {
            TestMatrix loss = poisoned_vector(rows);
            TestMatrix d = poisoned_matrix(rows, padded, d_dtype, 1);
            run(logits, vocabulary, targets, loss, d, cap);
            EXPECT_TRUE(close(loss, expected.loss, 3e-6));
            EXPECT_TRUE(close(d, expected.gradient, d_dtype == DType::bf16 ? 4e-3 : 1e-5));
          }
        }
      }
    }
  });
}

TEST(CrossEntropy, RowsOfGradientsSumToZeroAndIgnoredRowsAreZero) {
  const TestMatrix logits = random_matrix(3, 1000, DType::f32, 1, 10);
  const TestMatrix targets = targets_of(3, 1000);
  TestMatrix loss = poisoned_vector(3);
  TestMatrix d = poisoned_matrix(3, 1000);
  run(logits, 1000, targets, loss, d);
  for (int64_t r = 0; r < 3; ++r) {
    double sum = 0;
    for (int64_t j = 0; j < 1000; ++j) sum += d.at(r, j);
    EXPECT_NEAR(sum, 0, 1e-6);
  }
  EXPECT_EQ(loss.at(0, 2), 0);
  EXPECT_EQ(d.at(2, 7), 0);
}

TEST(CrossEntropy, LargeLogitsDoNotOverflowAndNanPropagates) {
  for_each_isa([] {
    TestMatrix logits = TestMatrix(2, 5000).fill(-3e4);
    logits.set(0, 4000, 3e4);
    logits.set(1, 17, std::nan(""));
    const TestMatrix targets = TestMatrix(1, 2, DType::i32).assign({4000, 4000});
    TestMatrix loss = poisoned_vector(2);
    TestMatrix d = poisoned_matrix(2, 5000);
    run(logits, 5000, targets, loss, d);
    EXPECT_EQ(loss.at(0, 0), 0);
    EXPECT_EQ(d.at(0, 3999), 0);
    EXPECT_TRUE(std::isnan(loss.at(0, 1)));
  });
}

}  // namespace
}  // namespace tutti::engine::testing
