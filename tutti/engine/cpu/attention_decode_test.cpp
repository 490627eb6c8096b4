// New rows of a sequence against its KV cache.
#include <gtest/gtest.h>

#include <vector>

#include "tutti/engine/testing/attention_check.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

// The last `queries` rows of the forward pass, from a cache whose rows beyond the sequence are NaN.
TEST(AttentionDecode, EqualsTheLastRowsOfForward) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Shape& shape : {Shape{2, 130, 4, 2, 16}, Shape{1, 64, 3, 3, 64},
                               Shape{3, 7, 3, 1, 8}, Shape{1, 200, 6, 1, 24}}) {
      AttentionCase c(shape, dtype);
      c.forward();
      for (const int64_t queries : {int64_t{1}, int64_t{2}, int64_t{70}, shape.t}) {
        if (queries > shape.t) continue;
        SCOPED_TRACE(fmt::format("{}, {} queries", name(shape), queries));
        const int64_t past = shape.t - queries;
        const int64_t capacity = shape.t + 9;
        const int64_t kv_cols = shape.k * shape.d;
        TestMatrix q(shape.b * queries, shape.a * shape.d, dtype, 1);
        TestMatrix keys(shape.b * capacity, kv_cols, dtype, 2);
        TestMatrix values(shape.b * capacity, kv_cols, dtype);
        TestMatrix out(shape.b * queries, shape.a * shape.d, dtype, 3);
        std::vector<double> want;
        for (int64_t b = 0; b < shape.b; ++b) {
          for (int64_t t = 0; t < shape.t; ++t) {
            const int64_t row = b * shape.t + t;
            for (int64_t j = 0; j < kv_cols; ++j) {
              keys.set(b * capacity + t, j, c.qkv.at(row, shape.a * shape.d + j));
              values.set(b * capacity + t, j, c.qkv.at(row, (shape.a + shape.k) * shape.d + j));
            }
            if (t < past) continue;
            for (int64_t j = 0; j < shape.a * shape.d; ++j) {
              q.set(b * queries + t - past, j, c.qkv.at(row, j));
              want.push_back(c.out.at(row, j));
            }
          }
        }
        test_stream().ops().attention_decode(test_stream(), {.batch = shape.b,
                                                             .queries = queries,
                                                             .past = past,
                                                             .heads = shape.a,
                                                             .kv_heads = shape.k,
                                                             .head_dim = shape.d,
                                                             .capacity = capacity,
                                                             .q = q,
                                                             .keys = keys,
                                                             .values = values,
                                                             .out = out});
        // Bitwise equal if the same kernel computes both.
        const bool same = on_cpu() || dtype == DType::f32;
        EXPECT_TRUE(close(out, want, same ? 0 : 2 * tolerance(dtype)));
      }
    }
  });
}

// The same with softcap and a sliding window, longer and shorter than a tile, with queries that
// start anywhere in it.
TEST(AttentionDecode, SupportsWindowsAndSoftcap) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: windows and caps are CPU only";
  for_each_isa_and_dtype([](DType dtype) {
    const Shape shape = {1, 200, 6, 2, 24};
    for (const int64_t window : {1, 7, 64, 130, 300}) {
      AttentionCase c(shape, dtype);
      c.use_window(window);
      c.softcap = 1.5F;
      c.forward();
      for (const int64_t queries : {int64_t{1}, int64_t{70}, shape.t}) {
        SCOPED_TRACE(fmt::format("window {}, {} queries", window, queries));
        const int64_t past = shape.t - queries;
        const Matrix all = c.qkv;
        const int64_t kv_cols = shape.k * shape.d;
        const TestMatrix starts =
            TestMatrix(1, queries, DType::i32).assign({c.starts.begin() + past, c.starts.end()});
        TestMatrix out(queries, shape.a * shape.d, dtype, 3);
        test_stream().ops().attention_decode(
            test_stream(), {.batch = 1,
                            .queries = queries,
                            .past = past,
                            .heads = shape.a,
                            .kv_heads = shape.k,
                            .head_dim = shape.d,
                            .capacity = shape.t,
                            .softcap = c.softcap,
                            .q = all.slice_rows(past, queries).slice_cols(0, shape.a * shape.d),
                            .keys = all.slice_cols(shape.a * shape.d, kv_cols),
                            .values = all.slice_cols((shape.a + shape.k) * shape.d, kv_cols),
                            .out = out,
                            .starts = starts.vec()});
        const std::vector<double> whole = c.out.values();
        EXPECT_EQ(out.values(),
                  std::vector<double>(whole.begin() + past * shape.a * shape.d, whole.end()));
      }
    }
  });
}

// Texts of different lengths in pages anywhere give each one's bits alone in one piece.
TEST(AttentionDecode, ReadsPagesOfTextsOfDifferentLengths) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: pages are the CPU's";
  for_each_isa_and_dtype([](DType dtype) {
    const int64_t a = 6, k = 2, d = 24, kv_cols = k * d;
    for (const int64_t page_rows : {1, 16, 70}) {
      for (const int64_t queries : {1, 3}) {
        SCOPED_TRACE(fmt::format("pages of {} rows, {} queries", page_rows, queries));
        const std::vector<int32_t> pasts = {0, 130, 63, 7};
        const auto texts = static_cast<int64_t>(pasts.size());
        const int64_t count = (130 + queries + page_rows - 1) / page_rows;
        const TestMatrix q = random_matrix(texts * queries, a * d, dtype, 1);
        const TestMatrix keys = random_matrix(texts * count * page_rows, kv_cols, dtype, 2);
        const TestMatrix values = random_matrix(texts * count * page_rows, kv_cols, dtype, 3);
        // The last text's first; of each the first half in order, the other backwards.
        std::vector<double> tables;
        for (int64_t b = texts; b-- > 0;) {
          for (int64_t i = 0; i < count; ++i) {
            tables.push_back(
                static_cast<double>(b * count + (i < count / 2 ? i : count - 1 - (i - count / 2))));
          }
        }
        const TestMatrix pages = TestMatrix(1, texts * count, DType::i32).assign(tables);
        const TestMatrix past =
            TestMatrix(1, texts, DType::i32).assign({pasts.begin(), pasts.end()});
        const auto args = [&](int64_t first, int64_t batch, Matrix out) {
          return AttentionDecodeArgs{.batch = batch,
                                     .queries = queries,
                                     .past = 130,
                                     .heads = a,
                                     .kv_heads = k,
                                     .head_dim = d,
                                     .capacity = count * page_rows,
                                     .q = Matrix(q).slice_rows(first * queries, batch * queries),
                                     .keys = keys,
                                     .values = values,
                                     .out = out};
        };
        TestMatrix together(texts * queries, a * d, dtype, 4);
        AttentionDecodeArgs all = args(0, texts, together);
        all.pasts = past.vec();
        all.pages = pages.vec();
        all.page_rows = page_rows;
        test_stream().ops().attention_decode(test_stream(), all);
        for (int64_t b = 0; b < texts; ++b) {
          TestMatrix own_keys(count * page_rows, kv_cols, dtype);
          TestMatrix own_values(count * page_rows, kv_cols, dtype);
          for (int64_t r = 0; r < count * page_rows; ++r) {
            const auto page =
                static_cast<int64_t>(tables[static_cast<size_t>(b * count + r / page_rows)]);
            for (int64_t c = 0; c < kv_cols; ++c) {
              own_keys.set(r, c, keys.at(page * page_rows + r % page_rows, c));
              own_values.set(r, c, values.at(page * page_rows + r % page_rows, c));
            }
          }
          TestMatrix out(queries, a * d, dtype, 5);
          AttentionDecodeArgs alone = args(b, 1, out);
          alone.past = pasts[static_cast<size_t>(b)];
          alone.keys = own_keys;
          alone.values = own_values;
          test_stream().ops().attention_decode(test_stream(), alone);
          const std::vector<double> found = together.values();
          EXPECT_EQ(out.values(), std::vector<double>(found.begin() + b * queries * a * d,
                                                      found.begin() + (b + 1) * queries * a * d));
        }
      }
    }
  });
}

}  // namespace
}  // namespace tutti::engine::testing
