#include <gtest/gtest.h>

#include "tutti/engine/test_support.h"

namespace tutti::engine::testing {
namespace {

TEST(ResidualAdd, EqualsTheSumOfItsOperands) {
  for_each_isa([] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const auto& [rows, cols] :
           {std::pair<int64_t, int64_t>{0, 5}, {1, 1}, {3, 17}, {7, 64}, {33, 101}}) {
        const TestMatrix residual = random_matrix(rows, cols);
        const TestMatrix branch = random_matrix(rows, cols, dtype);
        TestMatrix out = poisoned_matrix(rows, cols);
        test_stream().ops().residual_add(test_stream(),
                                         {.residual = residual, .branch = branch, .out = out});
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            const auto sum =
                static_cast<float>(residual.at(r, c)) + static_cast<float>(branch.at(r, c));
            EXPECT_EQ(out.at(r, c), static_cast<double>(sum));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace tutti::engine::testing
