#include "tutti/optim/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace tutti::optim {
namespace {

spec::ModelConfig small_gpt() {
  spec::ModelConfig model;
  model.layers = 2;
  model.hidden = 24;
  model.heads = 3;
  model.kv_heads = 3;
  model.head_dim = 8;
  model.ffn = 96;
  model.vocabulary = 101;
  model.context = 16;
  return model;
}

TEST(DecaySegments, CoverTheArenaAndDecayMatricesOnly) {
  const spec::ParamLayout layout = spec::param_layout(spec::param_table(small_gpt()));
  const auto segments = decay_segments(layout, 0.1F);
  int64_t end = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    EXPECT_EQ(segments[i].first, end);
    EXPECT_GT(segments[i].count, 0);
    if (i > 0) {
      EXPECT_NE(segments[i].weight_decay, segments[i - 1].weight_decay);
    }
    end += segments[i].count;
  }
  EXPECT_EQ(end, layout.elements);
  for (const spec::PlacedParam& placed : layout.params) {
    for (const engine::AdamwSegment& segment : segments) {
      if (placed.element_offset >= segment.first &&
          placed.element_offset < segment.first + segment.count) {
        EXPECT_EQ(segment.weight_decay, placed.param.shape.size() == 2 ? 0.1F : 0.0F)
            << placed.name;
      }
    }
  }
}

TEST(ClipFactor, BringsTheNormDownToTheLimit) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(1e9, 0), 1.0);
  EXPECT_NEAR(clip_factor(4.0, 1.0) * 4.0, 1.0, 1e-6);
}

// Minimising sum (x - target)^2 / 2: AdamW without decay must arrive, with steps of about the
// learning rate at first.
TEST(AdamwUpdate, FindsTheMinimumOfAParabola) {
  const auto stream = engine::make_cpu_stream(1);
  std::vector<float> x(37, 0.0F), m(37, 0.0F), v(37, 0.0F), g(37);
  AdamwState state;
  state.gradient = engine::vector(g.data(), DType::f32, 37);
  state.master = engine::vector(x.data(), DType::f32, 37);
  state.moment1 = engine::vector(m.data(), DType::f32, 37);
  state.moment2 = engine::vector(v.data(), DType::f32, 37);
  state.segments = {{0, 37, 0.0F}};
  spec::OptimizerConfig config;
  for (int64_t step = 1; step <= 2000; ++step) {
    for (size_t i = 0; i < x.size(); ++i) g[i] = x[i] - static_cast<float>(i % 5);
    adamw_update(*stream, state, config, 0.02, 1.0, step);
    if (step == 1) {
      EXPECT_NEAR(x[1], 0.02F, 1e-6F);  // m/sqrt(v) = sign of g
      EXPECT_EQ(x[0], 0.0F);
    }
  }
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], static_cast<float>(i % 5), 2e-3F);
}

TEST(AdamwUpdate, DecayShrinksWithoutGradient) {
  const auto stream = engine::make_cpu_stream(1);
  std::vector<float> x = {1.0F, 1.0F}, m(2, 0.0F), v(2, 0.0F), g(2, 0.0F);
  AdamwState state;
  state.gradient = engine::vector(g.data(), DType::f32, 2);
  state.master = engine::vector(x.data(), DType::f32, 2);
  state.moment1 = engine::vector(m.data(), DType::f32, 2);
  state.moment2 = engine::vector(v.data(), DType::f32, 2);
  state.segments = {{0, 1, 0.5F}, {1, 1, 0.0F}};
  adamw_update(*stream, state, spec::OptimizerConfig{}, 0.1, 1.0, 1);
  EXPECT_FLOAT_EQ(x[0], 0.95F);  // 1 - lr * decay
  EXPECT_FLOAT_EQ(x[1], 1.0F);
}

}  // namespace
}  // namespace tutti::optim
