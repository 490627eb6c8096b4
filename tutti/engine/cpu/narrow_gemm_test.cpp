#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "tutti/engine/testing/narrow_check.h"

namespace tutti::engine {
namespace {

using testing::close;
using testing::kNarrowKinds;
using testing::poisoned_matrix;
using testing::product_of;
using testing::quantized;
using testing::random_matrix;
using testing::random_vector;
using testing::test_stream;
using testing::TestMatrix;
using testing::TestNarrow;

struct NarrowShape {
  int64_t m, n, k;
};
constexpr NarrowShape kNarrowShapes[] = {{1, 1, 1}, {5, 3, 31}, {17, 33, 65}};

TEST(NarrowGemm, EqualsTheProductOfDecodedCodes) {
  testing::for_each_isa([] {
    for (const auto& [m, n, k] : kNarrowShapes) {
      const TestMatrix x = random_matrix(m, k, DType::bf16, 1);
      const TestMatrix w = random_matrix(n, k, DType::bf16, 2, 0.05);
      for (const NarrowKind kind : kNarrowKinds) {
        const TestNarrow a = quantized(kind, x);
        const TestNarrow b = quantized(kind == NarrowKind::e5m2 ? NarrowKind::e4m3 : kind, w);
        const std::vector<double> product = product_of(a, b);
        for (const DType dtype : {DType::f32, DType::bf16}) {
          SCOPED_TRACE(fmt::format("{}x{}x{} {} to {}", m, n, k, narrow_format(kind).name,
                                   dtype_name(dtype)));
          TestMatrix c = poisoned_matrix(m, n, dtype, 2);
          test_stream().ops().narrow_gemm(test_stream(), {.a = a.view, .b = b.view, .c = c});
          EXPECT_TRUE(close(c, product));
          // Bias and sum: rounded once.
          const TestMatrix bias = random_vector(n, dtype, 5);
          const TestMatrix before = random_matrix(m, n, dtype, 6, 1, 2);
          std::vector<double> sum = product;
          for (int64_t i = 0; i < m * n; ++i) {
            sum[static_cast<size_t>(i)] += bias.at(0, i % n) + before.at(i / n, i % n);
          }
          TestMatrix added = before;  // NOLINT(performance-unnecessary-copy-initialization)
          test_stream().ops().narrow_gemm(
              test_stream(), {.a = a.view, .b = b.view, .c = added, .beta = 1, .bias = bias});
          EXPECT_TRUE(close(added, sum));
        }
      }
    }
  });
}

// An element's error is at most half a step: relative 2^-4 in E4M3 and 2^-3 in E5M2; in E2M1 a
// sixth of the block's largest (one of 6); mxfp8 may also lose an eighth in E4M3 by saturation.
// Errors of independent elements grow with the square root of their number, so the error of a
// product of k terms with unit variance is at most about sqrt(k) (e_a + e_b) / sqrt(3) of its
// terms' size.
TEST(NarrowGemm, ErrorMatchesTheFormats) {
  const int64_t m = 33, n = 47, k = 517;
  const TestMatrix x = random_matrix(m, k, DType::f32, 1);
  const TestMatrix w = random_matrix(n, k, DType::f32, 2);
  double size = 0;
  std::vector<double> exact;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += x.at(i, p) * w.at(j, p);
      exact.push_back(sum);
      size += sum * sum;
    }
  }
  const auto error = [&](NarrowKind left, NarrowKind right) {
    const TestNarrow a = quantized(left, x);
    const TestNarrow b = quantized(right, w);
    TestMatrix c = poisoned_matrix(m, n);
    test_stream().ops().narrow_gemm(test_stream(), {.a = a.view, .b = b.view, .c = c});
    double sum = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      const double off = c.values()[i] - exact[i];
      sum += off * off;
      if (i > 200) break;
    }
    double part = 0;
    for (size_t i = 0; i <= 201; ++i) part += exact[i] * exact[i];
    return std::sqrt(sum / part);
  };
  const double e4m3 = error(NarrowKind::e4m3, NarrowKind::e4m3);
  const double e5m2 = error(NarrowKind::e5m2, NarrowKind::e4m3);
  const double mxfp8 = error(NarrowKind::mxfp8, NarrowKind::mxfp8);
  const double nvfp4 = error(NarrowKind::nvfp4, NarrowKind::nvfp4);
  // The error of one element is uniform within half a step of 2^-3 (2^-2) of its binade: relative
  // to the element at most 2^-4 to 2^-5, with a root mean square below 2^-4 / sqrt(3).
  const double eight = 0x1p-4 / std::sqrt(3.0);
  EXPECT_LT(e4m3, eight * std::sqrt(2.0));
  EXPECT_GT(e4m3, eight / 2);
  EXPECT_LT(e5m2, eight * std::sqrt(5.0));
  EXPECT_GT(e5m2, e4m3);
  EXPECT_LT(mxfp8, 1.3 * eight * std::sqrt(2.0));
  EXPECT_LT(nvfp4, 0.2);
  EXPECT_GT(nvfp4, 2 * mxfp8);
}

// The device library receives the flag; the host stand-in makes it visible in the bits.
TEST(NarrowGemm, FastSumsAreUsedOnlyOnRequest) {
  if (testing::on_cpu()) GTEST_SKIP() << "skipped: the CPU has one kind of sums";
  if (testing::test_backend().devices().at(0).name != "the host") {
    GTEST_SKIP() << "skipped: results of a GPU do not show the kind of sums";
  }
  const TestNarrow a = quantized(NarrowKind::e4m3, random_matrix(32, 64, DType::bf16, 1));
  const TestNarrow b = quantized(NarrowKind::e4m3, random_matrix(48, 64, DType::bf16, 2));
  const auto product = [&](bool fast) {
    TestMatrix c = poisoned_matrix(32, 48);
    test_stream().ops().narrow_gemm(test_stream(),
                                    {.a = a.view, .b = b.view, .c = c, .fast_sums = fast});
    return c;
  };
  // Each with the summation order that was measured as fastest for it.
  const TestMatrix usual = product(false);
  const TestMatrix fast = product(true);
  ::setenv("TUTTI_HOST_CUBLASLT", "coarse", 1);
  EXPECT_TRUE(product(false).same_bytes(usual));
  EXPECT_FALSE(product(true).same_bytes(fast));
  ::unsetenv("TUTTI_HOST_CUBLASLT");
}

TEST(NarrowGemm, EmptyShapes) {
  for (const NarrowKind kind : kNarrowKinds) {
    const TestNarrow a = quantized(kind, testing::zero_matrix(3, 0));
    const TestNarrow b = quantized(kind, testing::zero_matrix(2, 0));
    TestMatrix c = poisoned_matrix(3, 2);
    test_stream().ops().narrow_gemm(test_stream(), {.a = a.view, .b = b.view, .c = c});
    EXPECT_TRUE(close(c, std::vector<double>(6, 0)));
  }
}

TEST(NarrowGemm, RecordsTheOperation) {
  const TestNarrow a = quantized(NarrowKind::mxfp8, random_matrix(5, 33));
  const TestNarrow b = quantized(NarrowKind::mxfp8, random_matrix(7, 33));
  TestMatrix c = testing::zero_matrix(5, 7, DType::bf16);
  Recorder recorder;
  test_stream().set_recorder(&recorder);
  test_stream().ops().narrow_gemm(test_stream(), {.a = a.view, .b = b.view, .c = c, .beta = 1});
  test_stream().set_recorder(nullptr);
  ASSERT_EQ(recorder.records().size(), 1U);
  const OpRecord& record = recorder.records()[0];
  EXPECT_STREQ(record.op, "narrow_gemm");
  EXPECT_EQ(record.dims, (std::array<int64_t, 6>{5, 7, 33}));
  EXPECT_EQ(record.flops, 2 * 5 * 7 * 33);
  EXPECT_EQ(record.bytes, (5 + 7) * (33 + 2) + 2 * 5 * 7 * 2);
}

}  // namespace
}  // namespace tutti::engine
