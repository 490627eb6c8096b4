#include "tutti/data/loader/packing.h"

#include <gtest/gtest.h>

#include <ctime>
#include <set>
#include <tuple>

#include "tutti/base/rng.h"

namespace tutti::data {
namespace {

PackedWindows pack(const std::vector<int64_t>& lengths, int64_t sequence) {
  return PackedWindows(
      static_cast<int64_t>(lengths.size()),
      [&](int64_t d) { return lengths[static_cast<size_t>(d)]; }, sequence);
}

std::vector<int64_t> random_lengths(size_t count, int64_t least, int64_t most, uint64_t seed) {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < count; ++i) {
    lengths.push_back(least + static_cast<int64_t>(random_u64(seed, i) %
                                                   static_cast<uint64_t>(most - least + 1)));
  }
  return lengths;
}

TEST(Packing, EveryRowIsInOneWindowAndNoWindowOverflows) {
  for (const int64_t sequence : {1, 2, 7, 64, 100, 4097}) {
    for (const int64_t most : {1, 3, 50, 300}) {
      const auto lengths = random_lengths(500, 0, most, static_cast<uint64_t>(sequence + most));
      const PackedWindows packed = pack(lengths, sequence);
      std::set<std::pair<int64_t, int64_t>> seen;
      int64_t useful = 0, squares = 0;
      for (int64_t w = 0; w < packed.windows(); ++w) {
        int64_t in_window = 0;
        ASSERT_GT(packed.pieces(w), 0);
        for (int64_t i = 0; i < packed.pieces(w); ++i) {
          const Piece piece = packed.piece(w, i);
          const int64_t all = lengths[static_cast<size_t>(piece.document)] - 1;
          const int64_t rows = std::min(sequence, all - piece.part * sequence);
          ASSERT_GT(rows, 0);
          EXPECT_TRUE(seen.emplace(piece.document, piece.part).second);
          in_window += rows;
          squares += rows * rows;
        }
        EXPECT_LE(in_window, sequence);
        useful += in_window;
      }
      int64_t expected = 0, without = 0, split = 0;
      for (const int64_t length : lengths) {
        expected += std::max<int64_t>(0, length - 1);
        without += length < 2 ? 1 : 0;
        split += length - 1 > sequence ? 1 : 0;
      }
      EXPECT_EQ(useful, expected);
      EXPECT_EQ(packed.useful_rows(), expected);
      EXPECT_EQ(packed.squared_rows(), squares);
      EXPECT_EQ(packed.documents_without_rows(), without);
      EXPECT_EQ(packed.split_documents(), split);
    }
  }
}

TEST(Packing, TakesTheTightestWindow) {
  // Rows 7, 6, 4, 3: the 3 joins the 7, the 4 joins the 6.
  const PackedWindows packed = pack({5, 8, 4, 7}, 10);
  ASSERT_EQ(packed.windows(), 2);
  EXPECT_EQ(packed.piece(0, 0).document, 1);
  EXPECT_EQ(packed.piece(0, 1).document, 2);
  EXPECT_EQ(packed.piece(1, 0).document, 0);
  EXPECT_EQ(packed.piece(1, 1).document, 3);
  EXPECT_EQ(packed.useful_share(), 1);
}

TEST(Packing, OddDocuments) {
  const PackedWindows none = pack({0, 1, 1, 0}, 8);
  EXPECT_EQ(none.windows(), 0);
  EXPECT_EQ(none.useful_share(), 1);
  EXPECT_EQ(pack({}, 8).windows(), 0);
  const PackedWindows longer = pack({1 + 8 + 8 + 3}, 8);
  ASSERT_EQ(longer.windows(), 3);
  EXPECT_EQ(longer.split_documents(), 1);
  EXPECT_EQ(longer.squared_rows(), 64 + 64 + 9);
}

TEST(Packing, ShortDocumentsLeaveLittlePadding) {
  // Lengths of chat turns and short web pages against two usual sequences.
  EXPECT_GE(pack(random_lengths(20000, 2, 300, 1), 1024).useful_share(), 0.98);
  EXPECT_GE(pack(random_lengths(20000, 2, 700, 2), 2048).useful_share(), 0.98);
  EXPECT_GE(pack(random_lengths(3000, 20, 120, 3), 256).useful_share(), 0.98);
}

TEST(Packing, AMillionDocumentsTakeLessThanTwoSecondsOfOneCore) {
  const auto lengths = random_lengths(1000000, 2, 3000, 4);
  const std::clock_t start = std::clock();
  const PackedWindows packed = pack(lengths, 4096);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  RecordProperty("milliseconds", static_cast<int>(1e3 * seconds));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  EXPECT_LT(seconds, 40);
#else
  EXPECT_LT(seconds, 2);
#endif
  EXPECT_GE(packed.useful_share(), 0.98);
}

TEST(Packing, BlocksBeyondTheFirst) {
  const PackedWindows packed = PackedWindows(
      kPackingBlock + 100, [](int64_t) { return int64_t{5}; }, 8);
  EXPECT_EQ(packed.windows(), (kPackingBlock + 100) / 2);
  EXPECT_EQ(packed.piece(packed.windows() - 1, 1).document, kPackingBlock + 99);
}

}  // namespace
}  // namespace tutti::data
