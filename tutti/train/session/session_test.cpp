// Whole runs on an in-memory disk: resume, damage, full disks, budgets, targets.
#include "tutti/train/session/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/prepare/loss_mask.h"
#include "tutti/train/session/peak_record.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/testing/session_fixture.h"

namespace tutti::train {
namespace {

using testing::SessionTest;
using testing::write_corpus;
using testing::write_documents;

TEST_F(SessionTest, ReportsWhatItDid) {
  const Summary summary = run("run");
  EXPECT_EQ(summary.outcome, Outcome::steps_done);
  EXPECT_EQ(summary.exit_code, exit_ok);
  EXPECT_EQ(summary.steps, 20);
  EXPECT_EQ(summary.tokens, 20 * 3 * 7);
  EXPECT_EQ(losses().size(), 20U);
  ASSERT_TRUE(summary.validation_loss);
  EXPECT_EQ(events<telemetry::EvaluationDone>().size(), 2U);
  // Every target of the validation set exactly once.
  EXPECT_EQ(events<telemetry::EvaluationDone>()[0].tokens, 149);
  EXPECT_EQ(*summary.validation_loss, events<telemetry::EvaluationDone>()[1].loss);
  EXPECT_TRUE(files_.exists("run/recipe.yaml"));
  EXPECT_EQ(events<telemetry::RunFinished>().size(), 1U);
}

// Stop at step 10, resume in a new session: the same losses and parameters, to the last bit.
TEST_F(SessionTest, ResumeEqualsTheUninterruptedRun) {
  for (const auto precision :
       {spec::Precision::f32, spec::Precision::bf16, spec::Precision::fp8, spec::Precision::fp4}) {
    for (const int64_t micro : {3, 1}) {
      recipe_.precision = precision;
      recipe_.narrow = {.head = precision == spec::Precision::fp8,
                        .stochastic_gradients = precision == spec::Precision::fp4};
      recipe_.batch.micro = micro;
      recipe_.model.dropout = 0.1;
      const std::string name = fmt::format("{}-{}", static_cast<int>(precision), micro);
      events_.clear();
      run(name + "-whole");
      const std::vector<double> whole = losses();
      events_.clear();
      const Summary first = run(name + "-parts", 10);
      EXPECT_EQ(first.outcome, Outcome::stopped);
      EXPECT_EQ(first.exit_code, exit_requeue);
      run(name + "-parts");
      EXPECT_EQ(losses(), whole);
      EXPECT_EQ(parameters(name + "-parts"), parameters(name + "-whole"));
    }
  }
}

// The same with packed documents, blended corpora and a masked one.
TEST_F(SessionTest, PackedBlendsResumeToTheBit) {
  write_documents(files_, "a", 90, 0);
  write_documents(files_, "b", 30, 3);
  write_documents(files_, "held-out", 25, 5);
  std::vector<uint32_t> masked(30, 0);
  masked[4] = masked[9] = 10;
  const data::Corpus b(files_, "b");
  write_file_atomic(files_, "b.mask", data::loss_mask_bytes(masked, b.tokens()));
  recipe_.data.train = spec::CorpusBlend({{"a", 0.7}, {"b", 0.3}});
  recipe_.data.validation = "held-out";
  recipe_.data.packing = spec::Packing::documents;
  recipe_.batch = {4, 2, 12};
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    recipe_.precision = precision;
    const std::string name = precision == spec::Precision::f32 ? "f32" : "bf16";
    events_.clear();
    const Summary summary = run(name + "-whole");
    const std::vector<double> whole = losses();
    EXPECT_LT(whole.back(), whole.front());
    EXPECT_GE(summary.useful_token_share, 0.98);
    EXPECT_LT(summary.target_share, 1);
    int64_t tokens = 0;
    for (const auto& step : events<telemetry::StepDone>()) {
      tokens = step.tokens;
      EXPECT_LE(step.targets, 4 * 12);
      EXPECT_GT(step.useful_share, 0.5);
    }
    EXPECT_EQ(summary.tokens, tokens);
    events_.clear();
    run(name + "-parts", 7);
    run(name + "-parts", 13);
    run(name + "-parts");
    EXPECT_EQ(losses(), whole);
    EXPECT_EQ(parameters(name + "-parts"), parameters(name + "-whole"));
  }
  const data::Corpus held_out(files_, "held-out");
  int64_t targets = 0;
  for (int64_t d = 0; d < held_out.documents(); ++d) {
    targets += std::max<int64_t>(0, held_out.document_range(d).count - 1);
  }
  EXPECT_EQ(events<telemetry::EvaluationDone>().back().tokens, targets);
}

// Its first loss is that of the parameters it starts from, its steps and optimizer are its own; it
// continues without the run it came from.
TEST_F(SessionTest, StartsFromTheParametersOfAnotherRun) {
  recipe_.optimizer.learning_rate = 1e-2;
  recipe_.train.steps = 100;
  const Summary base = run("base");
  recipe_.train.steps = 20;
  recipe_.checkpoint.initialize_from = "base";
  events_.clear();
  run("tuned");
  const std::vector<double> whole = losses();
  EXPECT_EQ(whole.size(), 20U);
  EXPECT_NEAR(whole.front(), *base.validation_loss, 0.5);
  EXPECT_LT(whole.front(), 0.7 * std::log(101.0));
  run("parts", 10);
  files_.remove_tree("base");
  run("parts");
  EXPECT_EQ(parameters("parts"), parameters("tuned"));
}

TEST_F(SessionTest, DamagedNewestCheckpointIsSkippedWithAMessage) {
  run("whole");
  const std::vector<double> whole = losses();
  run("run", 10);
  const auto checkpoints = checkpoint::list_checkpoints(files_, "run/checkpoints");
  ASSERT_EQ(checkpoints.back().step, 10);
  for (const DirectoryEntry& entry : files_.list(checkpoints.back().path)) {
    if (entry.name.find("safetensors") != std::string::npos) {
      files_.damage(join_path(checkpoints.back().path, entry.name), entry.size_bytes - 7, 0x10);
    }
  }
  events_.clear();
  run("run");
  EXPECT_EQ(losses(), std::vector<double>(whole.begin() + 5, whole.end()));
  bool named = false;
  for (const auto& message : events<telemetry::Message>()) {
    named = named || message.text.find("step-00000010") != std::string::npos;
  }
  EXPECT_TRUE(named);
}

// A session that starts while others compute measures less; what the run has seen before counts.
TEST_F(SessionTest, PeakIsTheBestOfTheRun) {
  SessionOptions options;
  options.run_folder = "run";
  options.stop_after_step = 2;
  telemetry::Telemetry telemetry;
  telemetry.add(std::make_unique<testing::Collector>(events_));
  run_session(recipe_, options, files_, telemetry);
  const double measured = events<telemetry::RunStarted>().at(0).gemm_peak_flops;
  ASSERT_GT(measured, 0);
  const Json record = parse_json(read_file(files_, "run/peaks.json"), "peaks.json");
  const std::string key = record.at("peaks").begin().key();
  const double best = best_peak(files_, "run", key, 1000 * measured);
  options.stop_after_step = 4;
  const Summary summary = run_session(recipe_, options, files_, telemetry);
  EXPECT_EQ(events<telemetry::RunStarted>().at(1).gemm_peak_flops, best);
  EXPECT_EQ(summary.gemm_peak_flops, best);
  EXPECT_LT(summary.mfu_of_gemm_peak, 1);
}

TEST_F(SessionTest, ABusyMachineIsNamed) {
  std::atomic<bool> done{false};
  std::vector<std::thread> others;
  const unsigned count = 3 * std::max(1U, std::thread::hardware_concurrency());
  others.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    others.emplace_back([&] {
      while (!done.load(std::memory_order_relaxed)) {
      }
    });
  }
  SessionOptions options;
  options.run_folder = "run";
  options.stop_after_step = 1;
  telemetry::Telemetry telemetry;
  telemetry.add(std::make_unique<testing::Collector>(events_));
  run_session(recipe_, options, files_, telemetry);
  done.store(true);
  for (std::thread& other : others) other.join();
  bool named = false;
  for (const auto& message : events<telemetry::Message>()) {
    named = named || message.text.find("the machine is busy") != std::string::npos;
  }
  EXPECT_TRUE(named);
}

// The power fails after the copies of a step were made and before what else was due after it.
TEST_F(SessionTest, ActionsDueAfterThePeerCopyAreDone) {
  recipe_.checkpoint.every_steps = 10;
  SessionOptions options;
  options.run_folder = "run";
  options.measure_peak = false;
  options.copy_every = 1;
  options.memory_root = "memory";
  options.stop_after_step = 10;
  telemetry::Telemetry silent;
  run_session(recipe_, options, files_, silent);
  int64_t saving = 0;
  while (saving < files_.operation_count() &&
         files_.operation(saving).find("checkpoints/") == std::string::npos) {
    ++saving;
  }
  constexpr uint64_t kNothingIsLost = 1;
  const auto disk = files_.crash_after(saving, kNothingIsLost);
  ASSERT_TRUE(checkpoint::list_checkpoints(*disk, checkpoints_path("run")).empty());

  options.stop_after_step = 12;
  telemetry::Telemetry telemetry;
  telemetry.add(std::make_unique<testing::Collector>(events_));
  run_session(recipe_, options, *disk, telemetry);
  const auto steps = events<telemetry::StepDone>();
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps.front().step, 11);
  const auto evaluations = events<telemetry::EvaluationDone>();
  ASSERT_EQ(evaluations.size(), 1U);
  EXPECT_EQ(evaluations.front().step, 10);
  const auto saves = events<telemetry::CheckpointSaved>();
  ASSERT_EQ(saves.size(), 2U);
  EXPECT_EQ(saves.front().step, 10);
  EXPECT_EQ(saves.back().step, 12);
}

TEST_F(SessionTest, FullDiskWhileCheckpointingDoesNotStopTraining) {
  run("whole");
  const std::vector<double> whole = losses();
  events_.clear();
  run("run", 5);
  const std::string recipe_file = recipe_path("run");
  // From here on nothing can be written but what the folder's recipe needs.
  int64_t used = 0;
  const std::function<void(const std::string&)> count = [&](const std::string& folder) {
    for (const DirectoryEntry& entry : files_.list(folder)) {
      const std::string path = join_path(folder, entry.name);
      if (entry.is_directory) count(path);
      else used += entry.size_bytes;
    }
  };
  count("/");
  files_.set_capacity(used + files_.size_bytes(recipe_file) + 100);
  // All steps are done, but a run whose result is lost has failed.
  try {
    run("run");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io);
    EXPECT_NE(std::string(error.what()).find("step 20"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("space"), std::string::npos) << error.what();
  }
  EXPECT_EQ(losses(), whole);
  const auto failures = events<telemetry::CheckpointFailed>();
  ASSERT_FALSE(failures.empty());
  EXPECT_NE(failures[0].message.find("space"), std::string::npos) << failures[0].message;
  // The old checkpoint is still there and whole.
  EXPECT_EQ(load_run(files_, "run", false).step, 5);
  files_.clear_faults();
  EXPECT_EQ(run("run").exit_code, 0);
  EXPECT_EQ(load_run(files_, "run", false).step, 20);
}

TEST_F(SessionTest, StopsAtTheTargetAndSaysWhen) {
  recipe_.train.steps = 2000;
  recipe_.evaluate.every_steps = 20;
  recipe_.optimizer.learning_rate = 1e-2;
  recipe_.train.target_validation_loss = 2.0;
  const Summary summary = run("run");
  EXPECT_TRUE(summary.reached_target);
  EXPECT_EQ(summary.outcome, Outcome::target_reached);
  EXPECT_LT(summary.steps, 2000);
  EXPECT_LE(*summary.validation_loss, 2.0);
  EXPECT_GT(summary.time_to_target_seconds, 0);
  EXPECT_LE(summary.time_to_target_seconds, summary.train_seconds);
  for (const auto& evaluation : events<telemetry::EvaluationDone>()) {
    EXPECT_EQ(evaluation.loss <= 2.0, evaluation.step == summary.steps);
  }
}

TEST_F(SessionTest, OverBudgetCheckpointsAndAsksToBeRequeued) {
  recipe_.run.budget.hours = 1e-9;
  const Summary summary = run("run");
  EXPECT_EQ(summary.outcome, Outcome::over_budget);
  EXPECT_EQ(summary.exit_code, 75);
  EXPECT_EQ(events<telemetry::BudgetExceeded>().size(), 1U);
  EXPECT_EQ(load_run(files_, "run", false).step, summary.steps);
}

TEST_F(SessionTest, CheckpointOfAnotherModelIsRefusedNamingTheField) {
  run("run", 5);
  recipe_.model.ffn = 48;
  try {
    run("run");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("ffn"), std::string::npos) << error.what();
  }
}

TEST_F(SessionTest, DivergenceStopsAfterKStepsNamingStepAndTensor) {
  recipe_.optimizer.learning_rate = 1e30;
  recipe_.optimizer.clip_norm = 0;
  recipe_.train.stop_after_nonfinite = 4;
  try {
    run("run");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::diverged);
    EXPECT_EQ(exit_code(error.kind()), 93);
    EXPECT_NE(std::string(error.what()).find("4 steps in a row"), std::string::npos);
  }
  const auto skipped = events<telemetry::NonFinite>();
  ASSERT_EQ(skipped.size(), 4U);
  EXPECT_EQ(skipped.back().in_a_row, 4);
  EXPECT_FALSE(skipped.back().tensor.empty());
}

TEST_F(SessionTest, KeepsTheBestAndTheLastCheckpoints) {
  recipe_.checkpoint.keep_last = 1;
  recipe_.train.steps = 40;
  recipe_.evaluate.every_steps = 5;
  run("run");
  const auto kept = checkpoint::list_checkpoints(files_, "run/checkpoints");
  double best = std::numeric_limits<double>::infinity();
  int64_t best_step = 0;
  for (const auto& evaluation : events<telemetry::EvaluationDone>()) {
    if (evaluation.loss < best) {
      best = evaluation.loss;
      best_step = evaluation.step;
    }
  }
  ASSERT_FALSE(kept.empty());
  EXPECT_LE(kept.size(), 2U);
  EXPECT_EQ(kept.back().step, 40);
  EXPECT_EQ(kept.front().step, best_step);
  EXPECT_EQ(load_run(files_, "run", true).step, best_step);
}

TEST_F(SessionTest, ReplacedCorporaAreRefusedOnResume) {
  const auto error_of_run = [&] {
    try {
      run("run");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const auto describe = [&](const char* hash) {
    write_file_atomic(files_, "train.meta.json", fmt::format(R"({{"bin_xxh3": "{}"}})", hash));
  };
  run("run", 5);
  write_corpus(files_, "train", 2100);
  const std::string message = error_of_run();
  EXPECT_NE(message.find("'train' is not the corpus"), std::string::npos) << message;
  EXPECT_NE(message.find("2000 tokens in 1 documents"), std::string::npos) << message;
  EXPECT_NE(message.find("2100 tokens"), std::string::npos) << message;
  write_corpus(files_, "train", 2000);
  describe("0123456789abcdef");  // the checkpoint has no hash to compare with
  run("run", 10);
  describe("fedcba9876543210");
  EXPECT_NE(error_of_run().find("XXH3 fedcba9876543210"), std::string::npos);
  describe("0123456789abcdef");
  EXPECT_EQ(error_of_run(), "no error");
}

TEST_F(SessionTest, CorpusShorterThanOneSequenceIsAnError) {
  write_corpus(files_, "short", 7);
  recipe_.data.train = "short";
  try {
    run("run");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("data.train"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tutti::train
