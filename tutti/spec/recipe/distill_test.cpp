#include "tutti/spec/recipe/distill.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/model/flops.h"
#include "tutti/spec/program/program.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

constexpr const char* kRecipe = R"(
model: gpt2-124m
batch: {global: 4, micro: 2, sequence: 256}
distill: {teacher: runs/large, temperature: 2, weight: 0.7, model: gpt2-350m}
)";

TEST(Distill, IsReadWrittenAndReadAgain) {
  const Recipe recipe = parse(kRecipe);
  EXPECT_EQ(recipe.distill.teacher, "runs/large");
  EXPECT_EQ(recipe.distill.temperature, 2);
  EXPECT_EQ(recipe.distill.weight, 0.7);
  ASSERT_TRUE(recipe.distill.model);
  EXPECT_EQ(recipe.distill.model->layers, 24);
  EXPECT_EQ(parse(to_yaml(recipe)), recipe);
  // The run's own folder need not exist to read a recipe that names it.
  const Recipe named = parse("model: gpt2-124m\ndistill: {teacher: runs/large}\n");
  EXPECT_FALSE(named.distill.model);
  EXPECT_EQ(named.distill.temperature, 1);
  EXPECT_EQ(named.distill.weight, 0.5);
  EXPECT_EQ(parse(to_yaml(named)), named);
  EXPECT_FALSE(parse("model: gpt2-124m\n").distill.enabled());
  EXPECT_EQ(parse(kRecipe, {"distill.model.context=512"}).distill.model->context, 512);
}

TEST(Distill, ImpossibleValuesAreNamed) {
  const auto refused = [](const std::vector<std::string>& overrides,
                          const std::vector<std::string>& words) {
    try {
      parse(kRecipe, overrides);
      ADD_FAILURE() << "accepted " << overrides.front();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      for (const std::string& word : words) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      }
    }
  };
  refused({"distill.temperature=0"}, {"distill.temperature: 0", "0.001 to 1000"});
  refused({"distill.temperature=-1"}, {"distill.temperature: -1"});
  refused({"distill.temperature=.nan"}, {"distill.temperature"});
  refused({"distill.weight=1.5"}, {"distill.weight: 1.5", "0 (cross-entropy only) to 1"});
  refused({"distill.weight=-0.1"}, {"distill.weight: -0.1"});
  refused({"distill.teacher="}, {"distill.teacher: missing"});
  refused({"distill.temprature=2"}, {"distill.temprature", "did you mean 'temperature'"});
  refused({"distill.model.vocabulary=500"},
          {"distill.teacher: 'runs/large'", "500", "50257", "model.vocabulary=500"});
  refused({"distill.model.context=128"},
          {"distill.teacher: 'runs/large'", "128 tokens", "batch.sequence=128"});
  refused({"distill.model.dropout=1"}, {"distill.model.dropout: 1"});
  refused({"parallel.pp=2"}, {"distill", "pp 2", "write 1"});
  refused({"parallel.tp=2"}, {"distill", "tp 2"});
  refused({"model.prediction_layers=1"}, {"distill", "model.prediction_layers=0"});
}

TEST(Distill, WithoutTheTeachersModelNothingIsDescribed) {
  const Recipe recipe = parse("model: gpt2-124m\ndistill: {teacher: runs/large}\n");
  for (const auto& describe : std::vector<std::function<void()>>{
           [&] { memory_map(recipe); }, [&] { make_program(recipe, tutti_profile()); },
           [&] { model_flops_per_token(recipe); }}) {
    try {
      describe();
      ADD_FAILURE() << "described";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("distill.model: missing"), std::string::npos);
    }
  }
}

TEST(Distill, TheMapIsThatOfTheRunAndOfATeacherThatOnlyReads) {
  Recipe recipe = parse(kRecipe);
  const MemoryMap whole = memory_map(recipe);
  const MemoryMap teacher = inference_memory_map(teacher_recipe(recipe));
  recipe.distill = {};
  const MemoryMap alone = memory_map(recipe);
  int64_t expected = alone.total_bytes();
  for (const char* name : {"weights", "activations", "workspace", "loss"}) {
    const int64_t bytes = teacher.arena(name).bytes;
    EXPECT_EQ(whole.arena(std::string("teacher.") + name).bytes, bytes) << name;
    expected += bytes;
  }
  EXPECT_EQ(whole.total_bytes(), expected);
  EXPECT_FALSE(whole.has("teacher.gradients"));
  EXPECT_FALSE(whole.has("teacher.batch"));
  // The weights of 24 layers, but the activations of one.
  EXPECT_GT(whole.arena("teacher.weights").bytes, 2 * 350'000'000LL);
  EXPECT_LT(whole.arena("teacher.activations").bytes, whole.arena("activations").bytes / 4);
  // A run that is only evaluated has no teacher.
  recipe.distill = parse(kRecipe).distill;
  Recipe plain = recipe;
  plain.distill = {};
  EXPECT_EQ(inference_memory_map(recipe).total_bytes(), inference_memory_map(plain).total_bytes());
}

TEST(Distill, TheProgramAddsOneForwardPassAndItsLogits) {
  const Recipe recipe = parse(kRecipe);
  Recipe plain = recipe;
  plain.distill = {};
  const auto work = [](const Recipe& r) {
    return step_work(make_program(r, tutti_profile()), make_schedule(r), 0);
  };
  const double more = work(recipe).model_flops - work(plain).model_flops;
  const double tokens = 4 * 256;
  EXPECT_NEAR(more, tokens * teacher_flops_per_token(recipe, 256, FlopConvention::causal),
              1e-9 * more);
  EXPECT_NEAR(work(recipe).model_flops, model_flops_per_step(recipe),
              1e-9 * model_flops_per_step(recipe));
  EXPECT_NEAR(3 * more, tokens * model_flops_per_token(*recipe.distill.model, 256), 1e-9 * more);
  const Program program = make_program(recipe, tutti_profile());
  const LayerOps& layer = program.kind("teacher.block");
  EXPECT_FALSE(layer.forward.empty());
  EXPECT_TRUE(layer.backward_input.empty() && layer.backward_weight.empty());
  EXPECT_TRUE(layer.recompute.empty() && layer.evaluate.empty());
  std::set<std::string> losses;
  for (const Op& op : program.kind("head").forward) losses.insert(op.name);
  EXPECT_TRUE(losses.count("distill_cross_entropy"));
  EXPECT_FALSE(losses.count("cross_entropy"));
  // Evaluation is that of the student alone.
  losses.clear();
  for (const Op& op : program.kind("head").evaluate) losses.insert(op.name);
  EXPECT_TRUE(losses.count("cross_entropy"));
  // The other profiles describe a teacher too.
  for (const char* name : {"megatron-2022", "megatron-te"}) {
    EXPECT_GT(memory_map(recipe, find_profile(name)).total_bytes(),
              memory_map(plain, find_profile(name)).total_bytes());
  }
}

TEST(Distill, TeachersThatCannotRunAreRefused) {
  Recipe recipe = parse(kRecipe);
  EXPECT_NO_THROW(check_executable(recipe));
  recipe.distill.model = recipe_of("deepseek-v3").model;
  EXPECT_THROW(check_executable(recipe), Error);
}

}  // namespace
}  // namespace tutti::spec
