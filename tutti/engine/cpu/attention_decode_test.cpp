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

}  // namespace
}  // namespace tutti::engine::testing
