#include "tutti/cli/train_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/base/error.h"
#include "tutti/base/memory_file.h"
#include "tutti/train/run_folder.h"

namespace tutti::cli {
namespace {

constexpr const char* kPlanRecipe = R"(
model: {layers: 2, hidden: 32, heads: 2, vocabulary: 65, context: 16}
data: {train: corpus}
optimizer: {learning_rate: 0.001}
schedule: {kind: constant}
)";

// A run that has begun and saved nothing; copies of it may be in the memory of its hosts.
TEST(TrainPlan, CopiesInMemoryAreOfTheRecipeThatMadeThem) {
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
  EXPECT_EQ(refusal(other), "");  // nobody was asked for copies
  write_file_atomic(files, "run/peer-copies", "0123456789abcdef\n");
  EXPECT_NE(refusal(other).find("was started with 0.001, not 0.01"), std::string::npos);
  EXPECT_EQ(refusal("train.steps=7 "), "");
  arguments.copy_every = 0;  // then they are forgotten
  EXPECT_EQ(refusal(other), "");
}

}  // namespace
}  // namespace tutti::cli
