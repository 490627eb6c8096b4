#include <gtest/gtest.h>

#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

using testing::close;
using testing::for_each_isa_and_dtype;
using testing::on_cpu;
using testing::random_matrix;
using testing::test_stream;
using testing::TestMatrix;
using testing::zero_vector;

// Rows of each group, one after the other; or in pieces with equally many groups.
struct BiasCase {
  std::vector<std::vector<int64_t>> pieces;
  int64_t piece_rows;
  int64_t experts, columns;
};
const BiasCase kBiasCases[] = {{{{1}}, 1, 1, 1},
                               {{{3, 0, 5, 1}}, 11, 4, 21},
                               {{{0, 0, 70, 2}}, 72, 2, 65},  // twice two experts
                               {{{2, 1, 0}, {0, 4, 1}}, 6, 3, 17}};

TestMatrix bias_offsets(const BiasCase& c) {
  int64_t count = 0;
  for (const auto& piece : c.pieces) count += static_cast<int64_t>(piece.size()) + 1;
  TestMatrix out = zero_vector(count, DType::i32);
  int64_t at = 0;
  for (const auto& piece : c.pieces) {
    int64_t total = 0;
    ++at;
    for (const int64_t rows : piece) out.set(0, at++, static_cast<double>(total += rows));
  }
  return out;
}

// The expert of each row, or -1.
std::vector<int64_t> experts_of_rows(const BiasCase& c) {
  std::vector<int64_t> out(c.pieces.size() * static_cast<size_t>(c.piece_rows), -1);
  for (size_t p = 0; p < c.pieces.size(); ++p) {
    size_t row = p * static_cast<size_t>(c.piece_rows);
    for (size_t g = 0; g < c.pieces[p].size(); ++g) {
      for (int64_t i = 0; i < c.pieces[p][g]; ++i) {
        out[row++] = static_cast<int64_t>(g) % c.experts;
      }
    }
  }
  return out;
}

class GroupedBias : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_cpu()) GTEST_SKIP() << "skipped: CPU-only operation";
  }
};

// Rows of no expert are unchanged.
TEST_F(GroupedBias, IsAddedToTheRowsOfItsExpert) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const BiasCase& c : kBiasCases) {
      const std::vector<int64_t> experts = experts_of_rows(c);
      const auto rows = static_cast<int64_t>(experts.size());
      TestMatrix x = random_matrix(rows, c.columns, dtype, 1, 1, 3);
      const TestMatrix bias = random_matrix(1, c.experts * c.columns, dtype, 2);
      std::vector<double> want;
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t e = experts[static_cast<size_t>(r)];
        for (int64_t j = 0; j < c.columns; ++j) {
          want.push_back(x.at(r, j) + (e < 0 ? 0 : bias.at(0, e * c.columns + j)));
        }
      }
      const TestMatrix offsets = bias_offsets(c);
      test_stream().ops().grouped_bias(test_stream(),
                                       {.x = x,
                                        .offsets = offsets.vec(),
                                        .piece_rows = c.pieces.size() > 1 ? c.piece_rows : 0,
                                        .bias = bias.vec()});
      EXPECT_TRUE(close(x, want, dtype == DType::bf16 ? 1e-2 : 1e-6));
    }
  });
}

TEST_F(GroupedBias, GradientIsTheSumOfTheRowsOfItsExpert) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const BiasCase& c : kBiasCases) {
      for (const float beta : {0.0F, 1.0F}) {
        for (const float scale : {1.0F, 0.5F}) {
          const std::vector<int64_t> experts = experts_of_rows(c);
          const auto rows = static_cast<int64_t>(experts.size());
          const TestMatrix dy = random_matrix(rows, c.columns, dtype, 1, 1, 3);
          TestMatrix d_bias = random_matrix(1, c.experts * c.columns, DType::f32, 2);
          std::vector<double> want = d_bias.values();
          for (double& value : want) value *= static_cast<double>(beta);
          for (int64_t r = 0; r < rows; ++r) {
            const int64_t e = experts[static_cast<size_t>(r)];
            if (e < 0) continue;
            for (int64_t j = 0; j < c.columns; ++j) {
              want[static_cast<size_t>(e * c.columns + j)] +=
                  static_cast<double>(scale) * dy.at(r, j);
            }
          }
          const TestMatrix offsets = bias_offsets(c);
          test_stream().ops().grouped_column_sum(
              test_stream(), {.dy = dy,
                              .offsets = offsets.vec(),
                              .piece_rows = c.pieces.size() > 1 ? c.piece_rows : 0,
                              .beta = beta,
                              .scale = scale,
                              .d_bias = d_bias.vec()});
          EXPECT_TRUE(close(d_bias, want, 1e-5));
        }
      }
    }
  });
}

}  // namespace
}  // namespace tutti::engine
