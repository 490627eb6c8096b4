#include "tutti/optim/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "tutti/base/rng.h"
#include "tutti/engine/stochastic_bf16.h"
#include "tutti/engine/update_scalars.h"

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

// On every rank of a mesh an element of the flat arena has the key and number that it has on one
// rank, also where ZeRO cuts; padding has none.
TEST(NumberedSegments, NameElementsOfTheWholeTensor) {
  spec::ModelConfig experts = small_gpt();
  experts.heads = 4;
  experts.kv_heads = 2;
  experts.head_dim = 6;
  experts.activation = spec::Activation::swiglu;
  experts.moe.experts = 4;
  experts.moe.top_k = 2;
  experts.moe.expert_ffn = 16;
  spec::ModelConfig dense = experts;
  dense.moe = {};
  for (const spec::ModelConfig& model : {dense, experts}) {
    for (const spec::Mesh& mesh : {spec::Mesh{}, spec::Mesh{.tp = 2}, spec::Mesh{.tp = 4}}) {
      const spec::ParamTable table = spec::param_table(model, {}, 64 * mesh.tp);
      for (int64_t rank = 0; rank < mesh.tp; ++rank) {
        spec::Coordinates at;
        at.tp = rank;
        const spec::ParamLayout layout = spec::param_layout(table, mesh, at);
        const auto whole = numbered_segments(layout, 0.1F, 5);
        std::map<int64_t, std::pair<uint64_t, int64_t>> expected;  // by offset in the arena
        for (const spec::PlacedParam& placed : layout.params) {
          spec::visit_runs(placed.param, placed.shard, [&](const spec::ShardRun& run) {
            for (int64_t i = 0; i < run.count; ++i) {
              expected[placed.element_offset + run.local_first + i] = {
                  stream_key(5, "adamw.rounding", placed.name), run.global_first + i};
            }
          });
        }
        for (const engine::AdamwSegment& segment : whole) {
          for (const spec::PlacedParam& placed : layout.params) {
            if (segment.numbers.key != stream_key(5, "adamw.rounding", placed.name)) continue;
            EXPECT_EQ(segment.weight_decay, placed.param.decay ? 0.1F : 0.0F) << placed.name;
          }
        }
        // Pieces as ranks own them.
        for (const int64_t pieces : {1, 3}) {
          int64_t named = 0;
          for (int64_t piece = 0; piece < pieces; ++piece) {
            const int64_t first = layout.trainable_elements * piece / pieces;
            const int64_t end = layout.trainable_elements * (piece + 1) / pieces;
            int64_t covered = 0;
            for (const engine::AdamwSegment& segment : cut_segments(whole, first, end - first)) {
              EXPECT_EQ(segment.first, covered);
              covered += segment.count;
              if (segment.numbers.key == 0) continue;
              for (int64_t i = 0; i < segment.count; ++i) {
                const auto found = expected.find(first + segment.first + i);
                ASSERT_NE(found, expected.end());
                ASSERT_EQ(found->second.first, segment.numbers.key);
                ASSERT_EQ(found->second.second, engine::element_number(segment.numbers, i));
                ++named;
              }
            }
            EXPECT_EQ(covered, end - first);
          }
          EXPECT_EQ(named, static_cast<int64_t>(expected.size()));
        }
        // A few segments for each tensor, however many rows it has.
        EXPECT_LT(whole.size(), 8 * layout.params.size());
      }
    }
  }
}

// Update number `step`, without clipping.
void update(engine::Stream& stream, const AdamwState& state, const spec::OptimizerConfig& config,
            double learning_rate, int64_t step) {
  const engine::UpdateScalars scalars =
      engine::update_scalars(learning_rate, static_cast<double>(step),
                             static_cast<float>(config.beta1), static_cast<float>(config.beta2), 1);
  adamw_update(stream, state, config, &scalars);
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
    update(*stream, state, config, 0.02, step);
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
  update(*stream, state, spec::OptimizerConfig{}, 0.1, 1);
  EXPECT_FLOAT_EQ(x[0], 0.95F);  // 1 - lr * decay
  EXPECT_FLOAT_EQ(x[1], 1.0F);
}

}  // namespace
}  // namespace tutti::optim
