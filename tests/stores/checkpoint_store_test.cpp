// Checkpoints in an object store: a failure at every single request of a save, in every way that a
// network can fail, leaves the old checkpoint or the new one, whole; never a mix, never nothing.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/stores/checkpoint_store_fixture.h"
#include "tutti/checkpoint/store/joint_save.h"
#include "tutti/checkpoint/store/retention.h"

namespace tutti::checkpoint {
namespace {

using object::Failure;
using object::FakeStore;

class CheckpointStoreTest : public CheckpointStore {};

TEST_F(CheckpointStoreTest, SavesReadsVerifiesAndReplaces) {
  const auto disk = files(1);
  for (const int64_t step : {1, 2}) save(*disk, step);
  EXPECT_EQ(newest_step(*disk, kFolder), 2);
  EXPECT_TRUE(is_whole(*disk, 1));
  EXPECT_EQ(list_checkpoints(*disk, kFolder).size(), 2U);
  EXPECT_EQ(leftovers(*disk), 0);
  save(*disk, 2);  // again, replacing the old one
  EXPECT_TRUE(is_whole(*disk, 2));
  EXPECT_EQ(leftovers(*disk), 0);
  EXPECT_EQ(store_->open_uploads(), 0);
}

TEST_F(CheckpointStoreTest, WithUploadsBesideEachOther) {
  const auto disk = files(1, 3);
  save(*disk, 1);
  EXPECT_EQ(newest_step(*disk, kFolder), 1);
}

TEST_F(CheckpointStoreTest, ABitThatFlipsIsFound) {
  const auto disk = files(1);
  save(*disk, 1);
  for (const auto& [path, bytes] : store_->objects()) {
    std::string damaged = bytes;
    damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 4);
    store_->set_object(path, damaged);
    EXPECT_FALSE(is_whole(*disk, 1)) << path;
    store_->set_object(path, bytes);
  }
  EXPECT_TRUE(is_whole(*disk, 1));
}

TEST_F(CheckpointStoreTest, OnlyWhatIsNeededIsRead) {
  const auto disk = files(1);
  save(*disk, 1);
  int64_t all = 0;
  for (const auto& [path, bytes] : store_->objects()) all += static_cast<int64_t>(bytes.size());
  const int64_t before = store_->bytes_read();
  Reader reader(*disk, step_path(1), serially);
  double wide = 0;
  reader.load("wide", DType::f64, {1}, &wide);
  const int64_t first = store_->bytes_read() - before;
  EXPECT_LT(first, all);
  reader.load("wide", DType::f64, {1}, &wide);
  EXPECT_EQ(store_->bytes_read() - before, first);  // it is there
  reader.release("matrix");
  EXPECT_EQ(difference_from_fake_run(reader), "");
}

TEST_F(CheckpointStoreTest, TheNewestIsFoundByWhatIsNeededOfIt) {
  const auto disk = files(1);
  for (const int64_t step : {1, 2}) save(*disk, step);
  const auto find = [&](const TensorFilter& needed) {
    return newest_valid(*disk, kFolder, {}, serially, needed);
  };
  const int64_t before = store_->bytes_read();
  find({});
  const int64_t all = store_->bytes_read() - before;
  std::optional<Reader> reader = find([](const std::string& name) { return name == "tokens"; });
  const int64_t found = store_->bytes_read();
  EXPECT_LT(found - before - all, all - 500);  // "matrix", of 672 bytes, is left out
  int32_t tokens[12];
  reader->load("tokens", DType::i32, {2, 3, 2}, tokens);
  EXPECT_EQ(store_->bytes_read(), found);
  // Damage in what is not needed does not count, damage in what is does.
  for (const auto& [path, bytes] : store_->objects()) {
    if (path.find("step-00000002/") == std::string::npos || path.find("shard") == path.npos)
      continue;
    const TensorRecord& matrix = reader->tensor("matrix");
    const Slice& slice = matrix.slices.front();
    const std::string& name = reader->manifest().files[static_cast<size_t>(slice.file)].name;
    if (path.find(name) == std::string::npos) continue;
    std::string damaged = bytes;
    const auto middle = static_cast<size_t>((slice.begin + slice.end) / 2);
    damaged[middle] = static_cast<char>(damaged[middle] ^ 4);
    store_->set_object(path, damaged);
  }
  const auto step = [&](const std::string& needed) {
    return find([&](const std::string& name) { return name == needed; })->manifest().state.step;
  };
  EXPECT_EQ(step("tokens"), 2);
  EXPECT_EQ(step("matrix"), 1);
}

// One failure that passes: with a second attempt the save does not notice.
TEST_F(CheckpointStoreTest, OneFailureAtEveryRequest) {
  int64_t requests = 0;
  {
    save(*files(1), 1);
    store_->clear_faults();
    save(*files(1), 2);
    requests = store_->requests();
  }
  ASSERT_GT(requests, 15);
  for (const Failure failure : {Failure::refused, Failure::answer_lost, Failure::unavailable}) {
    for (int64_t k = 0; k < requests; ++k) {
      store_ = std::make_shared<FakeStore>();
      const auto disk = files(2);
      save(*disk, 1);
      store_->fail_request(k, failure, false);
      save(*disk, 2);
      store_->clear_faults();
      ASSERT_EQ(newest_step(*disk, kFolder), 2) << k;
      ASSERT_TRUE(is_whole(*disk, 1) && is_whole(*disk, 2)) << k;
      // The second attempt to begin an upload leaves the first one open, until the next clean-up.
      apply_retention(*disk, kFolder, {.keep_last = 5, .keep_best = false}, 2);
      ASSERT_EQ(store_->open_uploads(), 0) << k;
      ASSERT_EQ(leftovers(*disk), 0) << k;
    }
  }
}

// The network, or the process, is gone from request k on. `scenario` saves step 2 beside step 1 or
// in its place; afterwards another process finds step 1 or step 2, whole, and cleans up.
void expect_old_or_new(
    const std::function<std::shared_ptr<FakeStore>(const std::function<void(FileSystem&)>& before)>&
        fresh,
    const std::function<std::unique_ptr<object::RoutedFileSystem>()>& connect,
    const std::function<void(FileSystem&)>& before,
    const std::function<void(FileSystem&)>& scenario,
    const std::function<void(FileSystem&, bool failed)>& check) {
  const auto first = fresh(before);
  first->clear_faults();
  scenario(*connect());
  const int64_t requests = first->requests();
  ASSERT_GT(requests, 5);
  for (const Failure failure : {Failure::refused, Failure::answer_lost, Failure::unavailable}) {
    for (int64_t k = 0; k <= requests; ++k) {
      const auto store = fresh(before);
      store->fail_request(k, failure, true);
      bool failed = false;
      try {
        scenario(*connect());
      } catch (const Error&) {
        failed = true;
      }
      store->clear_faults();
      SCOPED_TRACE(testing::Message() << "request " << k << " of " << requests);
      ASSERT_NO_FATAL_FAILURE(check(*connect(), failed));
    }
  }
}

TEST_F(CheckpointStoreTest, AProcessThatDiesAtEveryRequest) {
  const auto fresh = [&](const std::function<void(FileSystem&)>& before) {
    store_ = std::make_shared<FakeStore>();
    before(*files(1));
    return store_;
  };
  const auto connect = [&] { return files(2); };
  int64_t old_seen = 0;
  int64_t new_seen = 0;
  expect_old_or_new(
      fresh, connect, [](FileSystem& disk) { save(disk, 1); },
      [](FileSystem& disk) { save(disk, 2); },
      [&](FileSystem& disk, bool failed) {
        const int64_t step = newest_step(disk, kFolder);
        ASSERT_TRUE(step == 1 || step == 2) << step;
        ASSERT_TRUE(failed || step == 2);
        ++(step == 1 ? old_seen : new_seen);
        ASSERT_TRUE(is_whole(disk, step));
        // What has a manifest is whole, whatever was said of the save.
        for (const CheckpointInfo& info : list_checkpoints(disk, kFolder)) {
          ASSERT_TRUE(info.valid || info.is_unfinished) << info.problem;
        }
        // The next session removes what is left, and saves.
        remove_unfinished(disk, kFolder);
        ASSERT_EQ(store_->open_uploads(), 0);
        ASSERT_EQ(leftovers(disk), 0);
        save(disk, 3);
        ASSERT_EQ(newest_step(disk, kFolder), 3);
      });
  EXPECT_GT(old_seen, 0);
  EXPECT_GT(new_seen, 0);
}

TEST_F(CheckpointStoreTest, DyingWhileTheOnlyCheckpointIsReplaced) {
  const auto fresh = [&](const std::function<void(FileSystem&)>& before) {
    store_ = std::make_shared<FakeStore>();
    before(*files(1));
    return store_;
  };
  expect_old_or_new(
      fresh, [&] { return files(2); }, [](FileSystem& disk) { save(disk, 2); },
      [](FileSystem& disk) { save(disk, 2); },
      [&](FileSystem& disk, bool) {
        ASSERT_EQ(newest_step(disk, kFolder), 2);
        ASSERT_TRUE(is_whole(disk, 2));
        save(disk, 2);
        ASSERT_EQ(leftovers(disk), 0);
      });
}

TEST_F(CheckpointStoreTest, DyingWhileRetentionDeletes) {
  const auto fresh = [&](const std::function<void(FileSystem&)>& before) {
    store_ = std::make_shared<FakeStore>();
    before(*files(1));
    return store_;
  };
  expect_old_or_new(
      fresh, [&] { return files(2); },
      [](FileSystem& disk) {
        for (const int64_t step : {1, 2, 3}) save(disk, step);
      },
      [](FileSystem& disk) {
        apply_retention(disk, kFolder, {.keep_last = 1, .keep_best = false}, 3);
      },
      [&](FileSystem& disk, bool) {
        ASSERT_EQ(newest_step(disk, kFolder), 3);
        for (const CheckpointInfo& info : list_checkpoints(disk, kFolder)) {
          ASSERT_TRUE(info.valid || info.is_unfinished) << info.problem;
        }
        apply_retention(disk, kFolder, {.keep_last = 1, .keep_best = false}, 3);
        ASSERT_EQ(list_checkpoints(disk, kFolder).size(), 1U);
        ASSERT_EQ(leftovers(disk), 0);
      });
}

TEST_F(CheckpointStoreTest, AFullStoreIsSaidAndLeavesTheOldOne) {
  const auto disk = files(1);
  save(*disk, 1);
  store_->set_capacity(3000);
  int64_t saved = 1;
  const Error error = error_of([&] {
    for (int64_t step = 2; step < 9; ++step, ++saved) save(*disk, step);
  });
  EXPECT_EQ(error.kind(), ErrorKind::no_space);
  EXPECT_LT(saved, 8);
  EXPECT_EQ(newest_step(*disk, kFolder), saved);
  EXPECT_EQ(leftovers(*disk), 0);
  EXPECT_EQ(store_->open_uploads(), 0);
}

// All ranks of a run save one checkpoint together.
TEST_F(CheckpointStoreTest, RanksSaveTogether) {
  constexpr int kRanks = 3;
  const auto disk = files(2, 2);
  const FakeRun whole(4);
  std::vector<std::thread> threads;
  std::vector<std::string> problems(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<TensorSource> mine;
      for (size_t i = 0; i < whole.tensors.size(); ++i) {
        if (static_cast<int>(i) % kRanks == rank) mine.push_back(whole.tensors[i]);
      }
      JointSave joint;
      joint.rank = rank;
      joint.ranks = kRanks;
      joint.attempt = "a";
      joint.timeout_seconds = 60;
      try {
        write_joint_checkpoint(*disk, kFolder, mine, whole.state, small_pieces(), joint);
      } catch (const Error& error) {
        problems[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) EXPECT_EQ(problem, "");
  EXPECT_EQ(newest_step(*disk, kFolder), 4);
  EXPECT_TRUE(is_whole(*disk, 4));
  EXPECT_EQ(leftovers(*disk), 0);
}

}  // namespace
}  // namespace tutti::checkpoint
