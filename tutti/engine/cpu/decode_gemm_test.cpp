#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

using testing::close;
using testing::for_each_isa;
using testing::on_cpu;
using testing::poisoned_matrix;
using testing::random_matrix;
using testing::random_vector;
using testing::test_stream;
using testing::TestMatrix;

// Weights packed row by row, with their decoded values.
struct TestPacked {
  std::vector<uint8_t> data;
  PackedMatrix view;
  std::vector<float> values;

  TestPacked(PackKind kind, const TestMatrix& from)
      : view{kind, from.rows(), from.cols(), nullptr} {
    const PackedLayout layout = view.layout();
    data.resize(static_cast<size_t>(layout.bytes));
    values.resize(static_cast<size_t>(from.rows() * from.cols()));
    view.data = data.data();
    auto* scales = reinterpret_cast<bf16*>(data.data() + layout.scales_offset);
    for (int64_t r = 0; r < from.rows(); ++r) {
      std::vector<float> row;
      for (int64_t c = 0; c < from.cols(); ++c) row.push_back(static_cast<float>(from.at(r, c)));
      uint8_t* codes = data.data() + r * layout.row_bytes;
      pack_row(kind, row.data(), from.cols(), codes, scales + r * layout.groups);
      unpack_row(kind, codes, scales + r * layout.groups, from.cols(),
                 values.data() + r * from.cols());
    }
  }
};

// Null: unpacked weights.
using WeightKind = std::optional<PackKind>;
const std::vector<WeightKind>& weight_kinds() {
  static const std::vector<WeightKind> all = {std::nullopt, PackKind::int8, PackKind::int4};
  return all;
}

struct DecodeShape {
  int64_t m, n, k;
};

class DecodeGemm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_cpu()) GTEST_SKIP() << "skipped: CPU-only operation";
  }
};

TEST_F(DecodeGemm, EqualsTheProductOfDecodedWeights) {
  const std::vector<DecodeShape> shapes = {{1, 1, 1},   {1, 9, 31},   {2, 8, 32},   {3, 13, 33},
                                           {5, 17, 64}, {6, 4, 100},  {16, 21, 96}, {24, 12, 160},
                                           {25, 9, 70}, {40, 300, 65}};
  for_each_isa([&] {
    for (const auto& [m, n, k] : shapes) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const DType out : {DType::f32, dtype}) {
          for (const WeightKind& kind : weight_kinds()) {
            SCOPED_TRACE(fmt::format("{} x {} x {} {} to {}, {}", m, n, k, dtype_name(dtype),
                                     dtype_name(out), kind ? static_cast<int>(*kind) : -1));
            const TestMatrix a = random_matrix(m, k, dtype, 1, 1, 3);
            const TestMatrix w = random_matrix(n, k, dtype, 2, 0.5, 5);
            const TestMatrix bias = random_vector(n, dtype, 6);
            std::optional<TestPacked> packed;
            if (kind) packed.emplace(*kind, w);
            TestMatrix c = poisoned_matrix(m, n, out, 3);
            test_stream().ops().decode_gemm(test_stream(),
                                            {.a = a,
                                             .packed = packed ? packed->view : PackedMatrix{},
                                             .weight = packed ? Matrix{} : w.view(),
                                             .c = c,
                                             .bias = bias});
            std::vector<double> want;
            for (int64_t i = 0; i < m; ++i) {
              for (int64_t j = 0; j < n; ++j) {
                double sum = bias.at(0, j);
                for (int64_t p = 0; p < k; ++p) {
                  double b = w.at(j, p);
                  if (packed)
                    b = static_cast<double>(packed->values[static_cast<size_t>(j * k + p)]);
                  // Unpacked for many rows, weights are rounded to A's type.
                  if (packed && m > kFewRows && dtype == DType::bf16) {
                    b = static_cast<double>(to_f32(to_bf16(static_cast<float>(b))));
                  }
                  sum += a.at(i, p) * b;
                }
                want.push_back(sum);
              }
            }
            EXPECT_TRUE(close(c, want));
            EXPECT_TRUE(c.outside_untouched());
          }
        }
      }
    }
  });
}

TEST_F(DecodeGemm, AlphaMultipliesTheSum) {
  const TestMatrix a = random_matrix(2, 40, DType::bf16, 1);
  const TestMatrix w = random_matrix(5, 40, DType::bf16, 2);
  TestMatrix one = poisoned_matrix(2, 5);
  TestMatrix half = poisoned_matrix(2, 5);
  test_stream().ops().decode_gemm(test_stream(), {.a = a, .weight = w, .c = one});
  test_stream().ops().decode_gemm(test_stream(), {.a = a, .weight = w, .c = half, .alpha = 0.5F});
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(half.at(i / 5, i % 5), one.at(i / 5, i % 5) / 2);
}

// The result of a sequence does not depend on the other sequences of the batch.
TEST_F(DecodeGemm, BitsOfARowDoNotDependOnOtherRows) {
  for_each_isa([] {
    const int64_t n = 37, k = 200;
    const TestMatrix a = random_matrix(kFewRows, k, DType::bf16, 1);
    const TestMatrix w = random_matrix(n, k, DType::bf16, 2);
    for (const WeightKind& kind : weight_kinds()) {
      std::optional<TestPacked> packed;
      if (kind) packed.emplace(*kind, w);
      const auto product = [&](int64_t first, int64_t rows) {
        TestMatrix c = poisoned_matrix(rows, n);
        test_stream().ops().decode_gemm(test_stream(),
                                        {.a = a.view().slice_rows(first, rows),
                                         .packed = packed ? packed->view : PackedMatrix{},
                                         .weight = packed ? Matrix{} : w.view(),
                                         .c = c});
        return c.values();
      };
      const std::vector<double> all = product(0, kFewRows);
      for (const int64_t rows : {1, 2, 3, 5, 7, 16}) {
        const int64_t first = kFewRows - rows;
        const std::vector<double> some = product(first, rows);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * n)) << rows;
      }
    }
  });
}

}  // namespace
}  // namespace tutti::engine
