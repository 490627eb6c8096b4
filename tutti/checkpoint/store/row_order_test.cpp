#include "tutti/checkpoint/store/row_order.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace tutti::checkpoint {
namespace {

template <typename T>
std::vector<T> gather(const std::vector<T>& from, RowSource source, int64_t piece) {
  source.data = reinterpret_cast<const char*>(from.data());
  source.element_bytes = sizeof(T);
  std::vector<T> out(from.size());
  for (int64_t row = 0; row < source.rows; row += piece) {
    gather_rows(source, row, std::min(source.rows, row + piece),
                reinterpret_cast<char*>(out.data() + row * source.columns));
  }
  return out;
}

template <typename T>
std::vector<T> counted(int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), T{0});
  return values;
}

TEST(RowOrder, InterleavedPairsBecomeHalves) {
  // One head of 6: pairs (0,1) (2,3) (4,5) become (0,3) (1,4) (2,5).
  const RowSource source = {nullptr, 12, 1, 4, RowOrder::interleaved_to_half, 6};
  EXPECT_EQ(gather(counted<uint32_t>(12), source, 5),
            (std::vector<uint32_t>{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
}

// The formula with which transformers converts Meta's weights:
// w.view(heads, D / 2, 2, columns).transpose(1, 2).reshape(heads * D, columns).
TEST(RowOrder, IsTheTransposeOfHalvesAndPairs) {
  constexpr int64_t kHeads = 3;
  constexpr int64_t kDim = 10;
  constexpr int64_t kColumns = 7;
  const auto from = counted<uint16_t>(kHeads * kDim * kColumns);
  std::vector<uint16_t> expected;
  for (int64_t head = 0; head < kHeads; ++head) {
    for (int64_t second = 0; second < 2; ++second) {
      for (int64_t pair = 0; pair < kDim / 2; ++pair) {
        for (int64_t column = 0; column < kColumns; ++column) {
          expected.push_back(from[static_cast<size_t>(
              ((head * kDim / 2 + pair) * 2 + second) * kColumns + column)]);
        }
      }
    }
  }
  RowSource source = {nullptr, kHeads * kDim, kColumns, 2, RowOrder::interleaved_to_half, kDim};
  const auto half = gather(from, source, 4);
  EXPECT_EQ(half, expected);
  source.order = RowOrder::half_to_interleaved;
  EXPECT_EQ(gather(half, source, 7), from);
}

// One head of 7 whose last 4 rows rotate: they come first here, as halves, and go back.
TEST(RowOrder, RotatedRowsComeFirst) {
  RowSource source = {nullptr, 14, 1, 4, RowOrder::interleaved_to_half, 7};
  source.rotated = 4;
  source.rotated_last = true;
  const std::vector<uint32_t> ours = gather(counted<uint32_t>(14), source, 5);
  EXPECT_EQ(ours, (std::vector<uint32_t>{3, 5, 4, 6, 0, 1, 2, 10, 12, 11, 13, 7, 8, 9}));
  source.order = RowOrder::half_to_interleaved;
  EXPECT_EQ(gather(ours, source, 3), counted<uint32_t>(14));
}

template <typename T>
void check_transpose(int64_t rows, int64_t columns, int64_t piece) {
  const auto from = counted<T>(rows * columns);  // [columns, rows]
  const auto to = gather(from, {nullptr, rows, columns, 0, RowOrder::transposed, 0}, piece);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      ASSERT_EQ(to[static_cast<size_t>(row * columns + column)],
                from[static_cast<size_t>(column * rows + row)]);
    }
  }
}

TEST(RowOrder, TransposesAnyShapeInAnyPieces) {
  for (const int64_t rows : {1, 2, 31, 33, 70}) {
    for (const int64_t columns : {1, 5, 32, 65}) {
      for (const int64_t piece : {1, 7, 100}) {
        check_transpose<uint16_t>(rows, columns, piece);
        check_transpose<uint32_t>(rows, columns, piece);
      }
    }
  }
}

// Two matrices, each turned, whose rows are pairs in one file and halves in the other: there and
// back again.
TEST(RowOrder, TurnsEachOfSeveralMatrices) {
  constexpr int64_t kMatrices = 2, kIn = 3, kOut = 4;
  std::vector<float> theirs(kMatrices * kIn * kOut);  // [E, in, out]
  for (size_t i = 0; i < theirs.size(); ++i) theirs[i] = static_cast<float>(i);
  RowSource rows;
  rows.data = reinterpret_cast<const char*>(theirs.data());
  rows.rows = kMatrices * kOut;
  rows.columns = kIn;
  rows.order = RowOrder::transposed;
  rows.matrices = kMatrices;
  rows.pairs = RowOrder::interleaved_to_half;
  std::vector<float> ours(theirs.size());
  gather_rows(rows, 0, 3, reinterpret_cast<char*>(ours.data()));  // in two pieces
  gather_rows(rows, 3, rows.rows, reinterpret_cast<char*>(ours.data() + 3 * kIn));
  for (int64_t e = 0; e < kMatrices; ++e) {
    for (int64_t o = 0; o < kOut; ++o) {
      const int64_t output = o < 2 ? 2 * o : 2 * (o - 2) + 1;  // gate 0, up 0, gate 1, up 1
      for (int64_t i = 0; i < kIn; ++i) {
        EXPECT_EQ(ours[static_cast<size_t>((e * kOut + o) * kIn + i)],
                  theirs[static_cast<size_t>((e * kIn + i) * kOut + output)]);
      }
    }
  }
  RowSource way_back = rows;
  way_back.data = reinterpret_cast<const char*>(ours.data());
  way_back.rows = kMatrices * kIn;
  way_back.columns = kOut;
  way_back.pairs = RowOrder::half_to_interleaved;
  std::vector<float> again(theirs.size());
  gather_rows(way_back, 0, way_back.rows, reinterpret_cast<char*>(again.data()));
  EXPECT_EQ(again, theirs);
}

}  // namespace
}  // namespace tutti::checkpoint
