// Runs alone: it measures time.
#include <gtest/gtest.h>

#include <algorithm>

#include "tutti/parallel/pipeline_bench.h"

namespace tutti::parallel {
namespace {

using spec::Mesh;
using spec::Pipeline;

// Equal stages: what is idle is the bubble of theory, within a tenth of it. The least of a few
// measurements, because a machine only ever adds to a wait.
TEST(Bubble, IsThatOfTheory) {
  constexpr int64_t kMicroBatches = 8;
  constexpr PassSeconds kPasses = {0.03, 0.03, 0.03};
  for (const Mesh mesh : {Mesh{.pp = 4}, Mesh{.pp = 4, .vpp = 2}, Mesh{.pp = 2, .vpp = 2},
                          Mesh{.pp = 4, .pipeline = Pipeline::zero_bubble},
                          Mesh{.pp = 4, .pipeline = Pipeline::gpipe}}) {
    const double ideal = ideal_bubble(mesh, kMicroBatches);
    double least = 1e9;
    for (int attempt = 0; attempt < 8 && least > 1.1 * ideal; ++attempt) {
      least = std::min(least, measure_pipeline(mesh, kMicroBatches, kPasses).bubble());
    }
    EXPECT_NEAR(least / ideal, 1, 0.1) << "pp " << mesh.pp << " vpp " << mesh.vpp << " schedule "
                                       << static_cast<int>(mesh.pipeline);
  }
}

}  // namespace
}  // namespace tutti::parallel
