// Models with latent attention as a whole: gradients, generation against the compressed cache, and
// that cache's bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tutti/model/decode.h"
#include "tutti/model/paged_decode.h"
#include "tutti/train/testing/gradient_check.h"

namespace tutti::train {
namespace {

using testing::deepseek_recipe;
using testing::expect_gradients_match_finite_differences;
using testing::latent_recipe;
using testing::plain_latent_recipe;
using testing::RandomBatches;
using testing::randomize;

TEST(Latent, GradientsMatchFiniteDifferences) {
  for (const spec::Recipe& recipe : {latent_recipe(), plain_latent_recipe(), deepseek_recipe()}) {
    SCOPED_TRACE(recipe.model.name);
    expect_gradients_match_finite_differences(recipe);
  }
}

// Norms count from 1, and positions are stretched.
TEST(Latent, OtherPartsGradientsMatchFiniteDifferences) {
  spec::Recipe recipe = latent_recipe();
  recipe.model.norm_offset = 1;
  recipe.model.norm_placement = spec::NormPlacement::both;
  recipe.model.rope_scaling.kind = spec::RopeScalingKind::yarn;
  recipe.model.rope_scaling.factor = 4;
  recipe.model.rope_scaling.original_context = 4;
  expect_gradients_match_finite_differences(recipe);
}

TEST(Latent, MicroBatchesAddUp) {
  for (spec::Recipe whole : {latent_recipe(), plain_latent_recipe()}) {
    whole.batch = {6, 6, 7};
    spec::Recipe parts = whole;
    parts.batch.micro = 2;
    Trainer a(whole), b(parts);
    for (Trainer* trainer : {&a, &b}) {
      trainer->initialize();
      randomize(*trainer, 11, 0.15F);
    }
    RandomBatches of_a(whole, 3), of_b(whole, 3);
    const double expected = a.gradients(of_a.source());
    const BatchView all = of_b.next();
    int64_t at = 0;
    const double found = b.gradients([&] {
      const int64_t first = at;
      at += 2 * 7;
      return BatchView{all.tokens + first, all.targets + first, first};
    });
    EXPECT_NEAR(found, expected, 1e-6 * expected);
    const auto want = a.state().gradients(), have = b.state().gradients();
    for (size_t i = 0; i < want.size(); ++i) {
      const auto* x = static_cast<const float*>(want[i].data);
      const auto* y = static_cast<const float*>(have[i].data);
      double difference = 0, size = 0;
      for (int64_t j = 0; j < testing::count_of(want[i]); ++j) {
        difference += std::pow(static_cast<double>(x[j]) - static_cast<double>(y[j]), 2);
        size += std::pow(static_cast<double>(x[j]), 2);
      }
      EXPECT_LE(difference, 1e-10 * size) << want[i].name;
    }
  }
}

// What the cache of compressed rows gives is what training computes: a prompt in pieces, then token
// by token, also of two texts side by side.
TEST(Latent, DecodesAsItTrains) {
  for (spec::Recipe recipe : {latent_recipe(), plain_latent_recipe(), deepseek_recipe()}) {
    SCOPED_TRACE(recipe.model.name);
    recipe.batch = {1, 1, 12};
    Trainer trainer(recipe);
    trainer.initialize();
    randomize(trainer, 11, 0.15F);
    RandomBatches batches(recipe, 3);
    const BatchView batch = batches.next();
    const std::vector<float> expected = trainer.logits(batch);
    model::Decoder decoder(recipe.model, trainer.layout(), trainer.memory().arena("weights").data(),
                           DType::f32, 12, 2);
    const int64_t vocabulary = recipe.model.vocabulary;
    const auto expect_row = [&](int64_t row, const std::vector<float>& logits) {
      for (int64_t j = 0; j < vocabulary; ++j) {
        const float want = expected[static_cast<size_t>(row * vocabulary + j)];
        ASSERT_NEAR(logits[static_cast<size_t>(j)], want, 1e-4F * (1 + std::abs(want)));
      }
    };
    for (const int64_t text : {1, 0}) {
      for (int64_t at = 0; at < 9;) {
        const int64_t count = at == 0 ? 5 : 1;
        const std::vector<float> logits =
            decoder.feed(trainer.stream(), {batch.tokens + at, batch.tokens + at + count}, text);
        at += count;
        expect_row(at - 1, logits);
      }
    }
    for (int64_t at = 9; at < 12; ++at) {
      for (const std::vector<float>& logits :
           decoder.step(trainer.stream(), {{1, batch.tokens[at]}, {0, batch.tokens[at]}})) {
        expect_row(at, logits);
      }
    }
  }
}

// The same in pages: of two texts side by side, of other positions and pages out of order.
TEST(Latent, DecodesInPages) {
  for (spec::Recipe recipe : {latent_recipe(), plain_latent_recipe(), deepseek_recipe()}) {
    SCOPED_TRACE(recipe.model.name);
    recipe.batch = {1, 1, 12};
    Trainer trainer(recipe);
    trainer.initialize();
    randomize(trainer, 11, 0.15F);
    RandomBatches batches(recipe, 3);
    const BatchView batch = batches.next();
    const std::vector<float> expected = trainer.logits(batch);
    const model::Parameters parameters(trainer.layout(), trainer.memory().arena("weights").data(),
                                       DType::f32, nullptr);
    model::PagedDecoder decoder(recipe.model, parameters, DType::f32,
                                {.pages = 6, .page_rows = 5, .rows = 16, .logit_rows = 2});
    const std::vector<int32_t> pages[] = {{4, 0, 2}, {1, 5, 3}};
    int64_t past[] = {0, 0};
    const int64_t passes[][2] = {{7, 4}, {1, 6}, {1, 1}, {3, 1}};  // tokens of both texts
    for (const auto& pass : passes) {
      std::vector<model::PagedDecoder::Piece> pieces;
      for (size_t text = 0; text < 2; ++text) {
        pieces.push_back({{batch.tokens + past[text], static_cast<size_t>(pass[text])},
                          past[text],
                          pages[text]});
        past[text] += pass[text];
      }
      decoder.forward(trainer.stream(), pieces);
      const int64_t last[] = {pass[0] - 1, pass[0] + pass[1] - 1};
      const engine::Matrix logits = decoder.logits(trainer.stream(), last);
      for (int64_t text = 0; text < 2; ++text) {
        for (int64_t j = 0; j < recipe.model.vocabulary; ++j) {
          const int64_t row = past[text] - 1;
          const float want = expected[static_cast<size_t>(row * recipe.model.vocabulary + j)];
          ASSERT_NEAR(logits.row<float>(text)[j], want, 1e-4F * (1 + std::abs(want)));
        }
      }
    }
  }
}

// Of a token and layer the compressed row and the shared rotated columns, and nothing per head.
TEST(Latent, TheCacheHasTheStatedBytes) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (spec::Recipe recipe : {latent_recipe(), plain_latent_recipe()}) {
      recipe.precision = type == DType::f32 ? spec::Precision::f32 : spec::Precision::bf16;
      Trainer trainer(recipe);
      const spec::ModelConfig& model = recipe.model;
      const auto bytes = [&](int64_t capacity) {
        return model::Decoder(model, trainer.layout(), trainer.memory().arena("weights").data(),
                              type, capacity)
            .bytes();
      };
      const int64_t row = model.latent.key_value_rank + model.latent.rope_head_dim;
      EXPECT_EQ(spec::cached_columns(model), row);
      constexpr int64_t kMore = 512;  // whole lines of memory
      EXPECT_EQ(bytes(2 * kMore) - bytes(kMore), kMore * model.layers * row * dtype_bytes(type));
    }
  }
}

// Positions matter through the rotated columns alone: without their turn, order says nothing beyond
// which tokens came before.
TEST(Latent, RotatedColumnsTellPositions) {
  spec::Recipe recipe = latent_recipe();
  recipe.model.layers = 1;
  recipe.batch = {1, 1, 6};
  const auto last_logits = [&](double theta, bool swapped) {
    recipe.model.rope_theta = theta;
    Trainer trainer(recipe);
    trainer.initialize();
    randomize(trainer, 11, 0.15F);
    std::vector<int32_t> tokens = {7, 5, 9, 11, 13, 17, 0};
    if (swapped) std::swap(tokens[0], tokens[3]);
    const std::vector<float> all = trainer.logits({tokens.data(), tokens.data() + 1, 0});
    return std::vector<float>(all.end() - recipe.model.vocabulary, all.end());
  };
  const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += std::abs(static_cast<double>(a[i] - b[i]));
    return sum / static_cast<double>(a.size());
  };
  EXPECT_GT(distance(last_logits(1e4, false), last_logits(1e4, true)), 1e-3);
  EXPECT_GT(distance(last_logits(1e4, false), last_logits(10, false)), 1e-4);
}

}  // namespace
}  // namespace tutti::train
