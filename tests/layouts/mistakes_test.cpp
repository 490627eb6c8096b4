// The comparison finds what it is there for: each of these mistakes, made on purpose, fails it.
#include <gtest/gtest.h>

#include <string>

#include "tests/layouts/models.h"
#include "tests/layouts/not_yet.h"

namespace tutti::train {
namespace {

using namespace testing;

// How wrong the gradients of the first step are: expect_same allows 1e-5.
double error_of(const Layout& layout, const Sabotage& sabotage) {
  const Training together = train_on(recipe_of(layout), 1, sabotage);
  return gradient_error(together.gradients, alone(layout).gradients);
}

TEST(Mistakes, AMissingAllReduceIsFound) {
  const Sabotage sabotage = {[](parallel::Ranks& ranks) { ranks.replicas = nullptr; }, {}};
  EXPECT_GT(error_of({Kind::gpt, {.dp = 2}}, sabotage), 1e-2);
}

TEST(Mistakes, SamplesReadTwiceAreFound) {
  const Sabotage sabotage = {{}, [](const parallel::Ranks&) { return int64_t{0}; }};
  EXPECT_GT(error_of({Kind::gpt, {.dp = 2, .zero = 2}}, sabotage), 1e-2);
}

}  // namespace
}  // namespace tutti::train
