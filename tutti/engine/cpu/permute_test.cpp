#include <gtest/gtest.h>

#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

using Values = std::vector<double>;

struct PermuteShape {
  int64_t rows, k, hidden;
};
const PermuteShape kPermuteShapes[] = {{1, 1, 1}, {5, 2, 3}, {23, 2, 67}, {9, 4, 131}, {3, 1, 64}};

// Every choice has its own row, in scrambled order; one in five is dropped.
TestMatrix random_positions(const PermuteShape& s, int64_t& used) {
  TestMatrix out(s.rows, s.k, DType::i32);
  const int64_t all = s.rows * s.k;
  used = 0;
  for (int64_t j = 0; j < all; ++j) {
    const int64_t choice = j * 7 % all;  // 7 does not divide `all` for any of the shapes
    const bool dropped = choice % 5 == 3;
    out.set(choice / s.k, choice % s.k, dropped ? -1 : static_cast<double>(used));
    if (!dropped) ++used;
  }
  return out;
}

TEST(Permute, ScattersScalesAndDots) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const PermuteShape& s : kPermuteShapes) {
      SCOPED_TRACE(fmt::format("{} x {} x {}", s.rows, s.k, s.hidden));
      int64_t used = 0;
      const TestMatrix positions = random_positions(s, used);
      const TestMatrix x = random_matrix(s.rows, s.hidden, dtype, 1, 1, 5);
      const TestMatrix weights = random_matrix(s.rows, s.k, DType::f32, 2, 1, 1);
      const TestMatrix partner = random_matrix(used, s.hidden, dtype, 3);
      for (const bool weighted : {false, true}) {
        TestMatrix out = poisoned_matrix(used, s.hidden, dtype, 2);
        TestMatrix dots = poisoned_matrix(s.rows, s.k);
        PermuteArgs args;
        args.x = x;
        args.positions = positions;
        args.out = out;
        if (weighted) {
          args.weights = weights;
          args.partner = partner;
          args.dots = dots;
        }
        test_stream().ops().permute(test_stream(), args);
        Values expected(static_cast<size_t>(used * s.hidden)), expected_dots;
        for (int64_t n = 0; n < s.rows; ++n) {
          for (int64_t i = 0; i < s.k; ++i) {
            const auto row = static_cast<int64_t>(positions.at(n, i));
            double dot = 0;
            for (int64_t j = 0; row >= 0 && j < s.hidden; ++j) {
              expected[static_cast<size_t>(row * s.hidden + j)] =
                  x.at(n, j) * (weighted ? weights.at(n, i) : 1);
              dot += x.at(n, j) * partner.at(row, j);
            }
            expected_dots.push_back(dot);
          }
        }
        EXPECT_TRUE(close(out, expected));
        if (weighted) {
          EXPECT_TRUE(close(dots, expected_dots, 2e-5));
        }
      }
    }
  });
}

TEST(Permute, UnpermuteGathersAndAdds) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const PermuteShape& s : kPermuteShapes) {
      SCOPED_TRACE(fmt::format("{} x {} x {}", s.rows, s.k, s.hidden));
      int64_t used = 0;
      const TestMatrix positions = random_positions(s, used);
      const TestMatrix rows = random_matrix(used, s.hidden, dtype, 1, 1, 5);
      const TestMatrix weights = random_matrix(s.rows, s.k, DType::f32, 2, 1, 1);
      for (const bool weighted : {false, true}) {
        for (const bool accumulate : {false, true}) {
          const TestMatrix before = random_matrix(s.rows, s.hidden, dtype, 4, 1, 3);
          TestMatrix out = accumulate ? before : poisoned_matrix(s.rows, s.hidden, dtype, 3);
          UnpermuteArgs args;
          args.rows = rows;
          args.positions = positions;
          if (weighted) args.weights = weights;
          args.accumulate = accumulate;
          args.out = out;
          test_stream().ops().unpermute(test_stream(), args);
          Values expected;
          for (int64_t n = 0; n < s.rows; ++n) {
            for (int64_t j = 0; j < s.hidden; ++j) {
              double sum = accumulate ? before.at(n, j) : 0;
              for (int64_t i = 0; i < s.k; ++i) {
                const auto row = static_cast<int64_t>(positions.at(n, i));
                if (row >= 0) sum += rows.at(row, j) * (weighted ? weights.at(n, i) : 1);
              }
              expected.push_back(sum);
            }
          }
          EXPECT_TRUE(close(out, expected));
        }
      }
    }
  });
}

// <permute(x), y> = <x, unpermute(y)>: each is the other's gradient.
TEST(Permute, UnpermuteIsTheGradientOfPermute) {
  const PermuteShape s = {23, 2, 67};
  int64_t used = 0;
  const TestMatrix positions = random_positions(s, used);
  const TestMatrix x = random_matrix(s.rows, s.hidden);
  const TestMatrix y = random_matrix(used, s.hidden, DType::f32, 2);
  const TestMatrix weights = random_matrix(s.rows, s.k, DType::f32, 3);
  const TestMatrix there(used, s.hidden), back(s.rows, s.hidden);
  test_stream().ops().permute(test_stream(),
                              {.x = x, .positions = positions, .weights = weights, .out = there});
  test_stream().ops().unpermute(
      test_stream(), {.rows = y, .positions = positions, .weights = weights, .out = back});
  double left = 0, right = 0;
  for (int64_t r = 0; r < used; ++r) {
    for (int64_t j = 0; j < s.hidden; ++j) left += there.at(r, j) * y.at(r, j);
  }
  for (int64_t n = 0; n < s.rows; ++n) {
    for (int64_t j = 0; j < s.hidden; ++j) right += x.at(n, j) * back.at(n, j);
  }
  EXPECT_NEAR(left, right, 1e-4 * std::abs(left));
}

}  // namespace
}  // namespace tutti::engine::testing
