#include "tutti/spec/recipe/batch.h"

#include "tutti/base/check.h"

namespace tutti::spec {

std::vector<int64_t> BatchPlan::samples(int64_t step, int64_t dp) const {
  TUTTI_CHECK(step >= 1 && dp >= 0 && dp < data_parallel, "step {} dp {} of {}", step, dp,
              data_parallel);
  std::vector<int64_t> numbers;
  numbers.reserve(static_cast<size_t>(accumulation() * micro));
  for (int64_t m = 0; m < accumulation(); ++m) {
    for (int64_t i = 0; i < micro; ++i) numbers.push_back(first_sample(step, m, dp) + i);
  }
  return numbers;
}

BatchPlan make_batch_plan(const Recipe& recipe) {
  return {recipe.batch.global, recipe.batch.micro, recipe.parallel.dp, recipe.batch.sequence};
}

}  // namespace tutti::spec
