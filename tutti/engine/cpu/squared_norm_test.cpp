#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/engine/testing/reference.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

double squared_norm(Stream& stream, const TestMatrix& x) {
  TestValue<double> sum(std::nan(""));
  stream.ops().squared_norm(stream, {.x = x, .sum_of_squares = sum.data()});
  return sum.value();
}

TEST(SquaredNorm, EqualsTheReference) {
  for_each_isa([] {
    for (const int64_t count : {0, 1, 3, 101, 16384, 16385, 100003}) {
      const TestMatrix x = random_vector(count);
      const double expected = reference::squared_norm(x.values());
      EXPECT_NEAR(squared_norm(test_stream(), x), expected, 1e-13 * expected) << count;
    }
  });
}

TEST(SquaredNorm, DoesNotDependOnThreads) {
  const TestMatrix x = random_vector(100003);
  const auto one = make_test_stream(1);
  const auto three = make_test_stream(3);
  EXPECT_EQ(squared_norm(*one, x), squared_norm(test_stream(), x));
  EXPECT_EQ(squared_norm(*three, x), squared_norm(test_stream(), x));
}

TEST(SquaredNorm, LargeElementsDoNotOverflowAndNonFinitePropagate) {
  for_each_isa([] {
    TestMatrix x = zero_vector(1000);
    x.set(0, 500, 1e30);
    EXPECT_NEAR(squared_norm(test_stream(), x), 1e60, 1e54);
    x.set(0, 999, std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::isinf(squared_norm(test_stream(), x)));
    x.set(0, 3, std::nan(""));
    EXPECT_TRUE(std::isnan(squared_norm(test_stream(), x)));
  });
}

TEST(Sum, AddsInF64) {
  for (const int64_t n : {0, 1, 3, 1000, 70001}) {
    TestMatrix x = random_vector(n);
    double expected = 0;
    for (const double value : x.values()) expected += value;
    TestValue<double> total(5);
    test_stream().ops().sum(test_stream(), {.x = x, .total = total.data()});
    EXPECT_NEAR(total.value(), expected, 1e-9);
    test_stream().ops().sum(test_stream(), {.x = x, .accumulate = true, .total = total.data()});
    EXPECT_NEAR(total.value(), 2 * expected, 1e-9);
  }
}

}  // namespace
}  // namespace tutti::engine::testing
