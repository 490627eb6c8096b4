#include <gtest/gtest.h>

#include <cmath>

#include "tutti/engine/recorder.h"
#include "tutti/engine/testing/reference.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

constexpr float kDistillScale = 0.125;

// The operands of one call; some targets are ignored.
struct DistillCase {
  TestMatrix logits, teacher, targets;
  int64_t vocabulary;
  float temperature = 1;
  float weight = 0.5;

  DistillCase(int64_t rows, int64_t vocabulary_in, int64_t padded, DType dtype, double scale = 3)
      : logits(random_matrix(rows, padded, dtype, 1, scale, 2)),
        teacher(random_matrix(rows, padded, dtype, 2, scale, 1)),
        targets(random_tokens(rows, vocabulary_in, 3)),
        vocabulary(vocabulary_in) {
    for (int64_t r = 2; r < rows; r += 5) targets.set(0, r, -1);
  }

  void run(TestMatrix& loss, TestMatrix& divergence, const Matrix& d) const {
    run(logits, loss, divergence, d);
  }
  void run(const Matrix& student, TestMatrix& loss, TestMatrix& divergence, const Matrix& d) const {
    test_stream().ops().distill_cross_entropy(test_stream(), {.logits = student,
                                                              .teacher_logits = teacher,
                                                              .vocabulary = vocabulary,
                                                              .targets = targets,
                                                              .temperature = temperature,
                                                              .weight = weight,
                                                              .gradient_scale = kDistillScale,
                                                              .loss = loss,
                                                              .divergence = divergence,
                                                              .d_logits = d});
  }
};

TEST(DistillCrossEntropy, EqualsTheReference) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const int64_t rows : {0, 1, 3, 21}) {
      for (const int64_t vocabulary : {1, 24, 101, 5001}) {  // the last in several chunks
        const int64_t padded = vocabulary + 27;
        DistillCase c(rows, vocabulary, padded, dtype);
        for (const auto& [temperature, weight] :
             {std::pair(1.0F, 0.3F), {2.0F, 1.0F}, {0.5F, 0.9F}, {3.7F, 0.0F}}) {
          SCOPED_TRACE(fmt::format("{} rows, vocabulary {}, temperature {}, weight {}", rows,
                                   vocabulary, temperature, weight));
          c.temperature = temperature;
          c.weight = weight;
          const auto expected = reference::distill_cross_entropy(
              c.logits.values(), c.teacher.values(), padded, vocabulary, c.targets.values(),
              static_cast<double>(temperature), static_cast<double>(weight),
              static_cast<double>(kDistillScale), padded);
          for (const DType d_dtype : {DType::f32, DType::bf16}) {
            TestMatrix loss = poisoned_vector(rows), divergence = poisoned_vector(rows);
            TestMatrix d = poisoned_matrix(rows, padded, d_dtype, 1);
            c.run(loss, divergence, d);
            EXPECT_TRUE(close(loss, expected.loss, 3e-6));
            EXPECT_TRUE(close(divergence, expected.divergence, 1e-5));
            EXPECT_TRUE(close(d, expected.gradient, d_dtype == DType::bf16 ? 4e-3 : 2e-5));
          }
          TestMatrix loss = poisoned_vector(rows), divergence = poisoned_vector(rows);
          c.run(loss, divergence, {});
          EXPECT_TRUE(close(loss, expected.loss, 3e-6));
          EXPECT_TRUE(close(divergence, expected.divergence, 1e-5));
        }
      }
    }
  });
}

TEST(DistillCrossEntropy, ZeroWeightEqualsCrossEntropyBitwise) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const int64_t vocabulary : {1, 24, 101, 5001}) {
      for (const DType d_dtype : {DType::f32, DType::bf16}) {
        for (const float temperature : {1.0F, 2.0F}) {
          DistillCase c(11, vocabulary, vocabulary + 3, dtype);
          c.temperature = temperature;
          c.weight = 0;
          TestMatrix loss = poisoned_vector(11), divergence = poisoned_vector(11);
          TestMatrix d = poisoned_matrix(11, vocabulary + 3, d_dtype);
          c.run(loss, divergence, d);
          TestMatrix plain_loss = poisoned_vector(11);
          TestMatrix plain = poisoned_matrix(11, vocabulary + 3, d_dtype);
          test_stream().ops().cross_entropy(test_stream(), {.logits = c.logits,
                                                            .vocabulary = vocabulary,
                                                            .targets = c.targets,
                                                            .gradient_scale = kDistillScale,
                                                            .loss = plain_loss,
                                                            .d_logits = plain});
          EXPECT_TRUE(loss.same_bytes(plain_loss));
          EXPECT_TRUE(d.same_bytes(plain));
        }
      }
    }
  });
}

TEST(DistillCrossEntropy, GradientMayOverlayTheLogits) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const DType d_dtype : {DType::f32, DType::bf16}) {
      if (dtype_bytes(d_dtype) > dtype_bytes(dtype)) continue;
      for (const int64_t vocabulary : {1, 24, 101, 5001}) {
        SCOPED_TRACE(fmt::format("vocabulary {}, gradient {}", vocabulary, dtype_name(d_dtype)));
        const int64_t rows = 5;
        const int64_t padded = vocabulary + 3;
        DistillCase c(rows, vocabulary, padded, dtype);
        c.temperature = 2;
        TestMatrix loss = poisoned_vector(rows), divergence = poisoned_vector(rows);
        TestMatrix apart = poisoned_matrix(rows, padded, d_dtype);
        c.run(loss, divergence, apart);
        TestMatrix over = c.logits;
        const TestMatrix teacher = c.teacher;
        TestMatrix over_loss = poisoned_vector(rows), over_divergence = poisoned_vector(rows);
        Matrix d = over.view();
        d.dtype = d_dtype;
        d.ld = d.ld * dtype_bytes(dtype) / dtype_bytes(d_dtype);
        c.run(over, over_loss, over_divergence, d);
        EXPECT_TRUE(over_loss.same_bytes(loss));
        EXPECT_TRUE(over_divergence.same_bytes(divergence));
        EXPECT_TRUE(c.teacher.same_bytes(teacher));
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

TEST(DistillCrossEntropy, GradientIsTheDerivativeOfTheMixture) {
  const int64_t rows = 3;
  const int64_t vocabulary = 11;
  for (const float temperature : {1.0F, 2.5F}) {
    DistillCase c(rows, vocabulary, vocabulary, DType::f32, 1);
    c.temperature = temperature;
    c.weight = 0.4F;
    TestMatrix loss = poisoned_vector(rows), divergence = poisoned_vector(rows);
    TestMatrix d = poisoned_matrix(rows, vocabulary);
    c.run(loss, divergence, d);
    constexpr double kStep = 1e-2;
    const auto loss_at = [&](int64_t r, int64_t j, double value) {
      const double before = c.logits.at(r, j);
      c.logits.set(r, j, value);
      c.run(loss, divergence, {});
      c.logits.set(r, j, before);
      return 0.6 * loss.at(0, r) + 0.4 * divergence.at(0, r);
    };
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < vocabulary; ++j) {
        const double x = c.logits.at(r, j);
        const double slope = (loss_at(r, j, x + kStep) - loss_at(r, j, x - kStep)) / (2 * kStep);
        EXPECT_NEAR(d.at(r, j), static_cast<double>(kDistillScale) * slope, 2e-5) << r << ", " << j;
      }
    }
  }
}

TEST(DistillCrossEntropy, EqualLogitsHaveNoDivergence) {
  for_each_isa([] {
    DistillCase c(4, 1000, 1000, DType::f32, 10);
    c.teacher = c.logits;
    c.temperature = 2;
    c.weight = 1;
    TestMatrix loss = poisoned_vector(4), divergence = poisoned_vector(4);
    TestMatrix d = poisoned_matrix(4, 1000);
    c.run(loss, divergence, d);
    for (int64_t r = 0; r < 4; ++r) {
      EXPECT_EQ(divergence.at(0, r), 0);
      for (int64_t j = 0; j < 1000; ++j) EXPECT_NEAR(d.at(r, j), 0, 1e-7);
    }
  });
}

// Logits of +-1e4, at temperatures above and below 1.
TEST(DistillCrossEntropy, LargeLogitsDoNotOverflowAndNanPropagates) {
  for_each_isa([] {
    const int64_t vocabulary = 5000;
    for (const float temperature : {0.1F, 1.0F, 8.0F}) {
      DistillCase c(4, vocabulary, vocabulary, DType::f32, 5e3);
      c.temperature = temperature;
      c.logits.fill(-1e4);
      c.teacher.fill(-1e4);
      c.logits.set(0, 4000, 1e4);  // confident where the teacher is
      c.teacher.set(0, 4000, 1e4);
      c.logits.set(1, 17, 1e4);  // confident in another token
      c.teacher.set(1, 18, 1e4);
      c.teacher.set(3, 5, std::nan(""));
      c.targets.assign({4000, 17, -1, 9});
      const auto expected = reference::distill_cross_entropy(
          c.logits.values(), c.teacher.values(), vocabulary, vocabulary, c.targets.values(),
          static_cast<double>(temperature), 0.5, static_cast<double>(kDistillScale), vocabulary);
      TestMatrix loss = poisoned_vector(4), divergence = poisoned_vector(4);
      TestMatrix d = poisoned_matrix(4, vocabulary);
      c.run(loss, divergence, d);
      for (int64_t r = 0; r < 3; ++r) {
        const auto i = static_cast<size_t>(r);
        EXPECT_NEAR(divergence.at(0, r), expected.divergence[i],
                    1e-5 * std::abs(expected.divergence[i]) + 1e-3);
        for (const int64_t j : {0, 17, 18, 3999, 4000}) {
          EXPECT_NEAR(d.at(r, j), expected.gradient[static_cast<size_t>(r * vocabulary + j)], 1e-4);
        }
      }
      EXPECT_EQ(divergence.at(0, 2), 0);
      EXPECT_TRUE(std::isnan(divergence.at(0, 3)));
      EXPECT_TRUE(std::isnan(d.at(3, 0)));
    }
  });
}

TEST(DistillCrossEntropy, RecordsTheOperation) {
  const DistillCase c(6, 50, 64, DType::f32);
  TestMatrix loss = poisoned_vector(6), divergence = poisoned_vector(6);
  TestMatrix d = poisoned_matrix(6, 64, DType::bf16);
  Recorder recorder;
  test_stream().set_recorder(&recorder);
  c.run(loss, divergence, d);
  test_stream().set_recorder(nullptr);
  ASSERT_EQ(recorder.records().size(), 1U);
  const OpRecord& record = recorder.records().front();
  EXPECT_STREQ(record.op, "distill_cross_entropy");
  EXPECT_EQ(record.dims[0], 6);
  EXPECT_EQ(record.dims[1], 50);
  EXPECT_EQ(record.bytes, 2.0 * 6 * 64 * 4 + 3.0 * 6 * 4 + 6.0 * 64 * 2);
}

}  // namespace
}  // namespace tutti::engine::testing
