#include <gtest/gtest.h>

#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

using Values = std::vector<double>;

struct Assigned {
  TestMatrix counts, offsets, positions;
};

Assigned assign(Stream& stream, const TestMatrix& experts, int64_t sequence, int64_t count,
                int64_t capacity, int64_t rows) {
  Assigned out = {poisoned_matrix(experts.rows() / sequence, count, DType::i32),
                  poisoned_vector(count + 1, DType::i32),
                  poisoned_matrix(experts.rows(), experts.cols(), DType::i32, 1)};
  stream.ops().assign_rows(stream, {.experts = experts,
                                    .sequence = sequence,
                                    .capacity = capacity,
                                    .rows = rows,
                                    .counts = out.counts,
                                    .offsets = out.offsets,
                                    .positions = out.positions});
  return out;
}

// k different experts per row, unevenly distributed.
TestMatrix random_choices(int64_t rows, int64_t count, int64_t k) {
  TestMatrix out(rows, k, DType::i32);
  for (int64_t n = 0; n < rows; ++n) {
    const auto first = static_cast<int64_t>(random_u64(3, static_cast<uint64_t>(n)) %
                                            static_cast<uint64_t>((count + 1) / 2));
    for (int64_t i = 0; i < k; ++i) out.set(n, i, static_cast<double>((first + i) % count));
  }
  return out;
}

TEST(AssignRows, SortsByExpertThenToken) {
  struct Case {
    int64_t sequences, sequence, experts, k, capacity;
  };
  for (const Case& c :
       {Case{1, 1, 1, 1, 0}, Case{1, 5, 4, 2, 0}, Case{3, 23, 8, 2, 0}, Case{3, 23, 8, 2, 6},
        Case{2, 67, 17, 5, 1}, Case{4, 3, 3, 3, 2}, Case{300, 3, 17, 2, 1}}) {
    const int64_t rows = c.sequences * c.sequence;
    SCOPED_TRACE(
        fmt::format("{} rows, {} experts, k {}, capacity {}", rows, c.experts, c.k, c.capacity));
    const TestMatrix experts = random_choices(rows, c.experts, c.k);
    // Reference: expert by expert over the tokens.
    Values counts(static_cast<size_t>(c.sequences * c.experts)), offsets = {0};
    Values positions(static_cast<size_t>(rows * c.k), -1);
    double next = 0;
    for (int64_t e = 0; e < c.experts; ++e) {
      for (int64_t n = 0; n < rows; ++n) {
        for (int64_t i = 0; i < c.k; ++i) {
          if (experts.at(n, i) != static_cast<double>(e)) continue;
          double& seen = counts[static_cast<size_t>(n / c.sequence * c.experts + e)];
          if (c.capacity == 0 || seen < static_cast<double>(c.capacity)) {
            positions[static_cast<size_t>(n * c.k + i)] = next++;
          }
          ++seen;
        }
      }
      offsets.push_back(next);
    }
    const auto bound = static_cast<int64_t>(next);
    const Assigned out = assign(test_stream(), experts, c.sequence, c.experts, c.capacity, bound);
    EXPECT_EQ(out.counts.values(), counts);
    EXPECT_EQ(out.offsets.values(), offsets);
    EXPECT_EQ(out.positions.values(), positions);
    EXPECT_TRUE(out.positions.outside_untouched());
    const auto alone = make_test_stream(1);
    EXPECT_TRUE(assign(*alone, experts, c.sequence, c.experts, c.capacity, bound)
                    .positions.same_bytes(out.positions));
  }
}

// Sequences that are sharded across ranks drop the same choices as on one rank.
TEST(AssignRows, PartsOfSequencesCountEarlierParts) {
  const int64_t sequences = 3, sequence = 24, experts = 5, k = 2, capacity = 7;
  const TestMatrix whole = random_choices(sequences * sequence, experts, k);
  const Assigned together = assign(test_stream(), whole, sequence, experts, capacity, 1000);
  for (const int64_t blocks : {1, 2, 3}) {
    const int64_t part = sequence / (2 * blocks);
    const auto row_of = [&](int64_t block, int64_t r) {
      const int64_t half = r / part % 2;
      return r / part / 2 * sequence + (half == 0 ? block : 2 * blocks - 1 - block) * part +
             r % part;
    };
    std::vector<TestMatrix> choices;
    TestMatrix counts(blocks * 2 * sequences, experts, DType::i32);
    for (int64_t block = 0; block < blocks; ++block) {
      TestMatrix mine(sequences * 2 * part, k, DType::i32);
      for (int64_t r = 0; r < mine.rows(); ++r) {
        for (int64_t i = 0; i < k; ++i) mine.set(r, i, whole.at(row_of(block, r), i));
      }
      const Assigned free = assign(test_stream(), mine, part, experts, 0, 1000);
      for (int64_t r = 0; r < 2 * sequences; ++r) {
        for (int64_t e = 0; e < experts; ++e) {
          counts.set(block * 2 * sequences + r, e, free.counts.at(r, e));
        }
      }
      choices.push_back(mine);
    }
    for (int64_t block = 0; block < blocks; ++block) {
      SCOPED_TRACE(fmt::format("block {} of {}", block, blocks));
      TestMatrix totals = poisoned_matrix(sequences, experts, DType::i32);
      TestMatrix before = poisoned_matrix(2 * sequences, experts, DType::i32);
      test_stream().ops().merge_counts(
          test_stream(),
          {.counts = counts, .blocks = blocks, .block = block, .totals = totals, .before = before});
      EXPECT_EQ(totals.values(), together.counts.values());
      const TestMatrix& mine = choices[static_cast<size_t>(block)];
      TestMatrix own_counts(2 * sequences, experts, DType::i32),
          offsets(1, experts + 1, DType::i32);
      TestMatrix positions(mine.rows(), k, DType::i32);
      test_stream().ops().assign_rows(test_stream(), {.experts = mine,
                                                      .sequence = part,
                                                      .capacity = capacity,
                                                      .rows = 1000,
                                                      .before = before,
                                                      .counts = own_counts,
                                                      .offsets = offsets,
                                                      .positions = positions});
      for (int64_t r = 0; r < mine.rows(); ++r) {
        for (int64_t i = 0; i < k; ++i) {
          EXPECT_EQ(positions.at(r, i) >= 0, together.positions.at(row_of(block, r), i) >= 0);
        }
      }
    }
  }
}

// Each piece sorts the copies of its experts, with positions from its first row on.
TEST(AssignRows, SortsWithinPieces) {
  const int64_t sequences = 3, sequence = 23, experts = 6, k = 2;
  const TestMatrix choices = random_choices(sequences * sequence, experts, k);
  for (const int64_t capacity : {0, 6}) {
    const Assigned whole = assign(test_stream(), choices, sequence, experts, capacity, 1000);
    for (const int64_t pieces : {1, 2, 3, 6}) {
      SCOPED_TRACE(fmt::format("{} pieces, capacity {}", pieces, capacity));
      const int64_t each = experts / pieces, piece_rows = 150;
      Assigned out = {poisoned_matrix(sequences, experts, DType::i32),
                      poisoned_vector(experts + pieces, DType::i32),
                      poisoned_matrix(choices.rows(), k, DType::i32, 1)};
      test_stream().ops().assign_rows(test_stream(), {.experts = choices,
                                                      .sequence = sequence,
                                                      .capacity = capacity,
                                                      .rows = pieces * piece_rows,
                                                      .piece_rows = piece_rows,
                                                      .counts = out.counts,
                                                      .offsets = out.offsets,
                                                      .positions = out.positions});
      EXPECT_EQ(out.counts.values(), whole.counts.values());
      for (int64_t piece = 0; piece < pieces; ++piece) {
        const double first = whole.offsets.at(0, piece * each);
        for (int64_t e = 0; e <= each; ++e) {
          EXPECT_EQ(out.offsets.at(0, piece * (each + 1) + e),
                    whole.offsets.at(0, piece * each + e) - first);
        }
      }
      for (int64_t n = 0; n < choices.rows(); ++n) {
        for (int64_t i = 0; i < k; ++i) {
          const auto piece = static_cast<int64_t>(choices.at(n, i)) / each;
          const double position = whole.positions.at(n, i);
          const double moved = static_cast<double>(piece * piece_rows) -
                               whole.offsets.at(0, piece * each) + position;
          EXPECT_EQ(out.positions.at(n, i), position < 0 ? -1 : moved);
        }
      }
    }
  }
}

TEST(AssignRowsDeathTest, TooManyCopiesAbort) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: the device checks values and faults";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const TestMatrix experts = random_choices(6, 4, 2);
  EXPECT_DEATH((void)assign(test_stream(), experts, 6, 4, 0, 11), "12 copies exceed .* 11 rows");
}

}  // namespace
}  // namespace tutti::engine::testing
