// Runs alone: it measures time.
#include <gtest/gtest.h>

#include <algorithm>

#include "tutti/parallel/pipeline_bench.h"

namespace tutti::parallel {
namespace {

using spec::Mesh;
using spec::Pipeline;

// Equal stages: what is idle is the bubble of theory, within a tenth of it. The least of a few
// measurements, because a machine only ever adds to a wait; on a busy one of longer passes, beside
// which what it adds is small.
TEST(Bubble, IsThatOfTheory) {
  constexpr int64_t kMicroBatches = 8;
  for (const Mesh mesh : {Mesh{.pp = 4}, Mesh{.pp = 4, .vpp = 2}, Mesh{.pp = 2, .vpp = 2},
                          Mesh{.pp = 4, .pipeline = Pipeline::zero_bubble},
                          Mesh{.pp = 4, .pipeline = Pipeline::gpipe}}) {
    const double ideal = ideal_bubble(mesh, kMicroBatches);
    double least = 1e9;
    for (int attempt = 0; attempt < 10 && least > 1.1 * ideal; ++attempt) {
      const double pass = 0.03 * static_cast<double>(1 << attempt / 2);  // up to 0.48 s
      const PassSeconds passes = {pass, pass, pass};
      least = std::min(least, measure_pipeline(mesh, kMicroBatches, passes).bubble());
    }
    EXPECT_NEAR(least / ideal, 1, 0.1) << "pp " << mesh.pp << " vpp " << mesh.vpp << " schedule "
                                       << static_cast<int>(mesh.pipeline);
  }
}

}  // namespace
}  // namespace tutti::parallel
