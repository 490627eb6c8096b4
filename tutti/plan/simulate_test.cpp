#include "tutti/plan/simulate.h"

#include <gtest/gtest.h>

namespace tutti::plan {
namespace {

spec::Mesh mesh_of(int64_t pp, int64_t vpp, spec::Pipeline pipeline) {
  spec::Mesh mesh;
  mesh.pp = pp;
  mesh.vpp = vpp;
  mesh.pipeline = pipeline;
  return mesh;
}

std::vector<PassSeconds> equal_stages(int64_t count) {
  return std::vector<PassSeconds>(static_cast<size_t>(count), {1, 1, 1, 0, 0});
}

// Idle over ideal time: (p - 1) / m for 1F1B, (p - 1) / (v m) interleaved, (p - 1) / (3 m) for
// ZB-H1 with equal passes.
TEST(Simulate, BubblesOfEqualStagesMatchTheFormulas) {
  PipelineSimulator simulator;
  for (const int64_t p : {1, 2, 4, 8}) {
    for (const int64_t m : {8, 16, 40}) {
      SCOPED_TRACE(testing::Message() << p << " stages, " << m << " micro-batches");
      const auto bubble = [&](int64_t vpp, spec::Pipeline pipeline) {
        const double ideal = 3.0 * static_cast<double>(m * vpp);
        const spec::Mesh mesh = mesh_of(p, vpp, pipeline);
        return simulator.run(mesh, m, equal_stages(p * vpp)).seconds / ideal - 1;
      };
      const double unit = static_cast<double>(p - 1) / static_cast<double>(m);
      EXPECT_NEAR(bubble(1, spec::Pipeline::one_f_one_b), unit, 1e-12);
      EXPECT_NEAR(bubble(1, spec::Pipeline::zero_bubble), unit / 3, 1e-12);
      if (p > 1) {
        EXPECT_NEAR(bubble(2, spec::Pipeline::one_f_one_b), unit / 2, 1e-12);
      }
    }
  }
}

TEST(Simulate, TheSlowestStageSetsThePace) {
  PipelineSimulator simulator;
  std::vector<PassSeconds> stages = equal_stages(4);
  stages[2] = {2, 2, 2, 0, 0};
  const double many = simulator.seconds(mesh_of(4, 1, spec::Pipeline::one_f_one_b), 1000, stages);
  EXPECT_NEAR(many / (6.0 * 1000), 1, 0.01);
}

TEST(Simulate, TransfersDelayTheNextStageAndBlockTheSender) {
  PipelineSimulator simulator;
  const spec::Mesh mesh = mesh_of(2, 1, spec::Pipeline::one_f_one_b);
  std::vector<PassSeconds> stages = equal_stages(2);
  for (PassSeconds& stage : stages) stage.transfer = 5;
  // Forward, transfer, forward, backward of the second stage, transfer, backward of the first.
  EXPECT_DOUBLE_EQ(simulator.run(mesh, 1, stages).seconds, 1 + 5 + 3 + 5 + 2);
  EXPECT_DOUBLE_EQ(simulator.run(mesh, 1, stages).busy[0], 3);
  for (PassSeconds& stage : stages) stage.blocked = 5;
  EXPECT_DOUBLE_EQ(simulator.run(mesh, 1, stages).busy[0], 3 + 5);
}

// The extrapolation equals the full simulation.
TEST(Simulate, ManyMicroBatchesAreExtrapolatedExactly) {
  PipelineSimulator simulator;
  for (const auto pipeline : {spec::Pipeline::one_f_one_b, spec::Pipeline::zero_bubble}) {
    for (const int64_t vpp : {1, 3}) {
      if (vpp > 1 && pipeline == spec::Pipeline::zero_bubble) continue;
      const spec::Mesh mesh = mesh_of(4, vpp, pipeline);
      std::vector<PassSeconds> stages = equal_stages(4 * vpp);
      stages.front().forward = 1.3;
      stages.back().weight_gradient = 1.7;
      for (PassSeconds& stage : stages) stage.transfer = stage.blocked = 0.1;
      for (const int64_t m : {64, 100, 128}) {
        EXPECT_NEAR(simulator.seconds(mesh, m, stages) / simulator.run(mesh, m, stages).seconds, 1,
                    1e-9)
            << m << " " << vpp;
      }
    }
  }
}

TEST(Simulate, TimelineHasEveryPassOnceAndNoneOverlap) {
  PipelineSimulator simulator;
  const spec::Mesh mesh = mesh_of(3, 1, spec::Pipeline::one_f_one_b);
  const SimulatedPipeline out = simulator.run(mesh, 5, equal_stages(3), true);
  EXPECT_EQ(out.timeline.size(), 3U * 3 * 5);
  std::vector<double> clock(3, 0);
  for (const TimelineEntry& entry : out.timeline) {
    double& last = clock[static_cast<size_t>(entry.stage)];
    EXPECT_GE(entry.start_seconds, last);
    last = entry.end_seconds;
  }
}

}  // namespace
}  // namespace tutti::plan
