// Run folders whose checkpoints, recipe and events do not match.
#include "tutti/train/session/run_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/telemetry/sinks/jsonl.h"
#include "tutti/train/session/resume.h"
#include "tutti/train/step/initial_weights.h"
#include "tutti/train/testing/session_fixture.h"

namespace tutti::train {
namespace {

using testing::Collector;

class HistoryTest : public testing::SessionTest {
 protected:
  // A session whose events are written down.
  Summary record(const std::string& folder, int64_t stop_after_step = 0, bool force = false) {
    events_.clear();
    telemetry::Telemetry telemetry;
    files_.create_directories(folder);
    telemetry.add(std::make_unique<telemetry::JsonLinesSink>(files_, events_path(folder)));
    telemetry.add(std::make_unique<Collector>(events_));
    SessionOptions options;
    options.run_folder = folder;
    options.measure_peak = false;
    options.stop_after_step = stop_after_step;
    options.force_resume = force;
    return run_session(recipe_, options, files_, telemetry);
  }

  std::string refusal(const std::string& folder) {
    const std::string before = read_file(files_, recipe_path(folder));
    try {
      record(folder);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("--force-resume"), std::string::npos);
      EXPECT_TRUE(losses().empty());
      EXPECT_EQ(read_file(files_, recipe_path(folder)), before);
      return error.what();
    }
    return "no error";
  }

  bool warned(const std::string& text) const {
    const auto messages = events<telemetry::Message>();
    return std::any_of(messages.begin(), messages.end(), [&](const telemetry::Message& message) {
      return message.text.find(text) != std::string::npos;
    });
  }

  void copy_checkpoints(const std::string& from, const std::string& to) {
    for (const auto& info : checkpoint::list_checkpoints(files_, checkpoints_path(from))) {
      const std::string step = join_path(checkpoints_path(to), base_name(info.path));
      files_.create_directories(step);
      for (const DirectoryEntry& entry : files_.list(info.path)) {
        write_file_atomic(files_, join_path(step, entry.name),
                          read_file(files_, join_path(info.path, entry.name)));
      }
    }
  }
};

TEST_F(HistoryTest, TellsTheRunAndItsCheckpoints) {
  EXPECT_TRUE(read_history(files_, "run").ids.empty());
  record("run", 7);
  const RunHistory first = read_history(files_, "run");
  EXPECT_EQ(first.ids.size(), 1U);
  EXPECT_EQ(first.saved_steps, (std::set<int64_t>{5, 7}));
  record("run");
  const RunHistory second = read_history(files_, "run");
  EXPECT_EQ(second.ids, first.ids);
  for (const int64_t step : {5, 7, 20}) EXPECT_EQ(second.saved_steps.count(step), 1U) << step;
  record("other", 5);
  EXPECT_NE(read_history(files_, "other").ids, first.ids);
}

TEST_F(HistoryTest, CheckpointsThatAreGoneAreMissed) {
  record("run", 7);
  files_.remove_tree(checkpoints_path("run"));
  EXPECT_NE(refusal("run").find("step 7 was saved"), std::string::npos);
  files_.create_directories(checkpoints_path("run"));
  EXPECT_NE(refusal("run").find("no complete checkpoint"), std::string::npos);
  EXPECT_EQ(record("run", 3, true).steps, 3);
  EXPECT_TRUE(warned("step 7 was saved"));
  EXPECT_EQ(events<telemetry::StepDone>().front().step, 1);
  EXPECT_EQ(record("run", 6).steps, 6);  // that is the run now
  EXPECT_EQ(events<telemetry::StepDone>().front().step, 4);
}

TEST_F(HistoryTest, RunsWithoutCheckpointsRestart) {
  record("run", 2);
  files_.remove_tree(checkpoints_path("run"));
  const std::string path = events_path("run");
  const std::string text = read_file(files_, path);
  write_file_atomic(files_, path, text.substr(0, text.find(R"({"event":"checkpoint_saved")")));
  EXPECT_EQ(record("run").steps, 20);
  EXPECT_EQ(losses().size(), 20U);
}

TEST_F(HistoryTest, ACheckpointOfAnotherRunIsRefused) {
  record("run", 7);
  record("other", 12);
  copy_checkpoints("other", "run");
  const std::string message = refusal("run");
  EXPECT_NE(message.find("step-00000012"), std::string::npos) << message;
  EXPECT_NE(message.find("another run"), std::string::npos) << message;
  EXPECT_EQ(record("run", 14, true).steps, 14);
  EXPECT_TRUE(warned("another run"));
  EXPECT_EQ(events<telemetry::StepDone>().front().step, 13);
  EXPECT_EQ(record("run").steps, 20);  // its events record it now
  // A run folder is copied with its events.
  copy_checkpoints("other", "copy");
  write_file_atomic(files_, events_path("copy"), read_file(files_, events_path("other")));
  EXPECT_EQ(record("copy").steps, 20);
}

// Of a save, of any step; the run's own stay.
TEST_F(HistoryTest, ResumingRemovesLeftoversOfInterruptedSaves) {
  record("run", 7);
  for (const char* name : {"step-00000003", "step-00000099"}) {
    files_.create_directories(join_path(checkpoints_path("run"), name));
    files_.create(join_path(join_path(checkpoints_path("run"), name), "shard-00000-of-00001"));
  }
  EXPECT_EQ(record("run", 8).steps, 8);
  for (const auto& info : checkpoint::list_checkpoints(files_, checkpoints_path("run"))) {
    EXPECT_TRUE(info.valid) << info.path;
  }
}

TEST_F(HistoryTest, CheckpointsRecordTheirRecipe) {
  EXPECT_FALSE(saved_recipe(files_, "run"));
  record("run", 5);
  write_file_atomic(files_, recipe_path("run"), "damaged");
  const auto saved = saved_recipe(files_, "run");
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->yaml, spec::to_yaml(recipe_));
  EXPECT_NE(saved->path.find("step-00000005"), std::string::npos);
}

// The parameters of a checkpoint are evaluated, learned from and begun with only as the model that
// they were trained as.
TEST_F(HistoryTest, EditedRecipesAreNotTheCheckpoints) {
  record("run", 5);
  const std::string whole = read_file(files_, recipe_path("run"));
  const auto edit = [&](const std::string& key, const std::string& value) {
    std::string text = whole;
    const size_t begin = text.find("\n  " + key + ": ");
    ASSERT_NE(begin, std::string::npos) << key;
    text.replace(begin, text.find('\n', begin + 1) - begin, "\n  " + key + ": " + value);
    write_file_atomic(files_, recipe_path("run"), text);
  };
  const auto refusals = [&] {
    std::vector<std::string> messages;
    const std::vector<std::function<void()>> readers = {
        [&] { load_run(files_, "run", false); },
        [&] { find_run(files_, "run/checkpoints/step-00000005", false); },
        [&] { find_weights(files_, "run"); },
        [&] { find_weights(files_, "run/checkpoints/step-00000005/"); }};
    for (const auto& reader : readers) {
      try {
        reader();
        messages.emplace_back();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage);
        messages.emplace_back(error.what());
      }
    }
    return messages;
  };
  for (const auto& [key, value] : std::map<std::string, std::string>{
           {"norm_epsilon", "0.5"}, {"sequence", "4"}, {"packing", "documents"}}) {
    edit(key, value);
    for (const std::string& message : refusals()) {
      EXPECT_NE(message.find(key + " is " + value), std::string::npos) << message;
      EXPECT_NE(message.find("edited or damaged"), std::string::npos) << message;
    }
  }
  for (const auto& [key, value] : std::map<std::string, std::string>{
           {"learning_rate", "0.5"}, {"validation", "elsewhere"}, {"keep_last", "9"}}) {
    edit(key, value);
    for (const std::string& message : refusals()) EXPECT_EQ(message, "");
  }
}

}  // namespace
}  // namespace tutti::train
