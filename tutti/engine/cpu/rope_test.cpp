#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

using testing::close;
using testing::for_each_isa_and_dtype;
using testing::make_test_stream;
using testing::random_matrix;
using testing::test_stream;
using testing::TestMatrix;

// 1 / 10000^(2i/D), as f32.
TestMatrix frequencies(int64_t head_dim) {
  TestMatrix out(1, head_dim / 2);
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    out.set(0, i, std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  }
  return out;
}

std::vector<double> rotated(const TestMatrix& x, int64_t heads, int64_t d,
                            const TestMatrix& frequency, const std::vector<double>& positions) {
  std::vector<double> out = x.values();
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < d / 2; ++i) {
        const double angle = positions[static_cast<size_t>(r)] * frequency.at(0, i);
        const int64_t low = h * d + i, high = low + d / 2;
        const double a = x.at(r, low), b = x.at(r, high);
        out[static_cast<size_t>(r * x.cols() + low)] = a * std::cos(angle) - b * std::sin(angle);
        out[static_cast<size_t>(r * x.cols() + high)] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  return out;
}

struct RopeShape {
  int64_t rows, sequence, heads, d, cols;
};
const std::vector<RopeShape>& rope_shapes() {
  static const std::vector<RopeShape> all = {{21, 7, 3, 8, 24},   {1, 1, 1, 2, 2},
                                             {10, 5, 2, 6, 15},   {40, 20, 3, 64, 320},
                                             {6, 3, 2, 128, 256}, {9, 9, 1, 50, 53}};
  return all;
}

double tolerance(DType dtype) { return dtype == DType::bf16 ? 4e-3 : 1e-6; }

TEST(Rope, MatchesReferenceAndLeavesOtherColumns) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const RopeShape& s : rope_shapes()) {
      for (const int64_t first : {0, 1000, 131000}) {
        SCOPED_TRACE(fmt::format("{} rows, {} heads of {}, from {}", s.rows, s.heads, s.d, first));
        TestMatrix x = random_matrix(s.rows, s.cols, dtype, 3, 1, 3);
        const TestMatrix frequency = frequencies(s.d);
        std::vector<double> positions;
        for (int64_t r = 0; r < s.rows; ++r) {
          positions.push_back(static_cast<double>(first + r % s.sequence));
        }
        const std::vector<double> want = rotated(x, s.heads, s.d, frequency, positions);
        test_stream().ops().rope(test_stream(), {.x = x,
                                                 .heads = s.heads,
                                                 .head_dim = s.d,
                                                 .sequence = s.sequence,
                                                 .inverse_frequency = frequency,
                                                 .first_position = first});
        EXPECT_TRUE(close(x, want, tolerance(dtype)));
      }
    }
  });
}

// Columns beyond `rotated` are unchanged, and the transpose is the backward pass.
TEST(Rope, RotatesTheFirstColumnsOfAHeadAndScales) {
  if (!testing::on_cpu()) GTEST_SKIP() << "skipped: partial rotation is CPU only";
  for_each_isa_and_dtype([](DType dtype) {
    constexpr int64_t kDim = 20, kHeads = 3;
    for (const int64_t rotated : {2, 6, 18, 20}) {
      for (const float amplitude : {1.0F, 1.7F}) {
        SCOPED_TRACE(fmt::format("{} columns times {}", rotated, amplitude));
        TestMatrix x = random_matrix(7, kHeads * kDim, dtype, 5, 1, 2);
        const TestMatrix given = x;
        const TestMatrix frequency = frequencies(rotated);
        std::vector<double> want = x.values();
        for (int64_t r = 0; r < 7; ++r) {
          for (int64_t h = 0; h < kHeads; ++h) {
            for (int64_t i = 0; i < rotated / 2; ++i) {
              const double angle = static_cast<double>(r) * frequency.at(0, i);
              const int64_t low = h * kDim + i, high = low + rotated / 2;
              const double a = x.at(r, low), b = x.at(r, high);
              const double c = std::cos(angle), s = std::sin(angle);
              want[static_cast<size_t>(r * x.cols() + low)] = amplitude * (a * c - b * s);
              want[static_cast<size_t>(r * x.cols() + high)] = amplitude * (b * c + a * s);
            }
          }
        }
        RopeArgs args = {.x = x,
                         .heads = kHeads,
                         .head_dim = kDim,
                         .rotated = rotated,
                         .amplitude = amplitude,
                         .sequence = 7,
                         .inverse_frequency = frequency};
        test_stream().ops().rope(test_stream(), args);
        EXPECT_TRUE(close(x, want, 2 * tolerance(dtype)));
        args.inverse = true;
        args.amplitude = 1 / amplitude;
        test_stream().ops().rope(test_stream(), args);
        EXPECT_TRUE(close(x, given.values(), 4 * tolerance(dtype)));
      }
    }
  });
}

TEST(Rope, UsesGivenPositions) {
  for_each_isa_and_dtype([](DType dtype) {
    TestMatrix x = random_matrix(5, 32, dtype, 4);
    const TestMatrix frequency = frequencies(16);
    const std::vector<double> positions = {7, 0, 99999, 3, 3};
    const TestMatrix given = TestMatrix(1, 5, DType::i32).assign(positions);
    const std::vector<double> want = rotated(x, 2, 16, frequency, positions);
    test_stream().ops().rope(
        test_stream(),
        {.x = x, .heads = 2, .head_dim = 16, .inverse_frequency = frequency, .positions = given});
    EXPECT_TRUE(close(x, want, tolerance(dtype)));
  });
}

TEST(Rope, InverseUndoesTheRotation) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const RopeShape& s : rope_shapes()) {
      TestMatrix x = random_matrix(s.rows, s.cols, dtype, 5, 1, 1);
      const std::vector<double> before = x.values();
      const TestMatrix frequency = frequencies(s.d);
      for (const bool inverse : {false, true}) {
        test_stream().ops().rope(test_stream(), {.x = x,
                                                 .heads = s.heads,
                                                 .head_dim = s.d,
                                                 .sequence = s.sequence,
                                                 .inverse_frequency = frequency,
                                                 .first_position = 500,
                                                 .inverse = inverse});
      }
      EXPECT_TRUE(close(x, before, 3 * tolerance(dtype)));  // two roundings of each pair
    }
  });
}

// The dot product of a query at m and a key at n depends on m - n only.
TEST(Rope, DotProductsDependOnDistanceOnly) {
  const TestMatrix frequency = frequencies(16);
  const auto dot_at = [&](int64_t m, int64_t n) {
    TestMatrix x = random_matrix(2, 16, DType::f32, 6);
    const TestMatrix positions =
        TestMatrix(1, 2, DType::i32).assign({static_cast<double>(m), static_cast<double>(n)});
    test_stream().ops().rope(test_stream(), {.x = x,
                                             .heads = 1,
                                             .head_dim = 16,
                                             .inverse_frequency = frequency,
                                             .positions = positions});
    double dot = 0;
    for (int64_t i = 0; i < 16; ++i) dot += x.at(0, i) * x.at(1, i);
    return dot;
  };
  EXPECT_NEAR(dot_at(5, 2), dot_at(1003, 1000), 1e-5);
  EXPECT_NEAR(dot_at(5, 2), dot_at(100003, 100000), 1e-5);
}

TEST(Rope, RecordsTheOperation) {
  Recorder recorder;
  const auto stream = make_test_stream(2);
  stream->set_recorder(&recorder);
  TestMatrix x = random_matrix(6, 40, DType::bf16, 7);
  const TestMatrix frequency = frequencies(8);
  stream->ops().rope(
      *stream, {.x = x, .heads = 3, .head_dim = 8, .sequence = 3, .inverse_frequency = frequency});
  ASSERT_EQ(recorder.records().size(), 1U);
  EXPECT_STREQ(recorder.records()[0].op, "rope");
  EXPECT_EQ(recorder.records()[0].dims, (std::array<int64_t, kMaxOpDims>{6, 3, 8, 0, 0, 0}));
  EXPECT_EQ(recorder.records()[0].flops, 0);
  EXPECT_EQ(recorder.records()[0].bytes, 2.0 * 6 * 24 * 2 + 4 * 4);
}

}  // namespace
}  // namespace tutti::engine
