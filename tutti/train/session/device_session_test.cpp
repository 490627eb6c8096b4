// Whole runs on an accelerator: steps, evaluation, checkpoints, resuming. Where the machine has
// none, each test says so.
#include <gtest/gtest.h>

#include <cmath>

#include "tutti/engine/backend.h"
#include "tutti/train/testing/session_fixture.h"

namespace tutti::train {
namespace {

class DeviceSession : public testing::SessionTest {
 protected:
  void SetUp() override {
    const std::string missing = engine::find_backend("cuda").missing();
    if (!missing.empty()) GTEST_SKIP() << "skipped: " << missing;
    recipe_.train.steps = 12;
    recipe_.evaluate.every_steps = 6;
  }
};

TEST_F(DeviceSession, LossesAndEvaluationsAreThoseOfTheCpu) {
  const Summary cpu = run("cpu");
  const std::vector<double> expected = losses();
  events_.clear();
  recipe_.device = "cuda";
  const Summary device = run("device");
  const std::vector<double> found = losses();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
  ASSERT_TRUE(cpu.validation_loss && device.validation_loss);
  EXPECT_NEAR(*device.validation_loss, *cpu.validation_loss, 1e-4);
  EXPECT_EQ(events<telemetry::EvaluationDone>().size(), 2U);
  EXPECT_EQ(device.outcome, Outcome::steps_done);
}

TEST_F(DeviceSession, ResumesToTheBit) {
  recipe_.device = "cuda";
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16, spec::Precision::fp8}) {
    recipe_.precision = precision;
    recipe_.model.dropout = 0.1;
    expect_resume_to_the_bit("precision-" + std::to_string(static_cast<int>(precision)), 7);
  }
}

// A checkpoint of one device resumes on the other.
TEST_F(DeviceSession, RunsMoveBetweenDevices) {
  run("cpu");
  const std::vector<double> expected = losses();
  events_.clear();
  recipe_.device = "cuda";
  run("moved", 5);
  recipe_.device = "cpu";
  run("moved");
  const std::vector<double> found = losses();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
}

}  // namespace
}  // namespace tutti::train
