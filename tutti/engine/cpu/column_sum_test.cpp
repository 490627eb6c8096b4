#include <gtest/gtest.h>

#include "tutti/engine/testing/reference.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

TEST(ColumnSum, EqualsTheReference) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const int64_t rows : {0, 1, 3, 21, 64}) {
      for (const int64_t cols : {0, 1, 24, 101, 2500}) {
        for (const float beta : {0.0F, 1.0F}) {
          const TestMatrix x = random_matrix(rows, cols, dtype, 1, 1, 3);
          const TestMatrix before = random_vector(cols, DType::f32, 2);
          TestMatrix out = beta == 0 ? poisoned_vector(cols) : before;
          test_stream().ops().column_sum(test_stream(), {.x = x, .beta = beta, .out = out});
          EXPECT_TRUE(close(out,
                            reference::column_sum(x.values(), rows, cols, static_cast<double>(beta),
                                                  before.values()),
                            2e-5))
              << rows << " x " << cols << ", beta " << beta;
        }
      }
    }
  });
}

TEST(ColumnSum, DoesNotDependOnThreads) {
  const TestMatrix x = random_matrix(301, 777, DType::bf16);
  TestMatrix two = poisoned_vector(777);
  TestMatrix one = poisoned_vector(777);
  const auto one_thread = make_test_stream(1);
  test_stream().ops().column_sum(test_stream(), {.x = x, .beta = 0, .out = two});
  one_thread->ops().column_sum(*one_thread, {.x = x, .beta = 0, .out = one});
  EXPECT_TRUE(one.same_bytes(two));
}

}  // namespace
}  // namespace tutti::engine::testing
