// Latent attention's operands, and attention whose values have another width than its keys.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

struct LatentShape {
  int64_t batch, sequence, heads, shared, own, value;
  int64_t rows() const { return batch * sequence; }
  int64_t key() const { return shared + own; }
};
const LatentShape kLatentShapes[] = {{1, 1, 1, 2, 1, 1},    {2, 7, 3, 4, 5, 3},
                                     {1, 67, 2, 6, 10, 24}, {2, 65, 1, 8, 24, 16},
                                     {1, 130, 2, 2, 3, 40}, {1, 9, 5, 64, 128, 128}};

class LatentHeads : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_cpu()) GTEST_SKIP() << "skipped: latent attention is the CPU's";
  }
};

TEST_F(LatentHeads, GathersKeysAndValuesAndAddsTheirGradientsUp) {
  for_each_dtype([](DType dtype) {
    for (const LatentShape& s : kLatentShapes) {
      const int64_t n = s.rows();
      const TestMatrix up = random_matrix(n, s.heads * (s.own + s.value), dtype, 1, 1, 3);
      const TestMatrix shared = random_matrix(n, s.shared, dtype, 2, 1, 1);
      TestMatrix keys = poisoned_matrix(n, s.heads * s.key(), dtype, 2);
      TestMatrix values = poisoned_matrix(n, s.heads * s.value, dtype, 5);
      test_stream().ops().latent_heads(test_stream(), {.heads = s.heads,
                                                       .shared_dim = s.shared,
                                                       .head_dim = s.own,
                                                       .value_dim = s.value,
                                                       .up = up,
                                                       .shared = shared,
                                                       .keys = keys,
                                                       .values = values});
      std::vector<double> want_keys, want_values, want_shared;
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t a = 0; a < s.heads; ++a) {
          const int64_t at = a * (s.own + s.value);
          for (int64_t j = 0; j < s.shared; ++j) want_keys.push_back(shared.at(r, j));
          for (int64_t j = 0; j < s.own; ++j) want_keys.push_back(up.at(r, at + j));
          for (int64_t j = 0; j < s.value; ++j) want_values.push_back(up.at(r, at + s.own + j));
        }
        for (int64_t j = 0; j < s.shared; ++j) {
          want_shared.push_back(static_cast<double>(s.heads) * shared.at(r, j));
        }
      }
      EXPECT_EQ(keys.values(), want_keys);
      EXPECT_EQ(values.values(), want_values);
      // What went out comes back; what all heads share, once from each.
      TestMatrix d_up = poisoned_matrix(n, up.cols(), dtype);
      TestMatrix d_shared = poisoned_matrix(n, s.shared, dtype);
      test_stream().ops().latent_heads_backward(test_stream(), {.heads = s.heads,
                                                                .shared_dim = s.shared,
                                                                .head_dim = s.own,
                                                                .value_dim = s.value,
                                                                .d_keys = keys,
                                                                .d_values = values,
                                                                .d_up = d_up,
                                                                .d_shared = d_shared});
      EXPECT_EQ(d_up.values(), up.values());
      EXPECT_TRUE(close(d_shared, want_shared, dtype == DType::bf16 ? 4e-3 : 1e-6));
    }
  });
}

// Against the same attention with values that zeros make as wide as keys, or keys as values: the
// zeros add nothing, and the tiles are the same.
TEST_F(LatentHeads, ValuesOfAnotherWidthAreThoseFilledWithZeros) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const LatentShape& s : kLatentShapes) {
      const int64_t n = s.rows(), a = s.heads, d = s.key(), e = s.value;
      SCOPED_TRACE(
          fmt::format("{} x {} tokens, {} heads of {} and {}", s.batch, s.sequence, a, d, e));
      const int64_t wide = std::max(d, e);
      const TestMatrix qkv = random_matrix(n, a * (2 * d + e), dtype, 1, 1, 2);
      const TestMatrix d_out = random_matrix(n, a * e, dtype, 2);
      const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
      // Column j of part `part` (queries, keys, values) of head h, in the narrow and the wide form.
      const auto narrow_column = [&](int64_t part, int64_t h, int64_t j) {
        return part == 2 ? 2 * a * d + h * e + j : (part * a + h) * d + j;
      };
      TestMatrix wide_qkv = zero_matrix(n, 3 * a * wide, dtype);
      TestMatrix wide_d_out = zero_matrix(n, a * wide, dtype);
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t h = 0; h < a; ++h) {
          for (int64_t part = 0; part < 3; ++part) {
            for (int64_t j = 0; j < (part == 2 ? e : d); ++j) {
              wide_qkv.set(r, (part * a + h) * wide + j, qkv.at(r, narrow_column(part, h, j)));
            }
          }
          for (int64_t j = 0; j < e; ++j) wide_d_out.set(r, h * wide + j, d_out.at(r, h * e + j));
        }
      }
      struct Results {
        TestMatrix out, lse, d_qkv;
      };
      const auto run = [&](const TestMatrix& in, const TestMatrix& gradient, int64_t key,
                           int64_t value) {
        Results r = {poisoned_matrix(n, a * value, dtype), poisoned_vector(n * a),
                     poisoned_matrix(n, a * (2 * key + value), dtype)};
        TestMatrix delta = poisoned_vector(n * a);
        test_stream().ops().attention_forward(test_stream(), {.batch = s.batch,
                                                              .sequence = s.sequence,
                                                              .heads = a,
                                                              .kv_heads = a,
                                                              .head_dim = key,
                                                              .value_dim = value,
                                                              .scale = scale,
                                                              .qkv = in,
                                                              .out = r.out,
                                                              .lse = r.lse});
        test_stream().ops().attention_backward(test_stream(), {.batch = s.batch,
                                                               .sequence = s.sequence,
                                                               .heads = a,
                                                               .kv_heads = a,
                                                               .head_dim = key,
                                                               .value_dim = value,
                                                               .scale = scale,
                                                               .qkv = in,
                                                               .out = r.out,
                                                               .d_out = gradient,
                                                               .lse = r.lse,
                                                               .delta = delta,
                                                               .d_qkv = r.d_qkv});
        return r;
      };
      const Results have = run(qkv, d_out, d, e);
      const Results want = run(wide_qkv, wide_d_out, wide, wide);
      EXPECT_TRUE(close(have.lse, want.lse.values(), 1e-6));
      std::vector<double> out, d_qkv(static_cast<size_t>(n * a * (2 * d + e)));
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t h = 0; h < a; ++h) {
          for (int64_t j = 0; j < e; ++j) out.push_back(want.out.at(r, h * wide + j));
          for (int64_t part = 0; part < 3; ++part) {
            for (int64_t j = 0; j < (part == 2 ? e : d); ++j) {
              d_qkv[static_cast<size_t>(r * a * (2 * d + e) + narrow_column(part, h, j))] =
                  want.d_qkv.at(r, (part * a + h) * wide + j);
            }
          }
        }
      }
      const double tolerance = dtype == DType::bf16 ? 1e-2 : 1e-5;
      EXPECT_TRUE(close(have.out, out, tolerance));
      EXPECT_TRUE(close(have.d_qkv, d_qkv, tolerance));
    }
  });
}

// A cache that all heads share, whose values are columns of its keys: what absorbed latent
// attention reads.
TEST_F(LatentHeads, DecodesAgainstValuesWithinKeys) {
  for_each_isa_and_dtype([](DType dtype) {
    constexpr int64_t kHeads = 3, kKey = 20, kValue = 14, kPast = 66, kQueries = 2, kRoom = 70;
    const TestMatrix q = random_matrix(kQueries, kHeads * kKey, dtype, 1);
    const TestMatrix cache = random_matrix(kRoom, kKey, dtype, 2);
    TestMatrix out = poisoned_matrix(kQueries, kHeads * kValue, dtype);
    AttentionDecodeArgs args = {.batch = 1,
                                .queries = kQueries,
                                .past = kPast,
                                .heads = kHeads,
                                .kv_heads = 1,
                                .head_dim = kKey,
                                .value_dim = kValue,
                                .capacity = kRoom,
                                .scale = 0.3F,
                                .q = q,
                                .keys = cache,
                                .values = cache.view().slice_cols(0, kValue),
                                .out = out};
    test_stream().ops().attention_decode(test_stream(), args);
    std::vector<double> want;
    for (int64_t i = 0; i < kQueries; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        std::vector<double> sum(kValue);
        double total = 0;
        for (int64_t k = 0; k <= kPast + i; ++k) {
          double score = 0;
          for (int64_t j = 0; j < kKey; ++j) score += q.at(i, h * kKey + j) * cache.at(k, j);
          const double p = std::exp(0.3 * score);
          total += p;
          for (int64_t j = 0; j < kValue; ++j) sum[static_cast<size_t>(j)] += p * cache.at(k, j);
        }
        for (const double x : sum) want.push_back(x / total);
      }
    }
    EXPECT_TRUE(close(out, want, dtype == DType::bf16 ? 2e-2 : 1e-5));

    // In pages the same bits: page i of the sequence is page 3 * i % 10 of the cache.
    constexpr int64_t kPageRows = 7, kPages = kRoom / kPageRows;
    TestMatrix pages = random_matrix(kRoom, kKey, dtype, 3);
    std::vector<double> table;
    for (int64_t i = 0; i < kPages; ++i) {
      table.push_back(static_cast<double>(3 * i % kPages));
      for (int64_t r = 0; r < kPageRows; ++r) {
        for (int64_t j = 0; j < kKey; ++j) {
          pages.set(3 * i % kPages * kPageRows + r, j, cache.at(i * kPageRows + r, j));
        }
      }
    }
    const TestMatrix tables = TestMatrix(1, kPages, DType::i32).assign(table);
    TestMatrix paged = poisoned_matrix(kQueries, kHeads * kValue, dtype);
    args.keys = pages;
    args.values = pages.view().slice_cols(0, kValue);
    args.out = paged;
    args.pages = tables.vec();
    args.page_rows = kPageRows;
    test_stream().ops().attention_decode(test_stream(), args);
    EXPECT_EQ(paged.values(), out.values());
  });
}

}  // namespace
}  // namespace tutti::engine::testing
