// Runs alone: it measures time.
#include <gtest/gtest.h>

#include <cmath>

#include "tutti/parallel/pipeline_bench.h"

namespace tutti::parallel {
namespace {

using spec::Mesh;
using spec::Pipeline;

// Equal stages: what is idle is the bubble of theory, within a tenth of it. The nearest of a few
// measurements, because a machine adds to waits, and to passes that others do not wait for; on a
// busy one of longer passes, beside which what it adds is small.
TEST(Bubble, IsThatOfTheory) {
  constexpr int64_t kMicroBatches = 8;
  for (const Mesh mesh : {Mesh{.pp = 4}, Mesh{.pp = 4, .vpp = 2}, Mesh{.pp = 2, .vpp = 2},
                          Mesh{.pp = 4, .pipeline = Pipeline::zero_bubble},
                          Mesh{.pp = 4, .pipeline = Pipeline::gpipe}}) {
    const double ideal = ideal_bubble(mesh, kMicroBatches);
    double nearest = 1e9;  // of what is measured to what it should be
    for (int attempt = 0; attempt < 10 && std::abs(nearest - 1) > 0.1; ++attempt) {
      const double pass = 0.03 * static_cast<double>(1 << attempt / 2);  // up to 0.48 s
      const PassSeconds passes = {pass, pass, pass};
      const double ratio = measure_pipeline(mesh, kMicroBatches, passes).bubble() / ideal;
      if (std::abs(ratio - 1) < std::abs(nearest - 1)) nearest = ratio;
    }
    EXPECT_NEAR(nearest, 1, 0.1) << "pp " << mesh.pp << " vpp " << mesh.vpp << " schedule "
                                 << static_cast<int>(mesh.pipeline);
  }
}

}  // namespace
}  // namespace tutti::parallel
