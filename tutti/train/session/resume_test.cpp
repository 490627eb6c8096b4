#include "tutti/train/session/resume.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tutti/base/error.h"

namespace tutti::train {
namespace {

constexpr const char* kRecipe = R"(
model: {layers: 2, hidden: 32, heads: 2, vocabulary: 65, context: 16}
data: {train: corpus, validation: corpus-validation}
train: {steps: 100, target_loss: 1.5}
run: {name: "a: b"}
)";

spec::Recipe recipe(const std::vector<std::string>& overrides = {}) {
  return spec::parse_recipe(kRecipe, "test", overrides, "");
}

std::string refusal(const std::vector<std::string>& overrides) {
  try {
    check_resumable(recipe(), recipe(overrides), "runs/test");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return {};
}

TEST(Flatten, NamesEveryKeyOnceWithItsValue) {
  const auto pairs = flatten(recipe());
  std::set<std::string> keys;
  for (const auto& [key, value] : pairs) EXPECT_TRUE(keys.insert(key).second) << key;
  const auto value_of = [&](const std::string& key) {
    const auto found =
        std::find_if(pairs.begin(), pairs.end(), [&](const auto& p) { return p.first == key; });
    return found == pairs.end() ? std::string("absent") : found->second;
  };
  EXPECT_EQ(value_of("model.layers"), "2");
  EXPECT_EQ(value_of("model.rope_scaling.factor"), "1");
  EXPECT_EQ(value_of("precision"), "bf16");
  EXPECT_EQ(value_of("train.target_loss"), "1.5");
  EXPECT_EQ(value_of("run.budget.hours"), "0");
  EXPECT_NE(value_of("run.name").find("a: b"), std::string::npos);
  EXPECT_EQ(keys.count("model"), 0U);
}

// Each flattened pair is an override that changes nothing.
TEST(Flatten, PairsAreOverrides) {
  std::vector<std::string> overrides;
  for (const auto& [key, value] : flatten(recipe())) {
    overrides.push_back(fmt::format("{}={}", key, value));
  }
  EXPECT_EQ(spec::to_yaml(recipe(overrides)), spec::to_yaml(recipe()));
}

TEST(CheckResumable, AcceptsTheSameRecipe) { EXPECT_EQ(refusal({}), ""); }

TEST(CheckResumable, AcceptsKeysWithoutEffectOnTheArithmetic) {
  for (const char* change :
       {"train.target_loss=null", "train.target_loss=1.2", "checkpoint.every_steps=10",
        "checkpoint.keep_last=7", "evaluate.every_steps=5", "evaluate.samples=3", "run.name=other",
        "run.budget.hours=2", "data.validation=elsewhere", "recompute=full",
        "offload.optimizer=true", "telemetry.gpu_every_seconds=0"}) {
    EXPECT_EQ(refusal({change}), "") << change;
  }
  // More steps, while the learning rate's course stays what it was.
  EXPECT_EQ(refusal({"train.steps=200", "schedule.decay_steps=100"}), "");
}

TEST(CheckResumable, RefusesKeysThatChangeTheArithmetic) {
  for (const char* change : {"model.layers=3", "model.dropout=0.1", "precision=f32",
                             "data.train=other", "batch.global=16", "optimizer.learning_rate=1e-3",
                             "schedule.warmup_steps=10", "train.seed=2", "threads=7"}) {
    const std::string key = std::string(change).substr(0, std::string(change).find('='));
    const std::string message = refusal({change});
    EXPECT_EQ(message.rfind(key + ": the run in 'runs/test' was started with ", 0), 0U) << message;
  }
  const std::string message = refusal({"batch.global=16"});
  EXPECT_NE(message.find("started with 8, not 16"), std::string::npos) << message;
  // A recipe whose decay ends with its last step decays differently when it has more of them.
  const std::string longer = refusal({"train.steps=200"});
  EXPECT_EQ(longer.rfind("schedule.decay_steps: ", 0), 0U);
  EXPECT_NE(longer.find("continue with schedule.decay_steps=100"), std::string::npos) << longer;
  EXPECT_EQ(refusal({"train.steps=200", "schedule.decay_steps=100"}), "");
}

// What the file of the run folder says by itself is not a request of the user.
TEST(CheckResumable, AnEditOfTheRunsOwnRecipeIsNamed) {
  const spec::Recipe edited = recipe({"optimizer.learning_rate=1e-3", "train.seed=2"});
  const auto message = [&](const spec::Recipe& wanted) -> std::string {
    try {
      check_resumable(recipe(), wanted, "runs/test", &edited);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return {};
  };
  const std::string logged = message(edited);
  EXPECT_EQ(logged.rfind("runs/test/recipe.yaml: optimizer.learning_rate is 0.001", 0), 0U)
      << logged;
  EXPECT_NE(logged.find("edited or damaged"), std::string::npos) << logged;
  EXPECT_NE(logged.find("--force-resume"), std::string::npos) << logged;
  EXPECT_EQ(message(recipe()), "");  // set back on the command line
  const std::string wish = message(recipe({"optimizer.learning_rate=1e-2"}));
  EXPECT_EQ(wish.rfind("optimizer.learning_rate: the run in", 0), 0U) << wish;
}

// A recipe that is cut anywhere lacks a key, or is whole.
TEST(CheckWhole, FindsEveryTruncation) {
  const std::string whole = spec::to_yaml(recipe());
  const SavedRecipe saved = {"manifest.json", whole};
  check_whole(whole, saved, "runs/test");
  int refused = 0;
  int lines = 0;
  for (size_t at = whole.find('\n'); at + 1 < whole.size(); at = whole.find('\n', at + 1)) {
    ++lines;
    const std::string cut = whole.substr(0, at + 1);
    try {
      check_whole(cut, saved, "runs/test");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("is missing"), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GT(lines, 50);
  EXPECT_EQ(refused, lines);
}

TEST(CheckResumable, ATeacherMayMoveButNotChange) {
  const std::string teacher =
      "distill={teacher: a, temperature: 2, model: {layers: 1, hidden: 16, heads: 1, vocabulary: "
      "65, context: 16}}";
  const auto message = [](const spec::Recipe& stored, const spec::Recipe& wanted) {
    try {
      check_resumable(stored, wanted, "runs/test");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const spec::Recipe stored = recipe({teacher});
  EXPECT_EQ(message(stored, recipe({teacher, "distill.teacher=b"})), "");
  for (const char* change : {"distill.temperature=3", "distill.weight=0.9"}) {
    EXPECT_NE(message(stored, recipe({teacher, change})).find("distill."), std::string::npos);
  }
  EXPECT_EQ(message(stored, recipe()).rfind("distill.teacher: ", 0), 0U);
  EXPECT_EQ(message(recipe(), stored).rfind("distill.teacher: ", 0), 0U);
}

}  // namespace
}  // namespace tutti::train
