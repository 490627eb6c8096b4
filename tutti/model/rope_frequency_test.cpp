#include "tutti/model/rope_frequency.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::model {
namespace {

spec::ModelConfig llama_positions() {
  spec::ModelConfig model;
  model.positions = spec::Positions::rope;
  model.head_dim = 128;
  model.rope_theta = 500000;
  return model;
}

TEST(RopeFrequencies, FallGeometricallyFromOne) {
  const auto frequency = rope_frequencies(llama_positions());
  ASSERT_EQ(frequency.size(), 64U);
  EXPECT_FLOAT_EQ(frequency[0], 1.0F);
  for (size_t i = 1; i < frequency.size(); ++i) {
    EXPECT_NEAR(frequency[i] / frequency[i - 1], std::pow(500000.0, -1.0 / 64), 1e-6);
  }
}

// Llama 3.1: factor 8, low 1, high 4, original context 8192. Fast dimensions keep their frequency,
// slow ones are divided by 8, those between are in between.
TEST(RopeFrequencies, ScalingStretchesOnlyLongWavelengths) {
  spec::ModelConfig model = llama_positions();
  const auto plain = rope_frequencies(model);
  model.rope_scaling = {8, 1, 4, 8192};
  const auto scaled = rope_frequencies(model);
  int kept = 0, slowed = 0, between = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * M_PI / static_cast<double>(plain[i]);
    const double ratio = static_cast<double>(scaled[i]) / static_cast<double>(plain[i]);
    if (wavelength < 8192.0 / 4) {
      EXPECT_DOUBLE_EQ(ratio, 1);
      ++kept;
    } else if (wavelength > 8192.0) {
      EXPECT_NEAR(ratio, 0.125, 1e-6);
      ++slowed;
    } else {
      EXPECT_GT(ratio, 0.125);
      EXPECT_LT(ratio, 1);
      ++between;
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(slowed, 0);
  EXPECT_GT(between, 0);
}

}  // namespace
}  // namespace tutti::model
