// Ring attention over all blocks of a sequence against attention over the whole sequence.
#include <gtest/gtest.h>

#include <vector>

#include "tutti/engine/recorder.h"
#include "tutti/engine/testing/attention_check.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

// Row of the whole sequences for row r of block `block`.
int64_t whole_row(const Shape& s, int64_t blocks, int64_t block, int64_t r) {
  const int64_t rows = s.t / blocks;
  const int64_t chunk = rows / 2;
  const int64_t t = r % rows;
  const int64_t position =
      t < chunk ? block * chunk + t : (2 * blocks - 1 - block) * chunk + t - chunk;
  return r / rows * s.t + position;
}

TestMatrix in_memory(const std::vector<int32_t>& starts) {
  return TestMatrix(1, static_cast<int64_t>(starts.size()), DType::i32)
      .assign({starts.begin(), starts.end()});
}
Vector view(const TestMatrix& starts) { return starts.cols() == 0 ? Vector{} : starts.vec(); }

// Columns [first, first + cols) of one block's rows.
TestMatrix cut(const Shape& s, int64_t blocks, int64_t block, const TestMatrix& whole,
               int64_t first, int64_t cols) {
  TestMatrix out(s.n() / blocks, cols, whole.view().dtype, 3);
  for (int64_t r = 0; r < out.rows(); ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      out.set(r, c, whole.at(whole_row(s, blocks, block, r), first + c));
    }
  }
  return out;
}

struct Ring {
  Ring(const Shape& shape, int64_t count, DType type, const Starts& starts = nullptr)
      : s(shape),
        blocks(count),
        dtype(type),
        first_seen(starts),
        qkv(random_matrix(s.n(), s.qkv_cols(), type, 11)),
        d_out(random_matrix(s.n(), s.a * s.d, type, 12)) {}

  int64_t rows() const { return s.t / blocks; }

  // For the rows of rank `rank`: the number of keys of block `block` before the first that the row
  // attends to.
  std::vector<int32_t> starts_of(int64_t rank, int64_t block) const {
    std::vector<int32_t> out;
    if (!first_seen) return out;
    for (int64_t r = 0; r < s.n() / blocks; ++r) {
      const int64_t row = whole_row(s, blocks, rank, r);
      int32_t before = 0;
      for (int64_t key = 0; key < rows(); ++key) {
        if (whole_row(s, blocks, block, key) < first_seen(row / s.t, row % s.t)) ++before;
      }
      out.push_back(before);
    }
    return out;
  }
  TestMatrix part(int64_t block, int64_t first, int64_t heads) const {
    return cut(s, blocks, block, qkv, first * s.d, heads * s.d);
  }

  // All computations of rank `rank`, after those of higher ranks; gradients of keys and values are
  // added to d_kv of their block.
  void run(int64_t rank, std::vector<TestMatrix>& d_kv) {
    const TestMatrix q = part(rank, 0, s.a);
    TestMatrix total = poisoned_matrix(q.rows(), q.cols(), DType::f32, 5);
    TestMatrix lse = poisoned_vector(s.b * s.a * rows());
    const auto keys = [&](int64_t block) { return part(block, s.a, s.k); };
    const auto values = [&](int64_t block) { return part(block, s.a + s.k, s.k); };
    Stream& stream = test_stream();
    for (int64_t step = 0; step < blocks; ++step) {
      const int64_t block = (rank - step + blocks) % blocks;
      const TestMatrix k = keys(block), v = values(block);
      const TestMatrix starts = in_memory(starts_of(rank, block));
      stream.ops().attention_block_forward(stream, {.batch = s.b,
                                                    .rows = rows(),
                                                    .heads = s.a,
                                                    .kv_heads = s.k,
                                                    .head_dim = s.d,
                                                    .softcap = softcap,
                                                    .blocks = blocks,
                                                    .query_block = rank,
                                                    .key_block = block,
                                                    .q = q,
                                                    .keys = k,
                                                    .values = v,
                                                    .first = step == 0,
                                                    .total = total,
                                                    .lse = lse,
                                                    .starts = view(starts)});
    }
    const TestMatrix out = TestMatrix(q.rows(), q.cols(), dtype).assign(total.values());
    const TestMatrix d_rows = cut(s, blocks, rank, d_out, 0, s.a * s.d);
    TestMatrix delta = poisoned_vector(s.b * s.a * rows());
    TestMatrix d_q = poisoned_matrix(q.rows(), q.cols(), DType::f32, 1);
    for (int64_t step = 0; step < blocks; ++step) {
      const int64_t block = (rank - step + blocks) % blocks;
      const TestMatrix k = keys(block), v = values(block);
      const TestMatrix starts = in_memory(starts_of(rank, block));
      Matrix both = d_kv[static_cast<size_t>(block)];
      stream.ops().attention_block_backward(
          stream, {.batch = s.b,
                   .rows = rows(),
                   .heads = s.a,
                   .kv_heads = s.k,
                   .head_dim = s.d,
                   .softcap = softcap,
                   .blocks = blocks,
                   .query_block = rank,
                   .key_block = block,
                   .q = q,
                   .keys = k,
                   .values = v,
                   .out = out,
                   .d_out = d_rows,
                   .lse = lse,
                   .delta = delta,
                   .add_queries = step > 0,
                   .add_keys = rank < blocks - 1,  // the last rank overwrites poison
                   .d_q = d_q,
                   .d_keys = both.slice_cols(0, s.k * s.d),
                   .d_values = both.slice_cols(s.k * s.d, s.k * s.d),
                   .starts = view(starts)});
    }
    EXPECT_TRUE(total.outside_untouched() && lse.outside_untouched() && d_q.outside_untouched());
    totals.insert(totals.begin(), total);
    lses.insert(lses.begin(), lse);
    d_queries.insert(d_queries.begin(), d_q);
  }

  Shape s;
  int64_t blocks;
  DType dtype;
  Starts first_seen;  // empty: rows attend to all earlier rows
  float softcap = 0;
  TestMatrix qkv, d_out;
  std::vector<TestMatrix> totals, lses, d_queries;  // per rank
};

// Twice kBackwardRoundings: with two or ten rows the rounding errors do not average out.
constexpr double kRingRoundings = 6;

void expect_ring_is_whole(const Shape& shape, int64_t blocks, DType dtype,
                          const Starts& starts = nullptr, float softcap = 0) {
  Ring ring(shape, blocks, dtype, starts);
  ring.softcap = softcap;
  const Reference want = reference(
      shape, ring.qkv.values(), ring.d_out.values(), 1 / std::sqrt(static_cast<double>(shape.d)),
      starts ? starts : Starts(start_of_zero), static_cast<double>(softcap));
  const int64_t width = shape.a * shape.d;
  const int64_t kv_width = 2 * shape.k * shape.d;
  std::vector<TestMatrix> d_kv(static_cast<size_t>(blocks),
                               poisoned_matrix(shape.n() / blocks, kv_width, DType::f32, 7));
  for (int64_t rank = blocks; rank-- > 0;) ring.run(rank, d_kv);
  const TestMatrix out = TestMatrix(shape.n(), width).assign(want.out);
  const TestMatrix d_qkv = TestMatrix(shape.n(), shape.qkv_cols()).assign(want.d_qkv);
  for (int64_t rank = 0; rank < blocks; ++rank) {
    SCOPED_TRACE(fmt::format("rank {} of {}", rank, blocks));
    const auto of = [&](const std::vector<TestMatrix>& all) {
      return all[static_cast<size_t>(rank)];
    };
    const auto expected = [&](const TestMatrix& whole, int64_t first, int64_t cols) {
      return cut(shape, blocks, rank, whole, first, cols).values();
    };
    expect_close(of(ring.totals), expected(out, 0, width), kForwardRoundings, dtype);
    expect_close(of(ring.d_queries), expected(d_qkv, 0, width), kRingRoundings, dtype);
    expect_close(of(d_kv), expected(d_qkv, width, kv_width), kRingRoundings, dtype);
    std::vector<double> lse;
    const int64_t rows = shape.t / blocks;
    for (int64_t b = 0; b < shape.b; ++b) {
      for (int64_t a = 0; a < shape.a; ++a) {
        for (int64_t t = 0; t < rows; ++t) {
          const int64_t row = whole_row(shape, blocks, rank, b * rows + t);
          lse.push_back(want.lse[static_cast<size_t>((b * shape.a + a) * shape.t + row % shape.t)]);
        }
      }
    }
    EXPECT_TRUE(close(of(ring.lses), lse, 1e-5));
    EXPECT_TRUE(of(d_kv).outside_untouched());
  }
}

TEST(AttentionBlock, RingEqualsTheWholeSequence) {
  for_each_isa_and_dtype([](DType dtype) {
    struct Ranks {
      Shape shape;
      int64_t blocks;
    };
    for (const Ranks& c :
         {Ranks{{3, 12, 3, 3, 8}, 2}, Ranks{{1, 2, 1, 1, 1}, 1}, Ranks{{2, 4, 2, 1, 5}, 2},
          Ranks{{2, 130, 3, 1, 8}, 1}, Ranks{{1, 396, 4, 2, 16}, 3}, Ranks{{2, 390, 2, 1, 24}, 3},
          Ranks{{1, 520, 2, 2, 13}, 4}, Ranks{{1, 10, 5, 1, 4}, 5}, Ranks{{1, 256, 2, 2, 64}, 1}}) {
      SCOPED_TRACE(fmt::format("{} on {}", name(c.shape), c.blocks));
      expect_ring_is_whole(c.shape, c.blocks, dtype);
    }
  });
}

// Documents that end within chunks and at the edges of chunks and tiles, from two rows to all.
TEST(AttentionBlock, RingOfPackedDocumentsEqualsTheWholeSequence) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const int64_t length : {2, 3, 64, 100, 1000}) {
      const Starts first = [length](int64_t b, int64_t t) {
        const int64_t shifted = t + 7 * b;  // another offset in every sequence
        return std::max<int64_t>(0, shifted - shifted % length - 7 * b);
      };
      SCOPED_TRACE(fmt::format("documents of {}", length));
      expect_ring_is_whole({3, 12, 3, 3, 8}, 2, dtype, first);
      expect_ring_is_whole({2, 396, 4, 2, 16}, 3, dtype, first);
      expect_ring_is_whole({1, 520, 2, 1, 13}, 4, dtype, first);
      expect_ring_is_whole({2, 130, 2, 1, 8}, 1, dtype, first);
    }
  });
}

// Windows that end within chunks, at their edges, and before whole blocks; with capped scores.
TEST(AttentionBlock, RingSupportsSlidingWindows) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: windows and caps are CPU only";
  for_each_isa_and_dtype([](DType dtype) {
    // Not 1: gradients of queries and keys would be 0 except for rounding errors.
    for (const int64_t window : {2, 3, 6, 65, 130, 1000}) {
      const Starts first = [window](int64_t, int64_t t) {
        return std::max<int64_t>(0, t - window + 1);
      };
      for (const float cap : {0.0F, 1.5F}) {
        SCOPED_TRACE(fmt::format("window {} cap {}", window, cap));
        expect_ring_is_whole({3, 12, 3, 3, 8}, 2, dtype, first, cap);
        expect_ring_is_whole({1, 396, 4, 2, 16}, 3, dtype, first, cap);
        expect_ring_is_whole({1, 260, 2, 1, 13}, 2, dtype, first, cap);
      }
    }
  });
}

// With many tasks dK/dV and dQ share tasks, with few they are separate.
TEST(AttentionBlock, BitsDoNotDependOnThreads) {
  const Shape s = {2, 260, 4, 1, 16};
  const auto results = [&](int threads) {
    const auto stream = make_test_stream(threads);
    const TestMatrix qkv = random_matrix(s.n(), s.qkv_cols(), DType::f32, 3);
    const TestMatrix d_out = random_matrix(s.n(), s.a * s.d, DType::f32, 4);
    TestMatrix lse = random_vector(s.b * s.a * s.t, DType::f32, 5);
    TestMatrix delta = random_vector(s.b * s.a * s.t, DType::f32, 6);
    TestMatrix total = random_matrix(s.n(), s.a * s.d, DType::f32, 7);
    TestMatrix d_q = total, d_kv = random_matrix(s.n(), 2 * s.d, DType::f32, 8);
    const auto columns = [&](const TestMatrix& all, int64_t first, int64_t heads) {
      return all.view().slice_cols(first * s.d, heads * s.d);
    };
    stream->ops().attention_block_backward(*stream, {.batch = s.b,
                                                     .rows = s.t,
                                                     .heads = s.a,
                                                     .kv_heads = s.k,
                                                     .head_dim = s.d,
                                                     .blocks = 3,
                                                     .query_block = 1,
                                                     .key_block = 2,
                                                     .q = columns(qkv, 0, s.a),
                                                     .keys = columns(qkv, s.a, 1),
                                                     .values = columns(qkv, s.a + 1, 1),
                                                     .out = Matrix{},
                                                     .d_out = d_out,
                                                     .lse = lse,
                                                     .delta = delta,
                                                     .add_queries = true,
                                                     .add_keys = true,
                                                     .d_q = d_q,
                                                     .d_keys = columns(d_kv, 0, 1),
                                                     .d_values = columns(d_kv, 1, 1)});
    stream->ops().attention_block_forward(*stream, {.batch = s.b,
                                                    .rows = s.t,
                                                    .heads = s.a,
                                                    .kv_heads = s.k,
                                                    .head_dim = s.d,
                                                    .blocks = 3,
                                                    .query_block = 1,
                                                    .key_block = 2,
                                                    .q = columns(qkv, 0, s.a),
                                                    .keys = columns(qkv, s.a, 1),
                                                    .values = columns(qkv, s.a + 1, 1),
                                                    .first = false,
                                                    .total = total,
                                                    .lse = lse});
    std::vector<double> all = total.values();
    for (const TestMatrix* matrix : {&lse, &d_q, &d_kv}) {
      const std::vector<double> values = matrix->values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  EXPECT_EQ(results(1), results(5));
}

TEST(AttentionBlock, RecordsHalfOfThePairs) {
  Ring ring({1, 24, 2, 1, 8}, 3, DType::bf16);
  std::vector<TestMatrix> d_kv(3, zero_matrix(8, 16));
  Recorder recorder;
  test_stream().set_recorder(&recorder);
  ring.run(1, d_kv);
  test_stream().set_recorder(nullptr);
  ASSERT_EQ(recorder.records().size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    const OpRecord& op = recorder.records()[i];
    EXPECT_EQ(op.dims, (std::array<int64_t, 6>{1, 8, 2, 1, 8, i % 3 == 0 ? 1 : 0}));
    EXPECT_EQ(op.flops, (i < 3 ? 4 : 10) * 16 * 32.0);
  }
}

TEST(AttentionBlockDeathTest, InvalidBlocksAbort) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const TestMatrix x = random_matrix(3, 8);
  TestMatrix total(3, 8), lse(1, 3);
  AttentionBlockForwardArgs args;
  args.batch = 1;
  args.rows = 3;
  args.heads = args.kv_heads = 1;
  args.head_dim = 8;
  args.blocks = 2;
  args.key_block = 1;
  args.q = args.keys = args.values = x;
  args.total = total;
  args.lse = lse;
  EXPECT_DEATH(test_stream().ops().attention_block_forward(test_stream(), args), "two chunks");
  args.rows = args.batch = 1;
  args.q = args.keys = args.values = x.view().slice_rows(0, 1);
  args.total = total.view().slice_rows(0, 1);
  args.lse = vector(lse.vec().data, DType::f32, 1);
  args.key_block = 2;
  EXPECT_DEATH(test_stream().ops().attention_block_forward(test_stream(), args),
               "block 0 of queries, 2 of keys, of 2");
  args.key_block = 0;
  if (!on_cpu()) return;  // the host does not check values
  const TestMatrix starts = in_memory({1});
  args.starts = view(starts);
  EXPECT_DEATH(test_stream().ops().attention_block_forward(test_stream(), args), "starts at 1");
}

}  // namespace
}  // namespace tutti::engine::testing
