#include "tutti/train/tasks/reproduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tutti/base/hash.h"
#include "tutti/telemetry/sinks/jsonl.h"
#include "tutti/train/testing/session_fixture.h"

namespace tutti::train {
namespace {

class ReproduceTest : public testing::SessionTest {
 protected:
  // A recorded run: with its events on disk.
  void record(const std::string& folder, int64_t stop_after_step = 0) {
    SessionOptions options;
    options.run_folder = folder;
    options.measure_peak = false;
    options.stop_after_step = stop_after_step;
    run_recorded(recipe_, options);
  }
  void run_recorded(const spec::Recipe& recipe, const SessionOptions& options) {
    files_.create_directories(options.run_folder);
    telemetry::Telemetry telemetry;
    telemetry.add(
        std::make_unique<telemetry::JsonLinesSink>(files_, events_path(options.run_folder)));
    run_session(recipe, options, files_, telemetry);
  }
  Reproduction reproduce(const ReproduceOptions& options) {
    const ReproductionPlan plan = plan_reproduction(files_, options);
    run_recorded(plan.recipe, plan.options);
    return compare_reproduction(files_, plan);
  }
  std::string error_of(const ReproduceOptions& options) {
    try {
      plan_reproduction(files_, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  static const Factor& factor(const Reproduction& result, std::string_view name) {
    for (const Factor& factor : result.factors) {
      if (factor.name == name) return factor;
    }
    ADD_FAILURE() << "no factor " << name;
    return result.factors.front();
  }
  // Replaces the first `from` in a file.
  void edit(const std::string& path, const std::string& from, const std::string& to) {
    std::string text = read_file(files_, path);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << path << ": no " << from;
    write_file_atomic(files_, path, text.replace(at, from.size(), to));
  }
  // As `tutti data prepare` records it.
  void record_hash(const std::string& prefix) {
    const std::string bytes = read_file(files_, prefix + ".bin");
    write_file_atomic(files_, prefix + ".meta.json",
                      fmt::format(R"({{"bin_xxh3": "{}"}})", hash_hex(hash_text(bytes))));
  }
};

TEST_F(ReproduceTest, GivesTheSameBits) {
  record_hash("train");
  record_hash("validation");
  record("run");
  const Reproduction result = reproduce({.run = "run", .out = "again"});
  EXPECT_TRUE(result.equal) << result.verdict;
  EXPECT_EQ(result.steps, 20);
  EXPECT_EQ(result.evaluations, 2);
  ASSERT_FALSE(result.checkpoints.empty());
  EXPECT_EQ(result.checkpoints.back().step, 20);
  EXPECT_GT(result.checkpoints.back().tensors, 30);
  for (const Factor& factor : result.factors) {
    EXPECT_EQ(factor.state, FactorState::same) << format_factors(result.factors);
  }
  EXPECT_TRUE(result.suspects.empty());
  EXPECT_NE(result.verdict.find("bitwise equal"), std::string::npos) << result.verdict;
}

TEST_F(ReproduceTest, GivesTheSameBitsAsARunThatWasResumed) {
  record("run", 8);
  record("run");
  const Reproduction result = reproduce({.run = "run", .out = "again"});
  EXPECT_TRUE(result.equal) << result.verdict;
  EXPECT_EQ(result.steps, 20);
}

TEST_F(ReproduceTest, NamesATeacherThatLearnedOn) {
  record("teacher");
  recipe_.distill.teacher = "teacher";
  record("run");
  const Reproduction same = reproduce({.run = "run", .out = "again"});
  EXPECT_TRUE(same.equal) << same.verdict;
  EXPECT_EQ(factor(same, "teacher").state, FactorState::same);
  EXPECT_EQ(factor(same, "recipe").state, FactorState::same) << format_factors(same.factors);
  recipe_ = load_recipe(files_, "teacher");
  recipe_.train.steps = 25;
  record("teacher");
  const Reproduction other = reproduce({.run = "run", .out = "third"});
  EXPECT_FALSE(other.equal);
  EXPECT_EQ(factor(other, "teacher").state, FactorState::differs);
  EXPECT_NE(other.verdict.find("suspect: teacher"), std::string::npos) << other.verdict;
}

// What a set of runs holds was fixed before its first run.
TEST_F(ReproduceTest, NeverWritesIntoTheRunsSet) {
  record("set/runs/run_0");
  EXPECT_EQ(set_of_run(files_, "set/runs/run_0"), "");
  write_file_atomic(files_, "set/runs.json", "{}");
  EXPECT_EQ(set_of_run(files_, "set/runs/run_0"), "set");
  for (const char* inside : {"set/runs/run_0-again", "set/again", "set/runs/a/b"}) {
    EXPECT_NE(error_of({"set/runs/run_0", inside}).find("is in the set 'set'"), std::string::npos)
        << inside;
  }
  EXPECT_EQ(error_of({"set/runs/run_0", "set-again"}), "no error");
  // Nor is a run of elsewhere added to it.
  record("alone");
  EXPECT_NE(error_of({"alone", "set/runs/alone"}).find("is in the set 'set'"), std::string::npos);
}

TEST_F(ReproduceTest, StopsEarlyOnRequest) {
  record("run", 15);  // a stop always saves; between steps a save may find the writer busy
  record("run");
  const Reproduction result = reproduce({.run = "run", .out = "again", .steps = 15});
  EXPECT_TRUE(result.equal) << result.verdict;
  EXPECT_EQ(result.steps, 15);
  ASSERT_EQ(result.checkpoints.size(), 1U);
  EXPECT_EQ(result.checkpoints[0].step, 15);
  const Reproduction other = reproduce({.run = "run", .out = "third", .steps = 7});
  EXPECT_TRUE(other.equal);
  EXPECT_TRUE(other.checkpoints.empty());
  ASSERT_EQ(other.notes.size(), 1U);
  EXPECT_NE(other.notes[0].find("parameters were not compared"), std::string::npos);
}

TEST_F(ReproduceTest, NamesAnEditedRecipe) {
  record("run");
  edit("run/recipe.yaml", "learning_rate: 0.001", "learning_rate: 0.002");
  const Reproduction result = reproduce({.run = "run", .out = "again"});
  EXPECT_FALSE(result.equal);
  const Factor& recipe = factor(result, "recipe");
  EXPECT_EQ(recipe.state, FactorState::differs);
  ASSERT_EQ(recipe.details.size(), 1U);
  EXPECT_EQ(recipe.details[0], "optimizer.learning_rate: 0.001 in the run, 0.002 now");
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->step, 1);
  EXPECT_EQ(result.first->what, "learning rate");
  ASSERT_FALSE(result.suspects.empty());
  EXPECT_EQ(result.suspects[0], "recipe");
}

TEST_F(ReproduceTest, KeysWithoutEffectAreNotDifferences) {
  record("run");
  edit("run/recipe.yaml", "keep_last: 2", "keep_last: 3");
  const Reproduction result = reproduce({.run = "run", .out = "again"});
  EXPECT_EQ(factor(result, "recipe").state, FactorState::same);
  EXPECT_TRUE(result.equal);
}

TEST_F(ReproduceTest, NamesAnotherCorpus) {
  record_hash("train");
  record("run");
  std::string bytes = read_file(files_, "train.bin");
  bytes[1000] = static_cast<char>(bytes[1000] ^ 1);
  write_file_atomic(files_, "copy.bin", bytes);
  write_file_atomic(files_, "copy.idx", read_file(files_, "train.idx"));
  const Reproduction result =
      reproduce({.run = "run", .out = "again", .overrides = {"data.train=copy"}});
  const Factor& data = factor(result, "data");
  EXPECT_EQ(data.state, FactorState::differs);
  ASSERT_EQ(data.details.size(), 1U);
  EXPECT_NE(data.details[0].find("hash of the tokens of training corpus 'copy'"),
            std::string::npos);
  EXPECT_FALSE(result.equal);
  EXPECT_EQ(result.suspects[0], "data");
  EXPECT_EQ(factor(result, "recipe").state, FactorState::same);
}

TEST_F(ReproduceTest, ACorpusWithoutARecordedHashIsUnknown) {
  record("run");
  const Reproduction result = reproduce({.run = "run", .out = "again"});
  EXPECT_EQ(factor(result, "data").state, FactorState::unknown);
  EXPECT_TRUE(result.equal);
}

TEST_F(ReproduceTest, NamesTheNumberOfThreads) {
  recipe_.threads = 1;
  record("run");
  const Reproduction result = reproduce({.run = "run", .out = "again", .overrides = {"threads=2"}});
  const Factor& threads = factor(result, "threads");
  EXPECT_EQ(threads.state, FactorState::differs);
  EXPECT_EQ(threads.details[0], "threads: 1 in the run, 2 now");
  EXPECT_EQ(factor(result, "recipe").state, FactorState::same);
  // Whether the bits are the same is measured, and the verdict names threads either way.
  EXPECT_NE(result.verdict.find("threads"), std::string::npos) << result.verdict;
}

TEST_F(ReproduceTest, NamesMachineAndProgram) {
  record("run");
  edit("run/events.jsonl", "\"cpu\":\"", "\"cpu\":\"Another ");
  const std::string hash = "\"executable_hash\":\"";
  edit("run/events.jsonl", hash, hash + "00");
  edit("run/events.jsonl", "\"libraries\":\"", "\"libraries\":\"libother.so 01234567, ");
  const Reproduction result = reproduce({.run = "run", .out = "again"});
  EXPECT_TRUE(result.equal) << result.verdict;
  EXPECT_EQ(factor(result, "program").state, FactorState::differs);
  ASSERT_EQ(factor(result, "program").details.size(), 2U);
  EXPECT_EQ(factor(result, "program").details[1],
            "libraries: libother.so 01234567 in the run, none now");
  EXPECT_NE(result.verdict.find("although these differ"), std::string::npos) << result.verdict;
}

TEST_F(ReproduceTest, FindsOneBitInALoss) {
  record("run");
  const RunRecord before = read_run_record(files_, "run");
  const double loss = before.steps.at(13).loss;
  const double next = std::nextafter(loss, 10.0);
  edit("run/events.jsonl", fmt::format("\"loss\":{}", Json(loss).dump()),
       fmt::format("\"loss\":{}", Json(next).dump()));
  const Reproduction result = reproduce({.run = "run", .out = "again"});
  EXPECT_FALSE(result.equal);
  EXPECT_EQ(result.unequal_steps, 1);
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->step, 13);
  EXPECT_EQ(result.first->what, "loss");
}

TEST_F(ReproduceTest, FindsOneBitInATensor) {
  record_hash("train");
  record_hash("validation");
  record("run");
  ReproductionPlan plan = plan_reproduction(files_, {.run = "run", .out = "again"});
  // Another seed for the reproduction's own steps would show in the losses; here only what is on
  // disk differs: the last checkpoint of another run.
  run_recorded(plan.recipe, plan.options);
  recipe_.train.seed = 6;
  record("other");
  files_.remove_tree("again/checkpoints/step-00000020");
  files_.rename("other/checkpoints/step-00000020", "again/checkpoints/step-00000020");
  const Reproduction result = compare_reproduction(files_, plan);
  EXPECT_FALSE(result.equal);
  EXPECT_FALSE(result.first.has_value());
  EXPECT_FALSE(result.checkpoints.back().unequal.empty());
  EXPECT_NE(result.verdict.find("no factor differs"), std::string::npos) << result.verdict;
}

TEST_F(ReproduceTest, IncompleteIsNotEqual) {
  record("run");
  ReproductionPlan plan = plan_reproduction(files_, {.run = "run", .out = "again"});
  plan.options.stop_after_step = 9;
  run_recorded(plan.recipe, plan.options);
  const Reproduction result = compare_reproduction(files_, plan);
  EXPECT_FALSE(result.equal);
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.verdict, "incomplete: 9 of 20 steps were compared, and they are bitwise equal");
}

TEST_F(ReproduceTest, SaysWhatIsMissing) {
  EXPECT_NE(error_of({.run = "nothing", .out = "again"}).find("not a run folder"),
            std::string::npos);
  record("run");
  EXPECT_NE(error_of({.run = "run", .out = "run"}).find("holds a run already"), std::string::npos);
  EXPECT_NE(error_of({.run = "run", .out = "again", .steps = 21}).find("has 20 steps"),
            std::string::npos);
  files_.remove_file("train.bin");
  EXPECT_NE(error_of({.run = "run", .out = "again"}).find("training corpus 'train'"),
            std::string::npos);
  files_.remove_file("run/events.jsonl");
  EXPECT_NE(error_of({.run = "run", .out = "again"}).find("no recorded run"), std::string::npos);
}

TEST(RunRecord, SeesARepeatedStepWithOtherNumbers) {
  MemoryFileSystem files;
  files.create_directories("run");
  {
    telemetry::JsonLinesSink sink(files, "run/events.jsonl");
    const auto step = [&](int64_t number, double loss) {
      telemetry::StepDone event;
      event.step = number;
      event.loss = loss;
      sink.write({1, event});
    };
    sink.write({1, telemetry::RunStarted{}});
    for (int64_t i = 1; i <= 5; ++i) step(i, 1.0 / static_cast<double>(i));
    telemetry::RunStarted resumed;
    resumed.first_step = 2;
    sink.write({1, resumed});
    step(3, 1.0 / 3);
    step(4, 0.26);
  }
  const RunRecord record = read_run_record(files, "run");
  EXPECT_EQ(record.parts.size(), 2U);
  EXPECT_EQ(record.last_step, 4);
  EXPECT_EQ(record.steps.size(), 4U);
  EXPECT_EQ(record.repeated_steps, 2);
  ASSERT_TRUE(record.unequal_repeat.has_value());
  EXPECT_EQ(*record.unequal_repeat, 4);
  EXPECT_EQ(record.steps.at(3).loss, 1.0 / 3);
}

}  // namespace
}  // namespace tutti::train
