// The gradients of a whole model against finite differences of its loss.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tutti/train/step/routing.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train::testing {

inline int64_t count_of(const StateTensor& tensor) {
  int64_t count = 1;
  for (const int64_t dim : tensor.shape) count *= dim;
  return count;
}

// What the gradients that it leaves are those of: the loss and the weighted losses of routers.
inline double loss_of(Trainer& trainer, const spec::Recipe& recipe) {
  RandomBatches batches(recipe, 3);
  const double loss = trainer.gradients(batches.source());
  const spec::MixtureOfExperts& moe = recipe.model.moe;
  if (moe.experts == 0) return loss;
  const telemetry::Routing routing = routing_of_step(trainer.stream(), recipe, trainer.memory());
  return loss + moe.balance_loss * routing.balance_loss + moe.z_loss * routing.z_loss;
}

// For each parameter tensor: the derivative of the loss along a random direction, by central
// differences, equals gradient . direction.
inline void expect_gradients_match_finite_differences(const spec::Recipe& recipe) {
  Trainer trainer(recipe);
  trainer.initialize();
  randomize(trainer, 11, 0.15F);
  randomize_teacher(trainer);
  loss_of(trainer, recipe);
  std::vector<std::vector<float>> gradients;
  double total = 0;
  for (const StateTensor& tensor : trainer.state().gradients()) {
    const float* g = static_cast<const float*>(tensor.data);
    gradients.emplace_back(g, g + count_of(tensor));
    for (const float x : gradients.back()) total += static_cast<double>(x) * static_cast<double>(x);
  }
  const double global_norm = std::sqrt(total);
  const std::vector<StateTensor> state = trainer.state().tensors();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (state[i].name.ends_with("moe.router.bias")) {  // decides the choice: a step, no slope
      for (const float x : gradients[i]) EXPECT_EQ(x, 0.0F) << state[i].name;
      continue;
    }
    float* x = static_cast<float*>(state[i].data);
    const auto n = static_cast<int64_t>(gradients[i].size());
    std::vector<float> direction(gradients[i].size());
    fill_normal(direction.data(), n, stream_key(7, state[i].name), 0, 0, 1);
    const std::vector<float> saved(x, x + n);
    double norm = 0, expected = 0;
    for (const float d : direction) norm += static_cast<double>(d) * static_cast<double>(d);
    norm = std::sqrt(norm);
    for (size_t j = 0; j < direction.size(); ++j) {
      expected += static_cast<double>(gradients[i][j]) * static_cast<double>(direction[j]) / norm;
    }
    const double epsilon = 4e-3;
    double losses[2];
    for (const int side : {0, 1}) {
      for (int64_t j = 0; j < n; ++j) {
        x[j] = saved[static_cast<size_t>(j)] +
               static_cast<float>((side == 0 ? epsilon : -epsilon) / norm) *
                   direction[static_cast<size_t>(j)];
      }
      losses[side] = loss_of(trainer, recipe);
    }
    std::copy(saved.begin(), saved.end(), x);
    const double measured = (losses[0] - losses[1]) / (2 * epsilon);
    EXPECT_NEAR(measured, expected, 0.01 * std::abs(expected) + 3e-4 * global_norm + 1e-4)
        << state[i].name;
  }
}

// Each gradient of `b` within 1e-5 of that of `a`, in norm.
inline void expect_equal_gradients(const Trainer& a, const Trainer& b, double floor) {
  const std::vector<StateTensor> ga = a.state().gradients();
  const std::vector<StateTensor> gb = b.state().gradients();
  ASSERT_EQ(ga.size(), gb.size());
  for (size_t i = 0; i < ga.size(); ++i) {
    double difference = 0, norm = 0;
    for (int64_t j = 0; j < count_of(ga[i]); ++j) {
      const double x = static_cast<double>(static_cast<const float*>(ga[i].data)[j]);
      const double y = static_cast<double>(static_cast<const float*>(gb[i].data)[j]);
      difference += (x - y) * (x - y);
      norm += x * x;
    }
    EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm) + floor) << ga[i].name;
  }
}

}  // namespace tutti::train::testing
