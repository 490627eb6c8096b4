#include <gtest/gtest.h>

#include <vector>

#include "tutti/engine/recorder.h"
#include "tutti/engine/testing/reference.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

using Values = std::vector<double>;

struct GroupedCase {
  std::vector<int64_t> rows;  // of each group
  int64_t spare;              // rows of no group
  int64_t n, k;
};
const GroupedCase kCases[] = {{{1}, 0, 1, 1},
                              {{3, 0, 5, 1}, 2, 21, 13},
                              {{0, 0}, 3, 7, 5},
                              {{67, 8, 0, 131}, 9, 101, 65},
                              {{9, 50}, 0, 48, 3301}};  // several passes over k

TestMatrix offsets_of(const GroupedCase& c) {
  TestMatrix out = zero_vector(static_cast<int64_t>(c.rows.size()) + 1, DType::i32);
  int64_t total = 0;
  for (size_t e = 0; e < c.rows.size(); ++e) {
    out.set(0, static_cast<int64_t>(e) + 1, static_cast<double>(total += c.rows[e]));
  }
  return out;
}

int64_t used_rows(const GroupedCase& c) {
  int64_t total = 0;
  for (const int64_t rows : c.rows) total += rows;
  return total;
}

Values part(const Values& all, int64_t first, int64_t count) {
  return {all.begin() + first, all.begin() + first + count};
}

// Spare rows are not written: their poison is NaN.
void expect_spare_untouched(const TestMatrix& out, int64_t used) {
  for (int64_t r = used; r < out.rows(); ++r) {
    for (int64_t j = 0; j < out.cols(); ++j) ASSERT_TRUE(std::isnan(out.at(r, j)));
  }
}

TestMatrix used_part(const TestMatrix& all, int64_t rows) {
  TestMatrix out(rows, all.cols(), all.view().dtype);
  return out.assign(part(all.values(), 0, rows * all.cols()));
}

void check_product(const GroupedCase& c, DType dtype, bool transpose) {
  const auto groups = static_cast<int64_t>(c.rows.size());
  const int64_t used = used_rows(c);
  const TestMatrix a = random_matrix(used + c.spare, c.k, dtype, 1, 1, 3);
  const TestMatrix b =
      random_matrix(groups * (transpose ? c.n : c.k), transpose ? c.k : c.n, dtype, 2);
  TestMatrix out = poisoned_matrix(used + c.spare, c.n, dtype, 5);
  const TestMatrix offsets = offsets_of(c);
  test_stream().ops().grouped_gemm(
      test_stream(), {.a = a, .b = b, .offsets = offsets, .transpose_b = transpose, .c = out});
  Values expected;
  int64_t first = 0;
  for (size_t e = 0; e < c.rows.size(); ++e) {
    const Values product =
        reference::gemm(part(a.values(), first * c.k, c.rows[e] * c.k), false,
                        part(b.values(), static_cast<int64_t>(e) * c.n * c.k, c.n * c.k), transpose,
                        c.rows[e], c.n, c.k, 0, {}, {});
    expected.insert(expected.end(), product.begin(), product.end());
    first += c.rows[e];
  }
  EXPECT_TRUE(close(used_part(out, used), expected));
  EXPECT_TRUE(out.outside_untouched());
  expect_spare_untouched(out, used);
}

TEST(GroupedGemm, EveryGroupIsAProduct) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const GroupedCase& c : kCases) {
      for (const bool transpose : {false, true}) {
        SCOPED_TRACE(
            fmt::format("{} groups, n {} k {}, transpose {}", c.rows.size(), c.n, c.k, transpose));
        check_product(c, dtype, transpose);
      }
    }
  });
}

TEST(GroupedGemm, WeightGradients) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const GroupedCase& c : kCases) {
      for (const float beta : {0.0F, 1.0F}) {
        const int64_t m = c.n, n = std::min<int64_t>(c.k, 70);
        SCOPED_TRACE(fmt::format("{} groups, m {} n {}, beta {}", c.rows.size(), m, n, beta));
        const auto groups = static_cast<int64_t>(c.rows.size());
        const int64_t rows = used_rows(c) + c.spare;
        TestMatrix dy = random_matrix(rows, m, dtype, 1, 1, 3);
        const TestMatrix x = random_matrix(rows, n, dtype, 2);
        for (int64_t r = used_rows(c); r < rows; ++r) dy.set(r, 0, NAN);  // must not be read
        const TestMatrix before = random_matrix(groups * m, n, DType::f32, 3);
        TestMatrix out = beta == 0 ? poisoned_matrix(groups * m, n) : before;
        const TestMatrix offsets = offsets_of(c);
        test_stream().ops().grouped_gemm_weight(
            test_stream(), {.dy = dy, .x = x, .offsets = offsets, .beta = beta, .d_weight = out});
        Values expected;
        int64_t first = 0;
        for (size_t e = 0; e < c.rows.size(); ++e) {
          const int64_t at = static_cast<int64_t>(e) * m * n;
          const Values product =
              reference::gemm(part(dy.values(), first * m, c.rows[e] * m), true,
                              part(x.values(), first * n, c.rows[e] * n), false, m, n, c.rows[e],
                              static_cast<double>(beta), part(before.values(), at, m * n), {});
          expected.insert(expected.end(), product.begin(), product.end());
          first += c.rows[e];
        }
        EXPECT_TRUE(close(out, expected));
      }
    }
  });
}

TEST(GroupedGemm, RecordsTheRowsInUse) {
  const GroupedCase c = {{3, 0, 5}, 4, 6, 10};
  const TestMatrix a = random_matrix(12, 10, DType::bf16), b = random_matrix(30, 6, DType::bf16);
  const TestMatrix out(12, 6, DType::bf16), offsets = offsets_of(c);
  Recorder recorder;
  test_stream().set_recorder(&recorder);
  test_stream().ops().grouped_gemm(test_stream(), {.a = a, .b = b, .offsets = offsets, .c = out});
  test_stream().set_recorder(nullptr);
  ASSERT_EQ(recorder.records().size(), 1U);
  const OpRecord& record = recorder.records()[0];
  EXPECT_EQ(record.dims, (std::array<int64_t, 6>{3, 8, 6, 10, 0, 0}));
  EXPECT_EQ(record.flops, 2.0 * 8 * 6 * 10);
  EXPECT_EQ(record.bytes, 2.0 * (8 * 16 + 3 * 60));
}

// Groups of several ranks with the same experts equal one call per rank.
TEST(GroupedGemm, GroupsOfSeveralRanksShareTheExperts) {
  for_each_isa_and_dtype([](DType dtype) {
    const int64_t experts = 3, n = 21, k = 13;
    const GroupedCase c = {{3, 0, 5, 1, 4, 0, 0, 0, 2}, 2, n, k};
    const TestMatrix offsets = offsets_of(c);
    const int64_t rows = used_rows(c) + c.spare;
    const TestMatrix x = random_matrix(rows, k, dtype, 1, 1, 3);
    const TestMatrix dy = random_matrix(rows, n, dtype, 2, 1, 1);
    const TestMatrix weights = random_matrix(experts * n, k, dtype, 3);
    const TestMatrix all = poisoned_matrix(rows, n, dtype);
    const TestMatrix apart = poisoned_matrix(rows, n, dtype);
    const TestMatrix d_all = poisoned_matrix(experts * n, k);
    const TestMatrix d_apart = poisoned_matrix(experts * n, k);
    const OpTable& ops = test_stream().ops();
    ops.grouped_gemm(test_stream(),
                     {.a = x, .b = weights, .offsets = offsets, .transpose_b = true, .c = all});
    ops.grouped_gemm_weight(test_stream(),
                            {.dy = dy, .x = x, .offsets = offsets, .beta = 0, .d_weight = d_all});
    for (int64_t rank = 0; rank < 3; ++rank) {
      const auto begin = static_cast<int64_t>(offsets.at(0, rank * experts));
      const auto end = static_cast<int64_t>(offsets.at(0, (rank + 1) * experts));
      TestMatrix mine(1, experts + 1, DType::i32);
      for (int64_t e = 0; e <= experts; ++e) {
        mine.set(0, e, offsets.at(0, rank * experts + e) - static_cast<double>(begin));
      }
      const auto part = [&](const TestMatrix& matrix) {
        return matrix.view().slice_rows(begin, end - begin);
      };
      ops.grouped_gemm(
          test_stream(),
          {.a = part(x), .b = weights, .offsets = mine, .transpose_b = true, .c = part(apart)});
      ops.grouped_gemm_weight(test_stream(), {.dy = part(dy),
                                              .x = part(x),
                                              .offsets = mine,
                                              .beta = rank == 0 ? 0.0F : 1.0F,
                                              .d_weight = d_apart});
    }
    EXPECT_TRUE(close(used_part(all, used_rows(c)), used_part(apart, used_rows(c)).values()));
    EXPECT_TRUE(close(d_all, d_apart.values()));
  });
}

// The same rows in pieces with unused rows between them, which hold NaN.
TEST(GroupedGemm, GroupsInPieces) {
  for_each_isa_and_dtype([](DType dtype) {
    const int64_t experts = 3, pieces = 3, piece_rows = 11, n = 21, k = 13;
    const GroupedCase c = {{3, 0, 5, 1, 4, 0, 0, 0, 2}, 0, n, k};
    const TestMatrix offsets = offsets_of(c);
    const int64_t rows = used_rows(c);
    const TestMatrix x = random_matrix(rows, k, dtype, 1), dy = random_matrix(rows, n, dtype, 2);
    const TestMatrix weights = random_matrix(experts * n, k, dtype, 3);
    TestMatrix in_pieces(1, pieces * (experts + 1), DType::i32);
    std::vector<int64_t> positions;  // of every row
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const double first = offsets.at(0, piece * experts);
      for (int64_t e = 0; e <= experts; ++e) {
        in_pieces.set(0, piece * (experts + 1) + e, offsets.at(0, piece * experts + e) - first);
      }
      for (double row = first; row < offsets.at(0, (piece + 1) * experts); ++row) {
        positions.push_back(piece * piece_rows + static_cast<int64_t>(row - first));
      }
    }
    const auto spread = [&](const TestMatrix& from) {
      TestMatrix out = poisoned_matrix(pieces * piece_rows, from.cols(), dtype, 5);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < from.cols(); ++j) {
          out.set(positions[static_cast<size_t>(r)], j, from.at(r, j));
        }
      }
      return out;
    };
    const TestMatrix y = poisoned_matrix(rows, n, dtype);
    const TestMatrix far_y = poisoned_matrix(pieces * piece_rows, n, dtype);
    const TestMatrix d_weight = poisoned_matrix(experts * n, k);
    const TestMatrix far_d_weight = poisoned_matrix(experts * n, k);
    const OpTable& ops = test_stream().ops();
    ops.grouped_gemm(test_stream(),
                     {.a = x, .b = weights, .offsets = offsets, .transpose_b = true, .c = y});
    ops.grouped_gemm_weight(
        test_stream(), {.dy = dy, .x = x, .offsets = offsets, .beta = 0, .d_weight = d_weight});
    ops.grouped_gemm(test_stream(), {.a = spread(x),
                                     .b = weights,
                                     .offsets = in_pieces,
                                     .piece_rows = piece_rows,
                                     .transpose_b = true,
                                     .c = far_y});
    ops.grouped_gemm_weight(test_stream(), {.dy = spread(dy),
                                            .x = spread(x),
                                            .offsets = in_pieces,
                                            .piece_rows = piece_rows,
                                            .beta = 0,
                                            .d_weight = far_d_weight});
    int64_t used = 0;
    for (int64_t r = 0; r < far_y.rows(); ++r) {
      const bool holds = used < rows && positions[static_cast<size_t>(used)] == r;
      for (int64_t j = 0; j < n; ++j) {
        if (holds) {
          EXPECT_EQ(far_y.at(r, j), y.at(used, j));
        } else {
          EXPECT_TRUE(std::isnan(far_y.at(r, j)));
        }
      }
      used += holds ? 1 : 0;
    }
    EXPECT_EQ(used, rows);
    EXPECT_TRUE(far_d_weight.same_bytes(d_weight));
  });
}

}  // namespace
}  // namespace tutti::engine::testing
