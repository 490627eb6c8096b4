// Sessions of runs whose home is in an object store: whose it is, and where the checkpoints are.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "tutti/object/testing/fake_store.h"
#include "tutti/telemetry/sinks/jsonl.h"
#include "tutti/train/session/home_owner.h"
#include "tutti/train/testing/session_fixture.h"

namespace tutti::train {
namespace {

class SessionStoreTest : public testing::SessionTest {
 protected:
  SessionStoreTest() { recipe_.checkpoint.store = "s3://bucket/runs"; }

  std::unique_ptr<object::RoutedFileSystem> over(FileSystem& machine) {
    return object::files_over(store_, machine, 2);
  }
  Summary session(FileSystem& machine, const std::string& folder, int64_t stop_after_step,
                  bool force = false) {
    events_.clear();
    telemetry::Telemetry telemetry;
    telemetry.add(std::make_unique<testing::Collector>(events_));
    machine.create_directories(folder);
    telemetry.add(std::make_unique<telemetry::JsonLinesSink>(machine, events_path(folder)));
    SessionOptions options;
    options.run_folder = folder;
    options.measure_peak = false;
    options.stop_after_step = stop_after_step;
    options.force_resume = force;
    const auto files = over(machine);
    return run_session(recipe_, options, *files, telemetry);
  }
  Error error_of_session(const std::string& folder) {
    try {
      session(files_, folder, 10);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error";
    return {ErrorKind::io, ""};
  }
  static bool says(const Error& error, const std::string& part) {
    return std::string(error.what()).find(part) != std::string::npos;
  }
  int64_t first_step() { return events<telemetry::RunStarted>().at(0).first_step; }

  std::shared_ptr<object::FakeStore> store_ = std::make_shared<object::FakeStore>();
};

TEST_F(SessionStoreTest, AnotherRunOfTheSameNameDoesNotContinueThisOne) {
  session(files_, "a/demo", 5);
  const Error refused = error_of_session("b/demo");
  EXPECT_EQ(refused.kind(), ErrorKind::usage);
  EXPECT_TRUE(says(refused, "'s3://bucket/runs/demo' belongs to the run of './a/demo'"))
      << refused.what();
  EXPECT_TRUE(says(refused, "--force-resume")) << refused.what();
  session(files_, "a/demo/", 10);
  EXPECT_EQ(first_step(), 5);
  // The same path on another machine is the same run.
  MemoryFileSystem machine;
  testing::write_corpus(machine, "train", 2000);
  testing::write_corpus(machine, "validation", 150);
  session(machine, "a/demo", 15);
  EXPECT_EQ(first_step(), 10);
  // And another path, where that is asked for; then the folder's own record says whose it is.
  session(files_, "b/demo", 20, true);
  EXPECT_EQ(first_step(), 15);
  session(files_, "a/demo", 25);
  EXPECT_EQ(first_step(), 20);
}

TEST_F(SessionStoreTest, AHomeIsClaimedBeforeTheFirstCheckpoint) {
  const auto files = over(files_);
  const std::string home = "s3://bucket/runs/demo";
  const HomeOwner unowned = read_owner(*files, home);
  EXPECT_EQ(unowned.run_id, "");
  claim_home(*files, unowned, home, "a/demo", "00000000000000aa");
  try {
    claim_home(*files, unowned, home, "b/demo", "00000000000000bb");  // which saw no owner either
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer) << error.what();
  }
  EXPECT_TRUE(says(error_of_session("b/demo"), "belongs to the run of './a/demo'"));
  session(files_, "a/demo", 5);
  EXPECT_EQ(first_step(), 0);
  EXPECT_EQ(events<telemetry::RunStarted>()[0].details.at("run_id"), "00000000000000aa");
}

// Of another store, or of one behind a gateway that drops headers.
TEST_F(SessionStoreTest, AStoreThatIgnoresConditionsIsRefusedBeforeTheFirstStep) {
  store_->ignore_conditions();
  const Error error = error_of_session("a/demo");
  EXPECT_EQ(error.kind(), ErrorKind::unsupported);
  EXPECT_TRUE(says(error, "although the request has If-None-Match")) << error.what();
  EXPECT_TRUE(losses().empty());
}

TEST_F(SessionStoreTest, WhereTheCheckpointsAreIsSaidWhenTheStoreChanges) {
  session(files_, "demo", 5);
  for (const char* other : {"", "s3://bucket/elsewhere"}) {
    recipe_.checkpoint.store = other;
    const Error error = error_of_session("demo");
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_TRUE(says(error, "up to step 5, are in 's3://bucket/runs/demo/checkpoints'"))
        << error.what();
  }
  recipe_.checkpoint.store = "s3://bucket/runs";
  session(files_, "demo", 10);
  EXPECT_EQ(first_step(), 5);
}

// Each shard, here of one chunk, is fetched once, though it is looked at to find the run.
TEST_F(SessionStoreTest, ReadingARunFetchesNothingTwice) {
  session(files_, "demo", 5);
  const auto files = over(files_);
  for (const char* run :
       {"demo", "s3://bucket/runs/demo", "s3://bucket/runs/demo/checkpoints/step-00000005"}) {
    store_->clear_faults();
    EXPECT_EQ(load_run(*files, run, false).step, 5);
    std::map<std::string, int> times;
    for (const std::string& request : store_->log()) {
      const bool is_read = request.rfind("GET ", 0) == 0;
      if (is_read && request.find("shard-") != std::string::npos) ++times[request];
    }
    EXPECT_FALSE(times.empty());
    for (const auto& [request, count] : times) EXPECT_EQ(count, 1) << request;
  }
}

}  // namespace
}  // namespace tutti::train
