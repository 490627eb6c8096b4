#include "tutti/checkpoint/store/joint_save.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <optional>
#include <thread>

#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"

namespace tutti::checkpoint {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kMatrixRows = 12;
constexpr int64_t kMatrixColumns = 5;

// A matrix of increasing numbers of which rank r holds the rows r, r + 3, ...: several slices; and
// a vector that rank 1 alone holds.
struct RankTensors {
  explicit RankTensors(int rank, float first) : values(kMatrixRows * kMatrixColumns), vector(7) {
    std::iota(values.begin(), values.end(), first);
    std::iota(vector.begin(), vector.end(), first);
    for (int64_t row = rank; row < kMatrixRows; row += kRanks) {
      sources.push_back({"matrix",
                         DType::f32,
                         {1, kMatrixColumns},
                         values.data() + row * kMatrixColumns,
                         {kMatrixRows, kMatrixColumns},
                         {row, 0}});
    }
    if (rank == 1) sources.push_back({"vector", DType::f32, {7}, vector.data(), {}, {}});
  }
  std::vector<float> values, vector;
  std::vector<TensorSource> sources;
};

JointSave joint_of(int rank, const std::string& attempt) { return {rank, kRanks, attempt, 20}; }

// Runs every rank on a thread of its own; what each of them threw.
std::vector<std::optional<Error>> on_ranks(const std::function<void(int rank)>& run) {
  std::vector<std::optional<Error>> errors(kRanks);
  std::vector<std::thread> threads;
  threads.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run(rank);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void save(FileSystem& files, int rank, const std::string& attempt, float first) {
  const RankTensors tensors(rank, first);
  write_joint_checkpoint(files, "run", tensors.sources, FakeRun(4).state, {},
                         joint_of(rank, attempt));
}

void expect_saved(FileSystem& files, float first) {
  Reader reader(files, "run/step-00000004");
  reader.verify_contents();
  std::vector<float> matrix(kMatrixRows * kMatrixColumns), vector(7);
  reader.load("matrix", DType::f32, {kMatrixRows, kMatrixColumns}, matrix.data());
  reader.load("vector", DType::f32, {7}, vector.data());
  const RankTensors expected(0, first);
  EXPECT_EQ(matrix, expected.values);
  EXPECT_EQ(vector, expected.vector);
  // Nothing is left but what the manifest names.
  EXPECT_EQ(files.list("run/step-00000004").size(), reader.manifest().files.size() + 1);
}

TEST(JointSave, SlicesOfAllRanksMakeOneCheckpoint) {
  MemoryFileSystem files;
  for (const auto& error : on_ranks([&](int rank) { save(files, rank, "a.0", 0); })) {
    EXPECT_FALSE(error) << error->what();
  }
  expect_saved(files, 0);
}

TEST(JointSave, ReplacesACheckpointOfTheSameStepAtItsCommit) {
  MemoryFileSystem files;
  on_ranks([&](int rank) { save(files, rank, "a.0", 0); });
  on_ranks([&](int rank) { save(files, rank, "a.1", 100); });
  expect_saved(files, 100);
}

TEST(JointSave, FilesOfEarlierAttemptsAreIgnored) {
  MemoryFileSystem files;
  // Rank 0 is missing at first: the others leave nothing that a later attempt would take.
  JointSave impatient = joint_of(1, "a.0");
  impatient.timeout_seconds = 0.05;
  const RankTensors early(1, 500);
  EXPECT_THROW(write_joint_checkpoint(files, "run", early.sources, FakeRun(4).state, {}, impatient),
               Error);
  for (const auto& error : on_ranks([&](int rank) { save(files, rank, "a.1", 7); })) {
    EXPECT_FALSE(error) << error->what();
  }
  expect_saved(files, 7);
}

TEST(JointSave, AMissingRankIsNamed) {
  MemoryFileSystem files;
  // The first that rank 0 waits for: rank 2 may or may not be in time.
  const auto errors = on_ranks([&](int rank) {
    if (rank == 1) return;
    const RankTensors tensors(rank, 0);
    JointSave joint = joint_of(rank, "a.0");
    joint.timeout_seconds = 0.2;
    write_joint_checkpoint(files, "run", tensors.sources, FakeRun(4).state, {}, joint);
  });
  ASSERT_TRUE(errors[0]);
  EXPECT_TRUE(says(*errors[0], ErrorKind::io, "rank 1 did not come")) << errors[0]->what();
  EXPECT_FALSE(files.exists("run/step-00000004/manifest.json"));
}

TEST(JointSave, UrgentSavesDoNotWaitForMissingRanks) {
  MemoryFileSystem files;
  const auto errors = on_ranks([&](int rank) {
    if (rank == 1) return;
    WriterOptions options;
    options.joint = joint_of(rank, "a");
    options.joint.timeout_seconds = 600;
    const RankTensors tensors(rank, 0);
    options.snapshot_bytes = tensor_bytes(tensors.sources);
    Writer writer(files, "run", options);
    writer.save(tensors.sources, FakeRun(4).state, IfBusy::wait);
    if (rank == 0) writer.hurry(0.05);
    for (const SaveResult& result : writer.wait()) {  // rank 2 has handed over its part, or fails
      if (result.error) throw Error(*result.error);
    }
  });
  ASSERT_TRUE(errors[0]);
  EXPECT_TRUE(says(*errors[0], ErrorKind::io, "the run failed before rank 1 came"))
      << errors[0]->what();
  EXPECT_FALSE(files.exists("run/step-00000004/manifest.json"));
}

// Such as a replica of what another rank saves: rank 0 may take its time.
TEST(JointSave, IdleWritersDoNotBlockTheirRank) {
  MemoryFileSystem files;
  WriterOptions options;
  options.joint = joint_of(1, "a");
  Writer writer(files, "run", options);
  writer.save({}, FakeRun(4).state, IfBusy::wait);
  EXPECT_TRUE(writer.busy());
  writer.hurry(0);
  const std::vector<SaveResult> results = writer.wait();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_TRUE(results[0].error);
}

TEST(JointSave, AFailingRankIsNamedWithItsReasonAndTheOldCheckpointStays) {
  MemoryFileSystem files;
  on_ranks([&](int rank) { save(files, rank, "a.0", 0); });
  const auto errors = on_ranks([&](int rank) {
    if (rank != 1) return save(files, rank, "a.1", 100);
    RankTensors tensors(rank, 100);
    tensors.sources.back().stream = [](const AppendBytes&) {
      fail(ErrorKind::io, "the disk of rank 1 is full");
    };
    write_joint_checkpoint(files, "run", tensors.sources, FakeRun(4).state, {}, joint_of(1, "a.1"));
  });
  ASSERT_TRUE(errors[0]);
  EXPECT_TRUE(says(*errors[0], ErrorKind::io, "rank 1 could not save its part"))
      << errors[0]->what();
  EXPECT_TRUE(says(*errors[0], ErrorKind::io, "the disk of rank 1 is full"));
  Reader reader(files, "run/step-00000004");
  std::vector<float> vector(7);
  reader.load("vector", DType::f32, {7}, vector.data());
  EXPECT_EQ(vector, RankTensors(0, 0).vector);
}

// What a save of one rank says, while no other comes. `fault`, if any, ends it on the way.
std::string save_alone(MemoryFileSystem& files, int rank, const std::function<void()>& fault) {
  RankTensors tensors(rank, 0);
  if (fault) tensors.sources.back().stream = [&](const AppendBytes&) { fault(); };
  JointSave joint = joint_of(rank, "a.0");
  joint.timeout_seconds = 600;
  try {
    write_joint_checkpoint(files, "run", tensors.sources, FakeRun(4).state, {}, joint);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JointSave, LateRanksLearnThatRankZeroFailed) {
  MemoryFileSystem files;
  const auto fault = [] { fail(ErrorKind::io, "the disk of rank 0 is full"); };
  EXPECT_EQ(save_alone(files, 0, fault), "the disk of rank 0 is full");
  EXPECT_EQ(save_alone(files, 1, {}),
            "run/step-00000004: rank 0 could not save its part: the disk of rank 0 is full");
}

TEST(JointSave, FullDisksStillReportTheFailedRank) {
  MemoryFileSystem files;
  const auto fault = [&] {
    files.set_capacity(0);
    fail(ErrorKind::no_space, "the disk of rank 0 is full");
  };
  EXPECT_EQ(save_alone(files, 0, fault), "the disk of rank 0 is full");
  EXPECT_EQ(save_alone(files, 1, {}),
            "run/step-00000004: rank 0 could not save its part: its disk did not take the reason");
}

// The others learn at once what rank 0 found in the checkpoint folder.
TEST(JointSave, UnreplaceableFilesAreReportedAndKept) {
  MemoryFileSystem files;
  files.create_directories("run/step-00000004/manifest.json");  // instead of a file
  const auto errors = on_ranks([&](int rank) { save(files, rank, "a.0", 0); });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_TRUE(says(*error, ErrorKind::io, "Is a directory")) << error->what();
  }
  EXPECT_TRUE(files.exists("run/step-00000004/manifest.json"));
}

// Once its part has its name, rank 0 may commit what it names. Rank 1 alone, failing everywhere.
TEST(JointSave, FailuresNeverRemoveFilesOfAPart) {
  const std::string folder = "run/step-00000004";
  const std::string part = join_path(folder, "part-a.0-00001.json");
  int64_t failures = 0;
  int64_t parts = 0;  // that are there all the same
  for (bool failed = true; failed; ++failures) {
    MemoryFileSystem files;
    files.create_directories(folder);
    files.create(join_path(folder, "saving-a.0"));
    files.start_record();
    files.fail_operation(failures, ErrorKind::io, false);
    failed = false;
    try {
      save(files, 1, "a.0", 0);
    } catch (const Error&) {
      failed = true;
    }
    if (!failed || !files.exists(part)) continue;
    ++parts;
    for (const FileRecord& file :
         parse_manifest(read_file(files, part), part, Coverage::part).files) {
      EXPECT_TRUE(files.exists(join_path(folder, file.name))) << file.name;
    }
  }
  EXPECT_GT(failures, 10);
  EXPECT_EQ(parts, 1);  // the last operation, which makes its name durable
}

TEST(JointSave, SlicesWithGapsAreNotCommitted) {
  MemoryFileSystem files;
  const auto errors = on_ranks([&](int rank) {
    RankTensors tensors(rank, 0);
    if (rank == 2) tensors.sources.pop_back();
    write_joint_checkpoint(files, "run", tensors.sources, FakeRun(4).state, {},
                           joint_of(rank, "a.0"));
  });
  ASSERT_TRUE(errors[0]);
  EXPECT_TRUE(says(*errors[0], ErrorKind::corrupt, "hold 55 of its 60 elements"))
      << errors[0]->what();
  EXPECT_FALSE(files.exists("run/step-00000004/manifest.json"));
}

TEST(JointSave, WritersOfAllRanksSaveBesideTraining) {
  MemoryFileSystem files;
  const auto errors = on_ranks([&](int rank) {
    WriterOptions options;
    options.joint = joint_of(rank, "b");
    options.retention.keep_last = 1;
    RankTensors tensors(rank, 0);
    options.snapshot_bytes = tensor_bytes(tensors.sources);
    Writer writer(files, "run", options);
    for (int64_t step = 1; step <= 4; ++step) {
      RankTensors now(rank, static_cast<float>(step));
      EXPECT_TRUE(writer.save(now.sources, FakeRun(step).state, IfBusy::wait));
    }
    for (const SaveResult& result : writer.wait()) {
      EXPECT_FALSE(result.error) << result.error->what();
    }
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
  expect_saved(files, 4);
}

}  // namespace
}  // namespace tutti::checkpoint
