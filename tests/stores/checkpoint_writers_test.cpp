// Several processes at the checkpoints of one run, each of which takes the others for dead, at
// every request that one of them makes: what has a manifest is whole, what was reported as saved is
// there, and what a save leaves does not grow.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/stores/checkpoint_store_fixture.h"
#include "tutti/checkpoint/store/joint_save.h"
#include "tutti/checkpoint/store/retention.h"
#include "tutti/checkpoint/store/shard_writer.h"

namespace tutti::checkpoint {
namespace {

using object::Failure;
using object::FakeStore;

class CheckpointWritersTest : public CheckpointStore {
 protected:
  // A save in two steps, between which others do something.
  struct Begun {
    FolderBefore before;
    Manifest manifest;
  };
  static Begun begin(FileSystem& files, int64_t step) {
    const FakeRun run(step);
    Begun begun;
    std::vector<std::string> written;
    begin_folder(files, step_path(step), begun.before);
    begun.manifest = write_shards(files, step_path(step), run.tensors, run.state, small_pieces(),
                                  nullptr, "", written);
    return begun;
  }
  // Whether it is the checkpoint now.
  static bool commit(FileSystem& files, int64_t step, Begun& begun) {
    bool committed = false;
    try {
      commit_manifest(files, step_path(step), begun.manifest, nullptr, begun.before, committed);
      remove_replaced(files, step_path(step), begun.manifest, begun.before);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::peer) << error.what();
      return false;
    }
  }
  // Calls check(at) after `first` has run with `other` before its request `at`, for every one.
  // Returns how many there are.
  int64_t at_every_request(const std::function<void(FileSystem&)>& prepare,
                           const std::function<void(FileSystem&)>& first,
                           const std::function<void(FileSystem&)>& other,
                           const std::function<void(FileSystem&, bool failed)>& check) {
    for (int64_t at = 0;; ++at) {
      store_ = std::make_shared<FakeStore>();
      const auto second = files(1);
      prepare(*second);
      const auto way = std::make_shared<Interloper>(store_, at, [&] { other(*second); });
      bool failed = false;
      try {
        first(*over(way, 1));
      } catch (const Error& error) {
        failed = true;
        EXPECT_TRUE(error.kind() == ErrorKind::peer || error.kind() == ErrorKind::not_found)
            << error.what();
      }
      if (!way->came()) return at;
      SCOPED_TRACE(testing::Message() << "before request " << at);
      check(*second, failed);
      if (HasFatalFailure()) return at;
    }
  }
  // The manifest of a step, with a bit that flipped.
  void damage(int64_t step) {
    const std::string path = step_path(step).substr(5) + "/" + kManifestName;
    std::string bytes = store_->objects().at(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
    store_->set_object(path, bytes);
  }
};

TEST_F(CheckpointWritersTest, ASecondWriterOfTheSameStepDoesNotMix) {
  for (const bool replaces : {false, true}) {
    int64_t refused = 0;
    const int64_t requests = at_every_request(
        [&](FileSystem& disk) {
          save(disk, 1);
          if (replaces) save(disk, 2);
        },
        [](FileSystem& disk) { save(disk, 2); },
        [](FileSystem& disk) {
          remove_unfinished(disk, kFolder);
          save(disk, 2);
        },
        [&](FileSystem& disk, bool failed) {
          refused += failed ? 1 : 0;
          ASSERT_EQ(newest_step(disk, kFolder), 2);
          ASSERT_TRUE(is_whole(disk, 2));
        });
    EXPECT_GT(requests, 15);
    EXPECT_GT(refused, 5);
  }
}

// One began earlier and commits later than the other, or between its last requests.
TEST_F(CheckpointWritersTest, ASaveThatWasBegunBeforeDoesNotMix) {
  for (const bool replaces : {false, true}) {
    Begun begun;
    bool committed = false;
    at_every_request(
        [&](FileSystem& disk) {
          save(disk, replaces ? 2 : 1);
          begun = begin(disk, 2);
          committed = false;
        },
        [](FileSystem& disk) { save(disk, 2); },
        [&](FileSystem& disk) { committed = commit(disk, 2, begun); },
        [&](FileSystem& disk, bool failed) {
          ASSERT_TRUE(committed || !failed);
          ASSERT_EQ(newest_step(disk, kFolder), 2);
        });
  }
}

TEST_F(CheckpointWritersTest, ASaveThatBeginsMeanwhileKeepsItsShards) {
  for (const bool replaces : {false, true}) {
    Begun begun;
    int64_t later = 0;
    at_every_request([&](FileSystem& disk) { save(disk, replaces ? 2 : 1); },
                     [](FileSystem& disk) { save(disk, 2); },
                     [&](FileSystem& disk) { begun = begin(disk, 2); },
                     [&](FileSystem& disk, bool failed) {
                       ASSERT_FALSE(failed);
                       if (commit(disk, 2, begun)) ++later;
                       ASSERT_EQ(newest_step(disk, kFolder), 2);
                     });
    EXPECT_GT(later, 0);  // begun after the commit, while the first one cleaned up
  }
}

// What is in the place of a manifest is replaced by the commit, never removed before it.
TEST_F(CheckpointWritersTest, AProcessThatDiesTakesNoOthersManifest) {
  for (const bool damaged : {false, true}) {
    for (int64_t dies_at = 1; dies_at < 12; ++dies_at) {
      for (int64_t at = 0; at < dies_at; ++at) {
        store_ = std::make_shared<FakeStore>();
        const auto second = files(1);
        save(*second, 1);
        if (damaged) {
          save(*second, 2);
          damage(2);
        }
        const auto way = std::make_shared<Interloper>(
            store_, at, [&] { save(*second, 2); }, dies_at);
        error_of([&] { save(*over(way, 1), 2); });
        ASSERT_EQ(newest_step(*second, kFolder), 2) << damaged << " " << at << " " << dies_at;
      }
    }
  }
}

TEST_F(CheckpointWritersTest, ADamagedManifestIsReplaced) {
  const auto disk = files(1);
  save(*disk, 2);
  damage(2);
  EXPECT_EQ(newest_step(*disk, kFolder), -1);
  save(*disk, 2);
  EXPECT_EQ(newest_step(*disk, kFolder), 2);
  EXPECT_EQ(leftovers(*disk), 0);
}

// Step 2 looks like what a dead process left, until another one saves it.
TEST_F(CheckpointWritersTest, ARemovalSparesWhatIsCommittedMeanwhile) {
  const std::vector<std::function<void(FileSystem&)>> removals = {
      [](FileSystem& disk) { remove_unfinished(disk, kFolder); },
      [](FileSystem& disk) {
        apply_retention(disk, kFolder, {.keep_last = 5, .keep_best = false}, 3);
      }};
  for (const auto& removal : removals) {
    const int64_t requests = at_every_request(
        [](FileSystem& disk) {
          save(disk, 1);
          save(disk, 2);
          disk.remove_file(join_path(step_path(2), kManifestName));
        },
        removal, [](FileSystem& disk) { save(disk, 2); },
        [](FileSystem& disk, bool failed) {
          ASSERT_FALSE(failed);
          ASSERT_EQ(newest_step(disk, kFolder), 2);
        });
    EXPECT_GT(requests, 8);
  }
}

// A process that lives and was taken for dead: its save is whole, or fails.
TEST_F(CheckpointWritersTest, ASaveWhoseShardsAreRemovedFails) {
  int64_t failures = 0;
  at_every_request([](FileSystem& disk) { save(disk, 1); }, [](FileSystem& disk) { save(disk, 2); },
                   [](FileSystem& disk) { remove_unfinished(disk, kFolder); },
                   [&](FileSystem& disk, bool failed) {
                     failures += failed ? 1 : 0;
                     ASSERT_EQ(newest_step(disk, kFolder), failed ? 1 : 2);
                   });
  EXPECT_GT(failures, 5);
}

// Retention of the first process, while the second replaces what is to go. Only between the look at
// the manifest and its removal, which are two requests, is the new one removed too.
TEST_F(CheckpointWritersTest, RetentionSparesWhatWasReplacedMeanwhile) {
  int64_t lost = 0;
  const int64_t requests = at_every_request(
      [](FileSystem& disk) {
        for (const int64_t step : {1, 2}) save(disk, step);
      },
      [](FileSystem& disk) {
        apply_retention(disk, kFolder, {.keep_last = 1, .keep_best = false}, 2);
      },
      [](FileSystem& disk) { save(disk, 1); },
      [&](FileSystem& disk, bool) {
        for (const CheckpointInfo& info : list_checkpoints(disk, kFolder)) {
          ASSERT_TRUE(info.valid || info.is_unfinished) << info.problem;
        }
        ASSERT_EQ(newest_step(disk, kFolder), 2);
        lost += list_checkpoints(disk, kFolder).front().valid ? 0 : 1;
      });
  EXPECT_GT(requests, 10);
  EXPECT_LE(lost, 1);
}

// Whatever the answer, five saves that fail do not leave five checkpoints' worth of bytes.
TEST_F(CheckpointWritersTest, ManifestsThatAreRefusedDoNotFillTheStore) {
  for (const auto& [status, code] :
       std::vector<std::pair<int, std::string>>{{501, "NotImplemented"},
                                                {403, "AccessDenied"},
                                                {403, "QuotaExceeded"},
                                                {500, "Error"}}) {
    store_ = std::make_shared<FakeStore>();
    const auto disk = over(std::make_shared<RefusesConditions>(store_, status, code), 2);
    WriterOptions options;
    options.write = small_pieces();
    Writer writer(*disk, kFolder, options);
    for (int64_t step = 1; step <= 5; ++step) {
      const FakeRun run(step);
      writer.save(run.tensors, run.state, IfBusy::wait);
      const std::optional<SaveResult> result = writer.poll();
      ASSERT_TRUE(result && result->error) << status;
      for (const auto& [path, bytes] : store_->objects()) {
        // It may have been taken: what it names stays until the next save.
        EXPECT_TRUE(status == 500 && path.find(step_folder_name(step)) != std::string::npos)
            << path;
      }
    }
    EXPECT_EQ(store_->objects().empty(), status != 500);
    EXPECT_EQ(store_->open_uploads(), 0);
  }
}

TEST_F(CheckpointWritersTest, RanksWhoseManifestIsRefusedLeaveTheReason) {
  const auto disk = over(std::make_shared<RefusesConditions>(store_, 403, "AccessDenied"), 2);
  const FakeRun whole(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const std::vector<TensorSource> mine(whole.tensors.begin() + 3 * rank,
                                           whole.tensors.begin() + 3 + 4 * rank);
      const JointSave joint = {.rank = rank, .ranks = 2, .attempt = "a", .timeout_seconds = 60};
      try {
        write_joint_checkpoint(*disk, kFolder, mine, whole.state, small_pieces(), joint);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::permission) << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(store_->objects().size(), 1U);
  EXPECT_NE(store_->objects().begin()->first.find("failed-a-00000"), std::string::npos);
}

TEST_F(CheckpointWritersTest, WhereUploadsCannotBeListedTheRestIsRemoved) {
  class Refuses final : public object::Transport {
   public:
    explicit Refuses(std::shared_ptr<FakeStore> store) : store_(std::move(store)) {}
    object::Response send(const object::Request& request) override {
      for (const auto& [key, value] : request.query) {
        if (key != "uploads" || request.method != "GET") continue;
        object::Response answer;
        answer.status = 403;
        answer.body = "<Error><Code>AccessDenied</Code><Message>text</Message></Error>";
        return answer;
      }
      return store_->send(request);
    }

   private:
    std::shared_ptr<FakeStore> store_;
  };
  const auto disk = over(std::make_shared<Refuses>(store_), 1);
  WriterOptions options;
  options.write = small_pieces();
  options.retention = {.keep_last = 2, .keep_best = false};
  Writer writer(*disk, kFolder, options);
  for (int64_t step = 1; step <= 5; ++step) {
    const FakeRun run(step);
    writer.save(run.tensors, run.state, IfBusy::wait);
    const std::optional<SaveResult> result = writer.poll();
    ASSERT_TRUE(result && !result->error && !result->retention_error);
  }
  EXPECT_EQ(list_checkpoints(*disk, kFolder).size(), 2U);
  disk->remove_file(join_path(step_path(5), kManifestName));
  EXPECT_TRUE(says(error_of([&] { remove_unfinished(*disk, kFolder); }), ErrorKind::permission,
                   "list uploads"));
  EXPECT_EQ(list_checkpoints(*disk, kFolder).size(), 1U);
}

// A request that fails does not make an older checkpoint the newest.
TEST_F(CheckpointWritersTest, WhatCannotBeReadIsNotSkipped) {
  const auto disk = files(1);
  for (const int64_t step : {1, 2}) save(*disk, step);
  store_->clear_faults();
  EXPECT_EQ(newest_step(*disk, kFolder), 2);
  const int64_t requests = store_->requests();
  for (int64_t k = 0; k < requests; ++k) {
    store_->fail_request(k, Failure::refused, false);
    try {
      EXPECT_EQ(newest_step(*disk, kFolder), 2) << k;
      ADD_FAILURE() << k;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::io) << error.what();
    }
  }
}

}  // namespace
}  // namespace tutti::checkpoint
