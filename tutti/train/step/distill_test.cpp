// Steps that learn from a teacher (spec/recipe/distill.h).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tutti/train/testing/gradient_check.h"
#include "tutti/train/testing/layouts.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using testing::adapted;
using testing::count_of;
using testing::distilled;
using testing::expect_gradients_match_finite_differences;
using testing::gpt_recipe;
using testing::llama_recipe;
using testing::mixed_moe_recipe;
using testing::RandomBatches;
using testing::randomize;
using testing::randomize_teacher;

std::vector<float> all_gradients(const Trainer& trainer) {
  std::vector<float> out;
  for (const StateTensor& tensor : trainer.state().gradients()) {
    const float* g = static_cast<const float*>(tensor.data);
    out.insert(out.end(), g, g + count_of(tensor));
  }
  return out;
}

// One step's loss and gradients of a recipe with random weights.
struct DistillOutcome {
  double loss = 0;
  telemetry::LossParts parts;
  std::vector<float> gradients;
};
DistillOutcome outcome_of(const spec::Recipe& recipe) {
  Trainer trainer(recipe);
  trainer.initialize();
  randomize(trainer, 11, 0.15F);
  randomize_teacher(trainer);
  RandomBatches batches(recipe, 3);
  DistillOutcome out;
  out.loss = trainer.gradients(batches.source());
  out.parts = trainer.loss_parts().value_or(telemetry::LossParts{});
  out.gradients = all_gradients(trainer);
  return out;
}

TEST(Distill, GradientsMatchFiniteDifferences) {
  const spec::ModelConfig gpt = gpt_recipe().model, llama = llama_recipe().model;
  for (spec::Recipe recipe :
       {distilled(gpt_recipe(), llama), distilled(llama_recipe(), gpt),
        distilled(adapted(gpt_recipe()), llama), distilled(mixed_moe_recipe(), gpt)}) {
    for (const auto& [temperature, weight] : {std::pair(1.0, 1.0), {2.5, 0.6}}) {
      SCOPED_TRACE(fmt::format("{} T {} w {}", recipe.model.name, temperature, weight));
      recipe.distill.temperature = temperature;
      recipe.distill.weight = weight;
      recipe.batch.micro = 1;
      expect_gradients_match_finite_differences(recipe);
    }
  }
}

TEST(Distill, ZeroWeightEqualsPlainTraining) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe(), adapted(gpt_recipe())}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      recipe.precision = precision;
      recipe.batch = {6, 2, 7};
      recipe.model.dropout = 0.1;
      spec::Recipe taught = distilled(recipe, llama_recipe().model);
      taught.distill.weight = 0;
      taught.distill.temperature = precision == spec::Precision::f32 ? 1 : 3;
      Trainer plain(recipe), other(taught);
      for (Trainer* trainer : {&plain, &other}) {
        trainer->initialize();
        randomize(*trainer, 11, 0.15F);
        randomize_teacher(*trainer);
      }
      RandomBatches a(recipe, 3), b(recipe, 3);
      for (int64_t update = 1; update <= 3; ++update) {
        const StepResult want = plain.step(a.source(), 1e-3, update);
        const StepResult have = other.step(b.source(), 1e-3, update);
        EXPECT_EQ(have.loss, want.loss);
        EXPECT_EQ(have.gradient_norm, want.gradient_norm);
        EXPECT_EQ(have.parts->cross_entropy, want.loss);
        EXPECT_GT(have.parts->divergence, 0.1);
        EXPECT_FALSE(want.parts);
      }
      EXPECT_EQ(testing::flat_parameters(other), testing::flat_parameters(plain));
    }
  }
}

// As the definition says, from the logits of both models.
TEST(Distill, LossIsTheMixtureOfItsParts) {
  spec::Recipe recipe = distilled(gpt_recipe(), llama_recipe().model);
  Trainer trainer(recipe);
  trainer.initialize();
  randomize(trainer, 11, 0.15F);
  randomize_teacher(trainer, 23);
  spec::Recipe teacher_alone = recipe;
  teacher_alone.distill = {};
  teacher_alone.model = llama_recipe().model;
  Trainer teacher(teacher_alone);
  teacher.initialize();
  for (const spec::PlacedParam& placed : teacher.layout().params) {
    std::vector<float> values(static_cast<size_t>(placed.param.count()));
    fill_normal(values.data(), placed.param.count(), stream_key(23, "teacher." + placed.name), 0,
                placed.param.shape.size() == 1 ? 0.5F : 0.0F, 0.4F);
    teacher.state().set_parameter(placed, values.data());
  }
  teacher.state_changed();
  RandomBatches batches(recipe, 3);
  const BatchView batch = batches.next();
  std::vector<int32_t> targets(batch.targets, batch.targets + 21);
  for (const size_t ignored : {0, 5, 20}) targets[ignored] = -1;
  const BatchView masked = {batch.tokens, targets.data(), 0};
  const std::vector<float> x = trainer.logits(masked), t = teacher.logits(masked);
  const int64_t vocabulary = recipe.model.vocabulary;
  const auto log_softmax = [&](const std::vector<float>& logits, int64_t row) {
    std::vector<double> out;
    double sum = 0;
    for (int64_t j = 0; j < vocabulary; ++j) {
      out.push_back(static_cast<double>(logits[static_cast<size_t>(row * vocabulary + j)]) / 2);
      sum += std::exp(out.back());
    }
    for (double& value : out) value -= std::log(sum);
    return out;
  };
  double divergence = 0;
  for (int64_t row = 0; row < 21; ++row) {
    if (targets[static_cast<size_t>(row)] < 0) continue;
    const std::vector<double> p = log_softmax(t, row), q = log_softmax(x, row);
    for (size_t j = 0; j < p.size(); ++j) divergence += 4 * std::exp(p[j]) * (p[j] - q[j]);
  }
  const double loss = trainer.gradients([&] { return masked; });
  const telemetry::LossParts parts = *trainer.loss_parts();
  EXPECT_NEAR(parts.divergence, divergence / 18, 1e-5 * divergence / 18);
  EXPECT_EQ(parts.cross_entropy, trainer.evaluate([&] { return masked; }, 1).loss);
  EXPECT_EQ(loss, (1 - 0.6) * parts.cross_entropy + 0.6 * parts.divergence);
}

TEST(Distill, AccumulationAddsUpToOneLargeBatch) {
  spec::Recipe whole = distilled(gpt_recipe(), llama_recipe().model);
  whole.batch = {6, 6, 7};
  spec::Recipe parts = whole;
  parts.batch.micro = 2;
  Trainer a(whole), b(parts);
  for (Trainer* trainer : {&a, &b}) {
    trainer->initialize();
    randomize_teacher(*trainer);
  }
  RandomBatches tokens(whole, 3);
  const BatchView batch = tokens.next();
  const double loss = a.gradients([&] { return batch; });
  int64_t micro = 0;
  EXPECT_NEAR(b.gradients([&] {
    const int64_t first = 2 * 7 * micro++;
    return BatchView{batch.tokens + first, batch.targets + first, first};
  }),
              loss, 1e-6 * loss);
  const std::vector<float> ga = all_gradients(a), gb = all_gradients(b);
  double difference = 0, norm = 0;
  for (size_t i = 0; i < ga.size(); ++i) {
    difference += std::pow(static_cast<double>(ga[i]) - static_cast<double>(gb[i]), 2);
    norm += std::pow(static_cast<double>(ga[i]), 2);
  }
  EXPECT_LT(difference, 1e-10 * norm);
}

// Every rank has the whole teacher, and shows it its own samples.
TEST(Distill, DataParallelRanksLearnTheSame) {
  const auto prepare = [](Trainer& trainer) { randomize_teacher(trainer); };
  for (const spec::Recipe& recipe : {distilled(gpt_recipe(), llama_recipe().model),
                                     distilled(adapted(llama_recipe()), gpt_recipe().model)}) {
    const testing::Training alone = testing::train(recipe, {}, 10, {}, prepare);
    for (const spec::Mesh& mesh :
         {spec::Mesh{.dp = 2}, spec::Mesh{.dp = 3, .zero = 1}, spec::Mesh{.dp = 2, .zero = 2},
          spec::Mesh{.dp = 3, .zero = 3}}) {
      SCOPED_TRACE(recipe.model.name + " " + testing::text_of(mesh));
      testing::expect_same(testing::train(recipe, mesh, 10, {}, prepare), alone);
    }
  }
}

TEST(Distill, RecomputationChangesNoBit) {
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    spec::Recipe recipe = distilled(llama_recipe(), gpt_recipe().model);
    recipe.precision = precision;
    const DistillOutcome kept = outcome_of(recipe);
    for (const auto mode : {spec::RecomputeMode::selective, spec::RecomputeMode::full}) {
      recipe.recompute.mode = mode;
      const DistillOutcome again = outcome_of(recipe);
      EXPECT_EQ(again.loss, kept.loss);
      EXPECT_EQ(again.gradients, kept.gradients);
    }
  }
}

TEST(Distill, ArenasAreTheMemoryMapAndNothingInThemOutlivesAStep) {
  for (spec::Recipe recipe : {distilled(gpt_recipe(), llama_recipe().model),
                              distilled(gpt_recipe(), mixed_moe_recipe().model)}) {
    // The frequencies of rope lie in the workspace and outlive steps.
    recipe.distill.model->positions = spec::Positions::learned;
    Trainer trainer(recipe);
    trainer.initialize();
    randomize_teacher(trainer);
    const spec::MemoryMap map = spec::memory_map(recipe);
    int64_t bytes = 0;
    for (const spec::ArenaPlan& plan : map.arenas) {
      EXPECT_EQ(trainer.memory().arena(plan.name).bytes(), plan.bytes) << plan.name;
      bytes += plan.bytes;
    }
    EXPECT_EQ(bytes, map.total_bytes());
    EXPECT_EQ(trainer.memory().map().total_bytes(), bytes);
    const double clean = testing::loss_of(trainer, recipe);
    trainer.memory().poison_transients();
    EXPECT_EQ(testing::loss_of(trainer, recipe), clean);
  }
}

}  // namespace
}  // namespace tutti::train
