// Attention against a plain f64 reference that stores the whole T x T matrix, and against
// identities that hold exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "tutti/engine/testing/attention_check.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

using testing::close;
using testing::expect_close;
using testing::for_each_dtype;
using testing::for_each_isa;
using testing::for_each_isa_and_dtype;
using testing::kBackwardRoundings;
using testing::kForwardRoundings;
using testing::make_test_stream;
using testing::name;
using testing::on_cpu;
using testing::Reference;
using testing::Shape;
using testing::test_stream;
using testing::TestMatrix;

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {3, 7, 3, 3, 8},   {1, 1, 1, 1, 1},    {2, 1, 3, 1, 5},     {1, 65, 2, 2, 16},
      {1, 130, 3, 1, 8}, {2, 9, 2, 1, 1},    {1, 70, 4, 2, 24},   {1, 67, 2, 1, 80},
      {2, 64, 2, 2, 64}, {1, 200, 6, 2, 64}, {1, 129, 1, 1, 128}, {1, 66, 5, 1, 13},
      {1, 300, 6, 1, 4}, {1, 8, 2, 2, 100},
  };
  return all;
}

using Case = testing::AttentionCase;

// Windows shorter and longer than tiles and sequences.
TEST(Attention, SlidingWindowMatchesReference) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: windows are CPU only";
  for_each_dtype([](DType dtype) {
    for (const Shape& shape : shapes()) {
      for (const int64_t window : {1, 2, 63, 64, 65, 150}) {
        SCOPED_TRACE(fmt::format("{} window {}", name(shape), window));
        Case made(shape, dtype);
        made.use_window(window);
        const Reference want = made.expected();
        for_each_isa([&] {
          Case c(shape, dtype);
          c.use_window(window);
          c.forward();
          c.backward();
          expect_close(c.out, want.out, kForwardRoundings);
          EXPECT_TRUE(close(c.lse, want.lse, 1e-5));
          expect_close(c.d_qkv, want.d_qkv, kBackwardRoundings);
        });
      }
    }
  });
}

TEST(Attention, SoftcapMatchesReference) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: capped scores are CPU only";
  constexpr double kSlack = 4;  // scores are twice as large, and 1 - tanh^2 cancels near the cap
  for_each_dtype([](DType dtype) {
    for (const Shape& shape : shapes()) {
      for (const float cap : {0.3F, 2.0F, 50.0F}) {
        SCOPED_TRACE(fmt::format("{} cap {}", name(shape), cap));
        Case made(shape, dtype, 2);
        made.softcap = cap;
        const Reference want = made.expected();
        for_each_isa([&] {
          Case c(shape, dtype, 2);
          c.softcap = cap;
          c.forward();
          c.backward();
          expect_close(c.out, want.out, kForwardRoundings, dtype, kSlack);
          EXPECT_TRUE(close(c.lse, want.lse, 1e-5));
          expect_close(c.d_qkv, want.d_qkv, kBackwardRoundings, dtype, kSlack);
        });
      }
    }
  });
}

TEST(Attention, MatchesReference) {
  for_each_dtype([](DType dtype) {
    for (const Shape& shape : shapes()) {
      SCOPED_TRACE(name(shape));
      const Reference want = Case(shape, dtype).expected();
      for_each_isa([&] {
        Case c(shape, dtype);
        c.forward();
        c.backward();
        expect_close(c.out, want.out, kForwardRoundings);
        EXPECT_TRUE(close(c.lse, want.lse, 1e-5));
        expect_close(c.d_qkv, want.d_qkv, kBackwardRoundings);
        EXPECT_TRUE(c.qkv.outside_untouched() && c.delta.outside_untouched());
      });
    }
  });
}

TEST(Attention, PackedDocumentsMatchReference) {
  const std::vector<std::vector<int64_t>> packings = {
      {1}, {2, 1, 3}, {5, 64, 1, 17}, {64}, {63, 66}, {100, 7}, {1, 128, 9}, {3, 180, 40}, {1000}};
  for_each_dtype([&](DType dtype) {
    for (const Shape& shape :
         {Shape{3, 7, 3, 3, 8}, Shape{1, 1, 1, 1, 1}, Shape{2, 131, 4, 2, 24},
          Shape{1, 67, 2, 1, 80}, Shape{2, 300, 6, 2, 16}, Shape{1, 201, 5, 1, 13}}) {
      for (const auto& lengths : packings) {
        SCOPED_TRACE(fmt::format("{} documents of {}", name(shape), fmt::join(lengths, ", ")));
        Case reference_case(shape, dtype);
        reference_case.pack(lengths);
        const Reference want = reference_case.expected();
        for_each_isa([&] {
          Case c = reference_case;
          c.forward();
          c.backward();
          expect_close(c.out, want.out, kForwardRoundings);
          EXPECT_TRUE(close(c.lse, want.lse, 1e-5));
          expect_close(c.d_qkv, want.d_qkv, kBackwardRoundings);
          EXPECT_TRUE(c.qkv.outside_untouched() && c.delta.outside_untouched());
        });
      }
    }
  });
}

// The contents of other documents, however large, do not change a bit.
TEST(Attention, OtherDocumentsDoNotMatter) {
  for_each_isa_and_dtype([](DType dtype) {
    Case all({1, 300, 2, 1, 16}, dtype);
    all.pack({100, 70, 130});
    all.forward();
    all.backward();
    Case changed = all;
    for (int64_t r = 0; r < 300; ++r) {
      if (r >= 100 && r < 170) continue;
      for (int64_t c = 0; c < changed.qkv.cols(); ++c)
        changed.qkv.set(r, c, r < 100 ? -1000 : 1e10);
    }
    changed.forward();
    changed.backward();
    for (int64_t r = 100; r < 170; ++r) {
      for (int64_t c = 0; c < all.out.cols(); ++c) {
        ASSERT_EQ(all.out.at(r, c), changed.out.at(r, c)) << r;
      }
      for (int64_t c = 0; c < all.d_qkv.cols(); ++c) {
        ASSERT_EQ(all.d_qkv.at(r, c), changed.d_qkv.at(r, c)) << r;
      }
    }
  });
}

// Starts of zero equal no starts, bitwise if the same kernel handles both.
TEST(Attention, StartsOfZeroEqualNoStarts) {
  for_each_isa_and_dtype([](DType dtype) {
    if (!on_cpu() && dtype == DType::bf16) return;
    Case plain({2, 150, 4, 2, 24}, dtype);
    Case packed = plain;
    packed.starts.assign(300, 0);
    for (Case* c : {&plain, &packed}) {
      c->forward();
      c->backward();
    }
    EXPECT_TRUE(plain.out.same_bytes(packed.out));
    EXPECT_TRUE(plain.lse.same_bytes(packed.lse));
    EXPECT_TRUE(plain.d_qkv.same_bytes(packed.d_qkv));
  });
}

TEST(AttentionDeathTest, InvalidStartsAbort) {
  if (!testing::on_cpu()) GTEST_SKIP() << "skipped: the device checks values and faults";
  Case c({1, 4, 1, 1, 8}, DType::f32);
  c.starts = {0, 1, 0, 0};
  EXPECT_DEATH(c.forward(), "row 2 of a sequence starts at 0, the row before it at 1");
  c.starts = {0, 2, 2, 2};
  EXPECT_DEATH(c.backward(), "row 1 of a sequence starts at 2");
}

TEST(Attention, DeltaIsRowSumOfGradientTimesOutput) {
  for_each_isa_and_dtype([](DType dtype) {
    if (!on_cpu() && dtype == DType::bf16) return;  // fused kernels do not write delta
    Case c({2, 70, 2, 1, 24}, dtype);
    c.forward();
    c.backward();
    std::vector<double> want(static_cast<size_t>(c.s.b * c.s.a * c.s.t));
    for (int64_t row = 0; row < c.s.n(); ++row) {
      for (int64_t col = 0; col < c.s.a * c.s.d; ++col) {
        const int64_t b = row / c.s.t, t = row % c.s.t, a = col / c.s.d;
        want[static_cast<size_t>((b * c.s.a + a) * c.s.t + t)] +=
            c.d_out.at(row, col) * c.out.at(row, col);
      }
    }
    EXPECT_TRUE(close(c.delta, want, 1e-5));
  });
}

TEST(Attention, ScaleIsUsed) {
  for_each_isa_and_dtype([](DType dtype) {
    Case c({1, 66, 2, 2, 16}, dtype);
    c.scale = 0.1F;
    c.forward();
    c.backward();
    const Reference want = c.expected();
    expect_close(c.out, want.out, kForwardRoundings);
    expect_close(c.d_qkv, want.d_qkv, kBackwardRoundings);
  });
}

// Scores of several thousand: only the largest matters, nothing overflows.
TEST(Attention, LargeScoresStayFinite) {
  for_each_isa_and_dtype([](DType dtype) {
    Case c({1, 130, 2, 1, 64}, dtype, 30);
    c.forward();
    c.backward();
    const Reference want = c.expected();
    EXPECT_TRUE(close(c.lse, want.lse, 1e-5));
    // An error of 2^-23 in a score of 10^3..10^4 is a relative error of up to 10^-3 in its
    // probability.
    EXPECT_TRUE(close(c.out, want.out, dtype == DType::bf16 ? 1e-2 : 2e-3));
    for (const double x : c.d_qkv.values()) ASSERT_TRUE(std::isfinite(x));
  });
}

TEST(Attention, GradientMatchesFiniteDifferences) {
  for_each_isa([] {
    const Shape shape = {1, 6, 2, 1, 4};
    Case c(shape, DType::f32);
    c.forward();
    c.backward();
    const auto loss = [&](const TestMatrix& qkv) {
      Case moved = c;
      moved.qkv = qkv;
      moved.forward();
      double sum = 0;
      for (int64_t r = 0; r < moved.out.rows(); ++r) {
        for (int64_t col = 0; col < moved.out.cols(); ++col) {
          sum += moved.out.at(r, col) * c.d_out.at(r, col);
        }
      }
      return sum;
    };
    const double step = 0x1p-6;
    for (int64_t r = 0; r < c.qkv.rows(); ++r) {
      for (int64_t col = 0; col < c.qkv.cols(); ++col) {
        TestMatrix more = c.qkv, less = c.qkv;
        more.set(r, col, c.qkv.at(r, col) + step);
        less.set(r, col, c.qkv.at(r, col) - step);
        // The error of the difference quotient is step^2 / 6 times a third derivative.
        EXPECT_NEAR((loss(more) - loss(less)) / (more.at(r, col) - less.at(r, col)),
                    c.d_qkv.at(r, col), 2e-3)
            << "element " << r << ", " << col;
      }
    }
  });
}

TEST(Attention, LaterTokensDoNotMatter) {
  for_each_isa_and_dtype([](DType dtype) {
    Case all({1, 150, 2, 1, 16}, dtype);
    all.forward();
    Case changed = all;
    for (int64_t r = 100; r < 150; ++r) {
      for (int64_t c = 0; c < changed.qkv.cols(); ++c) changed.qkv.set(r, c, 1000);
    }
    changed.forward();
    for (int64_t r = 0; r < 100; ++r) {
      for (int64_t c = 0; c < all.out.cols(); ++c) {
        ASSERT_EQ(all.out.at(r, c), changed.out.at(r, c)) << r;
      }
    }
  });
}

TEST(Attention, NanPropagatesToTheOutput) {
  for_each_isa_and_dtype([](DType dtype) {
    Case c({1, 100, 1, 1, 16}, dtype);
    c.qkv.set(90, 16, std::nan(""));  // the key of token 90
    c.forward();
    for (int64_t r = 0; r < 100; ++r) ASSERT_EQ(std::isnan(c.out.at(r, 3)), r >= 90) << r;
  });
}

// Every row of probabilities sums to one, so equal values are returned unchanged.
TEST(Attention, EqualValuesAreReturnedUnchanged) {
  for_each_isa_and_dtype([](DType dtype) {
    Case c({1, 140, 2, 1, 24}, dtype);
    for (int64_t r = 0; r < 140; ++r) {
      for (int64_t col = 0; col < 24; ++col) c.qkv.set(r, 3 * 24 + col, 0.5);
    }
    c.forward();
    expect_close(c.out, std::vector<double>(140 * 48, 0.5), kForwardRoundings);
  });
}

// One thread processes complete key heads (five products per tile), two threads with one key head
// process key and query tiles separately (seven products): the bits are the same.
TEST(Attention, BitsDoNotDependOnThreadsOrRuns) {
  const auto one = make_test_stream(1);
  const auto three = make_test_stream(3);
  for_each_isa_and_dtype([&](DType dtype) {
    for (const Shape& shape : {Shape{1, 300, 1, 1, 64}, Shape{1, 200, 5, 1, 16},
                               Shape{2, 260, 4, 2, 24}, Shape{3, 129, 4, 4, 8}}) {
      SCOPED_TRACE(name(shape));
      for (const bool packed : {false, true}) {
        Case first(shape, dtype);
        if (packed) first.pack({70, 3, 150});
        Case again = first;
        first.forward(*one);
        first.backward(*one);
        for (Stream* stream : {one.get(), &test_stream(), three.get()}) {
          again.forward(*stream);
          again.backward(*stream);
          EXPECT_TRUE(again.out.same_bytes(first.out));
          EXPECT_TRUE(again.lse.same_bytes(first.lse));
          EXPECT_TRUE(again.d_qkv.same_bytes(first.d_qkv));
        }
      }
    }
  });
}

TEST(Attention, EmptyShapesDoNothing) {
  Case c({2, 0, 3, 3, 8}, DType::f32);
  c.forward();
  c.backward();
  EXPECT_TRUE(c.out.outside_untouched() && c.d_qkv.outside_untouched());
}

TEST(Attention, RecordsTheOperation) {
  Recorder recorder;
  const auto stream = make_test_stream(2);
  stream->set_recorder(&recorder);
  Case c({2, 10, 4, 2, 8}, DType::bf16);
  c.forward(*stream);
  c.backward(*stream);
  ASSERT_EQ(recorder.records().size(), 2U);
  const OpRecord& forward = recorder.records()[0];
  const OpRecord& backward = recorder.records()[1];
  const std::array<int64_t, kMaxOpDims> dims = {2, 10, 4, 2, 8, 0};
  EXPECT_STREQ(forward.op, "attention_forward");
  EXPECT_EQ(forward.dims, dims);
  EXPECT_EQ(forward.flops, 2.0 * 2 * 4 * 10 * 10 * 8);
  const double qkv_bytes = 20 * 8 * 8 * 2, out_bytes = 20 * 4 * 8 * 2, lse_bytes = 2 * 4 * 10 * 4;
  EXPECT_EQ(forward.bytes, qkv_bytes + out_bytes + lse_bytes);
  EXPECT_STREQ(backward.op, "attention_backward");
  EXPECT_EQ(backward.dims, dims);
  EXPECT_EQ(backward.flops, 5.0 * 2 * 4 * 10 * 10 * 8);
  EXPECT_EQ(backward.bytes, 2 * (qkv_bytes + out_bytes + lse_bytes));
}

TEST(Attention, RecordsTheWorkOfPackedDocuments) {
  Recorder recorder;
  const auto stream = make_test_stream(2);
  stream->set_recorder(&recorder);
  Case c({2, 10, 4, 2, 8}, DType::bf16);
  c.pack({3, 6, 1, 10});
  c.forward(*stream);
  c.backward(*stream);
  const double squares = 3 * 3 + 6 * 6 + 1 + 10 * 10;
  EXPECT_EQ(recorder.records()[0].flops, 2.0 * 4 * 8 * squares);
  EXPECT_EQ(recorder.records()[1].flops, 5.0 * 4 * 8 * squares);
  const double starts_bytes = 20 * 4;
  const double bytes = 20 * 8 * 8 * 2 + 20 * 4 * 8 * 2 + 2 * 4 * 10 * 4;
  EXPECT_EQ(recorder.records()[0].bytes, bytes + starts_bytes);
  EXPECT_EQ(recorder.records()[1].bytes, 2 * bytes + starts_bytes);
}

}  // namespace
}  // namespace tutti::engine
