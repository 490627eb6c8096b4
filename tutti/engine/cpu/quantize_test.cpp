#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tutti/engine/testing/narrow_check.h"

namespace tutti::engine {
namespace {

using testing::kNarrowKinds;
using testing::quantized;
using testing::random_matrix;
using testing::test_stream;
using testing::TestMatrix;
using testing::TestNarrow;
using tutti::testing::nearest_code;

float magnitude(const TestMatrix& x, bool transpose, int64_t row, int64_t first, int64_t count) {
  double most = 0;
  for (int64_t i = first; i < first + count; ++i) {
    most = std::max(most, std::abs(transpose ? x.at(i, row) : x.at(row, i)));
  }
  return static_cast<float>(most);
}

// Codes and scales from the definitions; the factors are f32, as the formats define.
void expect_codes(const TestMatrix& x, bool transpose, const TestNarrow& out) {
  const NarrowKind kind = out.view.kind;
  float amax = 0;
  for (int64_t r = 0; r < x.rows(); ++r) amax = std::max(amax, magnitude(x, false, r, 0, x.cols()));
  const float tensor = tensor_scale(kind, amax);
  EXPECT_EQ(out.header().inverse_scale, 1 / tensor);
  const int block = narrow_format(kind).block_elements;
  for (int64_t r = 0; r < out.view.rows; ++r) {
    for (int64_t c = 0; c < out.view.columns; ++c) {
      float factor = tensor;
      if (block > 0) {
        const int64_t first = c / block * block;
        const float most =
            magnitude(x, transpose, r, first, std::min<int64_t>(block, out.view.columns - first));
        const uint8_t scale = out.scale(r, c / block);
        ASSERT_EQ(scale, kind == NarrowKind::mxfp8 ? mxfp8_scale(most) : nvfp4_scale(most, tensor));
        factor = kind == NarrowKind::mxfp8 ? mxfp8_factor(scale) : nvfp4_factor(scale, tensor);
      }
      const auto value = static_cast<float>(transpose ? x.at(c, r) : x.at(r, c)) * factor;
      const NarrowFloat f = kind == NarrowKind::nvfp4  ? kE2m1
                            : kind == NarrowKind::e5m2 ? kE5m2
                                                       : kE4m3;
      ASSERT_EQ(out.code(r, c), nearest_code(f, static_cast<double>(value)))
          << narrow_format(kind).name << " (" << r << ", " << c << ") of " << value;
    }
    const NarrowLayout layout = out.view.layout();
    const uint8_t* codes = out.bytes() + layout.codes_offset + r * layout.row_bytes;
    const int64_t used = (out.view.columns * narrow_format(kind).element_bits + 7) / 8;
    for (int64_t i = used; i < layout.row_bytes; ++i) ASSERT_EQ(codes[i], 0) << "padding";
  }
  const uint8_t* end = out.bytes() + out.view.layout().bytes;
  EXPECT_TRUE(std::all_of(end, end + 64, [](uint8_t byte) { return byte == 0xff; }));
}

TEST(Quantize, CodesAndScalesFollowTheDefinitions) {
  testing::for_each_isa_and_dtype([](DType dtype) {
    const std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {17, 5}, {33, 70}};
    for (const auto& [rows, columns] : shapes) {
      TestMatrix x = random_matrix(rows, columns, dtype, 3, 0.02, 3);
      x.set(rows - 1, 0, 1.7);  // an outlier, for small scales elsewhere
      x.set(0, columns - 1, 0);
      for (const NarrowKind kind : kNarrowKinds) {
        for (const bool transpose : {false, true}) {
          expect_codes(x, transpose, quantized(kind, x, transpose));
        }
      }
    }
  });
}

TEST(Quantize, ZerosStayZeroAndEmptyIsValid) {
  const TestMatrix zero = testing::zero_matrix(3, 40);
  for (const NarrowKind kind : kNarrowKinds) {
    const TestNarrow out = quantized(kind, zero);
    for (int64_t c = 0; c < 40; ++c) EXPECT_EQ(out.value(1, c), 0);
    quantized(kind, testing::zero_matrix(0, 8));
    quantized(kind, testing::zero_matrix(8, 0), true);
  }
}

TEST(Quantize, NonFiniteValuesStayNonFinite) {
  for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    TestMatrix x = random_matrix(4, 48, DType::f32, 2);
    x.set(2, 33, bad);
    for (const NarrowKind kind : kNarrowKinds) {
      EXPECT_FALSE(std::isfinite(quantized(kind, x).value(2, 33))) << narrow_format(kind).name;
      EXPECT_FALSE(std::isfinite(quantized(kind, x, true).value(33, 2)));
    }
    // Only its block is affected.
    EXPECT_TRUE(std::isfinite(quantized(NarrowKind::mxfp8, x).value(2, 31)));
    EXPECT_FALSE(std::isfinite(quantized(NarrowKind::nvfp4, x).value(2, 47)));
  }
}

TEST(Quantize, StochasticRoundingIsUnbiasedAndDependsOnTheElement) {
  const int64_t rows = 64, columns = 96;
  const TestMatrix x = random_matrix(rows, columns, DType::f32, 9);
  for (const NarrowKind kind : kNarrowKinds) {
    TestNarrow whole(kind, rows, columns), transposed(kind, columns, rows);
    const QuantizeArgs args = {
        .x = x, .out = whole.view, .stochastic = true, .key = 77, .first_row = 5};
    test_stream().ops().quantize(test_stream(), args);
    QuantizeArgs turned = args;
    turned.transpose = true;
    turned.out = transposed.view;
    test_stream().ops().quantize(test_stream(), turned);
    const bool blocks = narrow_format(kind).block_elements > 0;
    double drift = 0, size = 0;
    int moved = 0;
    const TestNarrow nearest = quantized(kind, x);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        if (!blocks) {
          EXPECT_EQ(whole.code(r, c), transposed.code(c, r));
        }
        drift += whole.value(r, c) - x.at(r, c);
        size += std::abs(whole.value(r, c) - x.at(r, c));
        moved += whole.code(r, c) != nearest.code(r, c) ? 1 : 0;
      }
    }
    EXPECT_LT(std::abs(drift), 0.06 * size)
        << "of " << rows * columns << " errors that should cancel";
    EXPECT_GT(moved, rows * columns / 8);
    EXPECT_LT(moved, rows * columns / 2);
    // Row numbers: only the second half of the rows.
    TestMatrix numbers(1, rows / 2, DType::i32);
    for (int64_t i = 0; i < rows / 2; ++i) numbers.set(0, i, static_cast<double>(rows / 2 + i));
    TestNarrow half(kind, rows / 2, columns);
    QuantizeArgs part = args;
    part.x = args.x.slice_rows(rows / 2, rows / 2);
    part.out = half.view;
    part.rows = numbers;
    test_stream().ops().quantize(test_stream(), part);
    if (kind == NarrowKind::mxfp8) {  // other formats have a per-tensor scale, which differs
      EXPECT_EQ(half.code(3, 7), whole.code(rows / 2 + 3, 7));
      EXPECT_EQ(half.code(9, 90), whole.code(rows / 2 + 9, 90));
    }
  }
}

// Round to nearest and stochastic, for sizes from less than a tile of a device to several tiles.
TEST(Quantize, FusedTransposeEqualsTwoCalls) {
  testing::for_each_dtype([](DType dtype) {
    const std::pair<int64_t, int64_t> shapes[] = {{1, 1},     {17, 5},   {33, 70}, {128, 128},
                                                  {130, 129}, {257, 48}, {0, 8},   {8, 0}};
    for (const auto& [rows, columns] : shapes) {
      for (const bool finite : {true, false}) {
        if (!finite && rows * columns < 100) continue;
        TestMatrix x = random_matrix(rows, columns, dtype, 3, 0.02, 3);
        if (!finite) x.set(rows - 1, columns / 2, HUGE_VAL);
        for (const NarrowKind kind : kNarrowKinds) {
          for (const bool stochastic : {false, true}) {
            SCOPED_TRACE(fmt::format("{} [{}, {}] {} {}", narrow_format(kind).name, rows, columns,
                                     finite, stochastic));
            const QuantizeArgs args = {.x = x, .stochastic = stochastic, .key = 77, .first_row = 5};
            TestNarrow plain(kind, rows, columns), transposed(kind, columns, rows);
            QuantizeArgs one = args;
            one.out = plain.view;
            test_stream().ops().quantize(test_stream(), one);
            one.transpose = true;
            one.out = transposed.view;
            test_stream().ops().quantize(test_stream(), one);
            TestNarrow out(kind, rows, columns), out_transposed(kind, columns, rows);
            QuantizeArgs both = args;
            both.out = out.view;
            both.transposed = out_transposed.view;
            test_stream().ops().quantize(test_stream(), both);
            const auto same = [](const TestNarrow& a, const TestNarrow& b) {
              const auto bytes = static_cast<size_t>(a.view.layout().bytes + 64);
              return std::equal(a.bytes(), a.bytes() + bytes, b.bytes());
            };
            EXPECT_TRUE(same(out, plain));
            EXPECT_TRUE(same(out_transposed, transposed));
          }
        }
      }
    }
  });
}

TEST(Quantize, RecordsTheOperation) {
  Recorder recorder;
  test_stream().set_recorder(&recorder);
  quantized(NarrowKind::nvfp4, random_matrix(5, 33, DType::bf16), true);
  test_stream().set_recorder(nullptr);
  ASSERT_EQ(recorder.records().size(), 1U);
  const OpRecord& record = recorder.records()[0];
  EXPECT_STREQ(record.op, "quantize");
  EXPECT_EQ(record.dims, (std::array<int64_t, 6>{5, 33, 1}));
  EXPECT_EQ(record.bytes, 5 * 33 * 2 + 33 * (3 + 1) + 4);

  recorder.clear();
  const TestMatrix x = random_matrix(5, 33, DType::bf16);
  const TestNarrow out(NarrowKind::e5m2, 5, 33), turned(NarrowKind::e5m2, 33, 5);
  test_stream().set_recorder(&recorder);
  test_stream().ops().quantize(test_stream(), {.x = x, .out = out.view, .transposed = turned.view});
  test_stream().set_recorder(nullptr);
  EXPECT_EQ(recorder.records().at(0).dims, (std::array<int64_t, 6>{5, 33, 2}));
  EXPECT_EQ(recorder.records().at(0).bytes, 5 * 33 * 4 + 8);
}

}  // namespace
}  // namespace tutti::engine
