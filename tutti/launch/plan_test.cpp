#include "tutti/launch/plan.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/store/writer.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/telemetry/events.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::launch {
namespace {

constexpr const char* kPlanRecipe = R"(
model: {layers: 2, hidden: 32, heads: 2, vocabulary: 65, context: 16}
data: {train: corpus}
optimizer: {learning_rate: 0.001}
schedule: {kind: constant}
)";

// A run that has begun and saved nothing; copies of it may be in the memory of its hosts.
TEST(TrainPlan, PeerCopiesMatchTheirRecipe) {
  MemoryFileSystem files;
  files.create_directories("run");
  write_file_atomic(files, train::recipe_path("run"), kPlanRecipe);
  TrainArguments arguments;
  arguments.target = "run";
  arguments.copy_every = 1;
  const auto refusal = [&](const std::string& override_text) -> std::string {
    arguments.overrides = {override_text};
    try {
      make_train_plan(files, arguments, 0, "");
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
  };
  const std::string other = "optimizer.learning_rate=0.01";
  EXPECT_EQ(refusal(other), "");  // no copies were requested
  write_file_atomic(files, "run/peer-copies", "0123456789abcdef\n");
  EXPECT_NE(refusal(other).find("was started with 0.001, not 0.01"), std::string::npos);
  EXPECT_EQ(refusal("train.steps=7 "), "");
  arguments.copy_every = 0;  // then they are forgotten
  EXPECT_EQ(refusal(other), "");
}

// A run with a checkpoint, whose recipe.yaml is then changed.
TEST(TrainPlan, RunFolderRecipesMatchTheirCheckpoints) {
  MemoryFileSystem files;
  const std::string whole =
      spec::to_yaml(spec::parse_recipe(kPlanRecipe, "test", {"run.name=run"}, ""));
  checkpoint::State state;
  state.step = 3;
  state.training["recipe"] = whole;
  const float value = 1;
  checkpoint::write_checkpoint(files, train::checkpoints_path("run"),
                               {{"param.w", DType::f32, {1}, &value, {}, {}}}, state);
  TrainArguments arguments;
  arguments.target = "run";
  const auto refusal = [&](const std::string& text) -> std::string {
    write_file_atomic(files, train::recipe_path("run"), text);
    try {
      make_train_plan(files, arguments, 0, "");
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
  };
  const auto edited = [&](const std::string& key, const std::string& line) {
    std::string text = whole;
    const size_t begin = text.find("\n  " + key + ": ");
    return text.replace(begin, text.find('\n', begin + 1) - begin, "\n  " + line);
  };
  EXPECT_EQ(refusal(whole), "");
  EXPECT_EQ(refusal(edited("keep_last", "keep_last: 9")), "");
  const std::string rate = edited("learning_rate", "learning_rate: 0.01");
  EXPECT_NE(refusal(rate).find("learning_rate is 0.01, and the run was saved with 0.001"),
            std::string::npos);
  EXPECT_NE(refusal(edited("seed", "sede: 1")).find("edited or damaged"), std::string::npos);
  // Every truncation at a line, whatever it cuts.
  int64_t lines = 0;
  for (size_t at = whole.find('\n'); at + 1 < whole.size(); at = whole.find('\n', at + 1)) {
    EXPECT_NE(refusal(whole.substr(0, at + 1)), "") << ++lines;
  }
  arguments.overrides = {"optimizer.learning_rate=0.001"};
  EXPECT_EQ(refusal(rate), "");
  arguments.overrides = {};
  arguments.force_resume = true;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(refusal(rate), "");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("warning: run/recipe.yaml"),
            std::string::npos);
  // Of another run's checkpoint the recipe does not make this run's damaged.
  arguments.force_resume = false;
  telemetry::RunStarted started;
  started.details["run_id"] = "0a";
  write_file_atomic(files, train::events_path("run"),
                    dump_json(telemetry::to_json(telemetry::Event{0, started})) + "\n");
  EXPECT_EQ(refusal(whole), "") << "it does not say which run it is of";
  state.training["run_id"] = "0b";
  state.step = 4;
  checkpoint::write_checkpoint(files, train::checkpoints_path("run"),
                               {{"param.w", DType::f32, {1}, &value, {}, {}}}, state);
  const std::string foreign = refusal(rate);
  EXPECT_NE(foreign.find("step-00000004' is a checkpoint of another run (0b)"), std::string::npos)
      << foreign;
  EXPECT_EQ(foreign.find("edited"), std::string::npos) << foreign;
}

// A run that has begun and saved nothing, whose recipe.yaml is then changed: the events have it.
TEST(TrainPlan, RunFolderRecipesMatchTheirStart) {
  MemoryFileSystem files;
  const std::string whole = spec::to_yaml(spec::parse_recipe(
      kPlanRecipe, "test", {"run.name=run", "train.seed=3", "train.steps=9"}, ""));
  telemetry::RunStarted started;
  started.details["run_id"] = "0a";
  started.details["recipe"] = whole;
  files.create_directories("run");
  write_file_atomic(files, train::events_path("run"),
                    dump_json(telemetry::to_json(telemetry::Event{0, started})) + "\n");
  TrainArguments arguments;
  arguments.target = "run";
  const auto refusal = [&](const std::string& text) -> std::string {
    write_file_atomic(files, train::recipe_path("run"), text);
    try {
      make_train_plan(files, arguments, 0, "");
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_EQ(refusal(whole), "");
  EXPECT_EQ(refusal(replaced("steps: 9", "steps: 8")), "");
  const std::string cut = refusal(whole.substr(0, whole.find("  seed: 3")));
  EXPECT_NE(cut.find("edited or damaged"), std::string::npos) << cut;
  const std::string seed = replaced("seed: 3", "seed: 4");
  const std::string edited = refusal(seed);
  EXPECT_NE(edited.find("train.seed is 4, and the run was saved with 3"), std::string::npos)
      << edited;
  EXPECT_NE(refusal(replaced("seed: 3", "sede: 3")).find("events.jsonl"), std::string::npos);
  // On the command line it is meant.
  arguments.overrides = {"train.seed=5"};
  EXPECT_EQ(refusal(whole), "");
  arguments.overrides = {"train.seed=3"};
  EXPECT_EQ(refusal(seed), "");
  arguments.overrides = {};
  arguments.force_resume = true;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(refusal(seed), "");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("train.seed is 4"), std::string::npos);
}

}  // namespace
}  // namespace tutti::launch
