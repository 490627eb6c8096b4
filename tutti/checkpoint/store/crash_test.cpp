// Losing power, filling the disk and failing at every single file operation of a save: what is
// loaded afterwards is the old state or the new one, never a mix, never nothing.
#include <gtest/gtest.h>

#include <functional>

#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/store/verify.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"

namespace tutti::checkpoint {
namespace {

constexpr uint64_t kSeeds = 60;

void save(FileSystem& files, int64_t step, const WriteOptions& options = small_pieces()) {
  const FakeRun run(step);
  write_checkpoint(files, "work/run", run.tensors, run.state, options);
}

// Power is lost after every operation of `scenario`, in kSeeds ways each. Whatever survives must
// load as `old_step` or `new_step`, as `new_step` once the scenario has finished, and a later save
// must work.
void expect_old_or_new(MemoryFileSystem& files, int64_t old_step, int64_t new_step,
                       const std::function<void()>& scenario) {
  files.start_record();
  scenario();
  const int64_t operations = files.operation_count();
  int64_t old_seen = 0;
  int64_t new_seen = 0;
  int64_t certain_from = operations;  // from here on only the new state was seen
  for (int64_t k = 0; k <= operations; ++k) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const auto after = files.crash_after(k, seed);
      const int64_t step = newest_step(*after, "work/run");
      ASSERT_TRUE(step == old_step || step == new_step)
          << "step " << step << " after " << k << " operations"
          << (k > 0 ? ", the last was " + files.operation(k - 1) : "") << ", seed " << seed;
      ASSERT_TRUE(step == new_step || k < operations) << "not durable, seed " << seed;
      ++(step == old_step ? old_seen : new_seen);
      if (step == old_step) certain_from = k + 1;
      if (seed % 20 == 0) {
        save(*after, new_step + 1);
        ASSERT_EQ(newest_step(*after, "work/run"), new_step + 1);
        ASSERT_TRUE(
            verify_checkpoint(*after, "work/run/" + step_folder_name(new_step + 1), {}, serially)
                .empty());
      }
    }
  }
  EXPECT_GT(old_seen, 0);
  EXPECT_GT(new_seen, 0);
  EXPECT_LE(certain_from, operations);
}

TEST(Crash, WhileSavingBesideAnOlderCheckpoint) {
  MemoryFileSystem files;
  save(files, 1);
  expect_old_or_new(files, 1, 2, [&] { save(files, 2); });
}

TEST(Crash, WhileSavingTheFirstCheckpointEver) {
  MemoryFileSystem files;
  expect_old_or_new(files, -1, 1, [&] { save(files, 1); });
}

TEST(Crash, WhileSavingOverTheLeftoversOfACrashedSave) {
  MemoryFileSystem files;
  save(files, 1);
  save(files, 2);
  files.remove_file("work/run/step-00000002/manifest.json");
  expect_old_or_new(files, 1, 2, [&] { save(files, 2); });
}

TEST(Crash, WhileSavingOverADamagedCheckpoint) {
  MemoryFileSystem files;
  save(files, 1);
  save(files, 2);
  files.damage("work/run/step-00000002/manifest.json", 30, 1);
  expect_old_or_new(files, 1, 2, [&] { save(files, 2); });
}

// The same step again, with another content: only one checkpoint is there, and it is always whole.
TEST(Crash, WhileReplacingTheOnlyCheckpoint) {
  MemoryFileSystem files;
  FakeRun run(3);
  write_checkpoint(files, "work/run", run.tensors, run.state, small_pieces());
  files.start_record();
  const std::vector<float> other(168, 1.5F);
  run.tensors[0].data = other.data();
  write_checkpoint(files, "work/run", run.tensors, run.state);
  const std::string path = "work/run/step-00000003";
  for (int64_t k = 0; k <= files.operation_count(); ++k) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const auto after = files.crash_after(k, seed);
      ASSERT_TRUE(verify_checkpoint(*after, path, {}, serially).empty()) << k << " " << seed;
      Reader reader(*after, path, serially);
      const bool is_new = reader.bytes("matrix").substr(0, 4) ==
                          std::string_view(reinterpret_cast<const char*>(other.data()), 4);
      EXPECT_EQ(difference_from_fake_run(reader), is_new ? "matrix" : "");
      EXPECT_TRUE(is_new || k < files.operation_count());
    }
  }
  // Nothing of the old one is left, and a third time goes as well.
  EXPECT_EQ(files.list(path).size(), 2U);
  write_checkpoint(files, "work/run", run.tensors, run.state);
  EXPECT_EQ(files.list(path).size(), 2U);
}

TEST(Crash, WhileRetentionDeletes) {
  MemoryFileSystem files;
  for (const int64_t step : {1, 2, 3}) save(files, step);
  expect_old_or_new(files, 3, 4, [&] {
    save(files, 4);
    apply_retention(files, "work/run", {.keep_last = 1, .keep_best = false}, 4);
  });
  EXPECT_EQ(list_checkpoints(files, "work/run").size(), 1U);
}

// A checkpoint that is being deleted has a manifest only as long as it is complete.
TEST(Crash, AHalfDeletedCheckpointIsNeverValid) {
  MemoryFileSystem files;
  save(files, 1);
  save(files, 2);
  files.start_record();
  const std::string path = "work/run/step-00000001";
  remove_checkpoint(files, path);
  for (int64_t k = 0; k <= files.operation_count(); ++k) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const auto after = files.crash_after(k, seed);
      if (after->exists(join_path(path, kManifestName))) {
        EXPECT_TRUE(verify_checkpoint(*after, path, {}, serially).empty()) << k << " " << seed;
      }
      EXPECT_TRUE(k < files.operation_count() || !after->exists(path)) << seed;
      EXPECT_EQ(newest_step(*after, "work/run"), 2);
    }
  }
}

// The model of lost writes finds what the commit order is there for: without the syncs, states turn
// up in which the newest manifest names bytes that are not there.
TEST(Crash, SavingWithoutSyncsWouldBeCaught) {
  MemoryFileSystem files;
  save(files, 1);
  MemoryFileSystem source;
  save(source, 2);
  files.start_record();
  const std::string path = "work/run/step-00000002";
  files.create_directories(path);
  for (const DirectoryEntry& entry : source.list(path)) {
    const std::string bytes = read_file(source, join_path(path, entry.name));
    files.create(join_path(path, entry.name))->append(bytes.data(), bytes.size());
  }
  int64_t damaged = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto after = files.crash_after(files.operation_count(), seed);
    if (after->exists(join_path(path, kManifestName)) &&
        !verify_checkpoint(*after, path, {}, serially).empty()) {
      ++damaged;
    }
  }
  EXPECT_GT(damaged, 0);
}

// Operation `k` of a save fails (once, or it and all that follow): an error says so, the older
// checkpoint loads, and when the disk is well again so does a new one.
void expect_failure_is_harmless(ErrorKind kind, bool lasting) {
  int64_t operations = 0;
  {
    MemoryFileSystem files;
    save(files, 1);
    files.start_record();
    save(files, 2);
    operations = files.operation_count();
  }
  for (int64_t k = 0; k < operations; ++k) {
    MemoryFileSystem files;
    save(files, 1);
    files.start_record();
    files.fail_operation(k, kind, lasting);
    Writer writer(files, "work/run",
                  {.snapshot_bytes = 4096,
                   .retention = {.keep_last = 1, .keep_best = false},
                   .write = small_pieces(),
                   .parallel = serially});
    const FakeRun run(2);
    ASSERT_TRUE(writer.save(run.tensors, run.state, IfBusy::wait));
    const std::vector<SaveResult> results = writer.wait();
    ASSERT_EQ(results.size(), 1U);
    if (kind == ErrorKind::io || results[0].error) {
      ASSERT_TRUE(results[0].error.has_value()) << k;
      EXPECT_EQ(results[0].error->kind(), kind);
      // The failed one is gone; if only the last sync failed it is there, and complete.
      const int64_t step = newest_step(files, "work/run");
      EXPECT_TRUE(step == 1 || step == 2) << k;
      EXPECT_TRUE(files.exists("work/run/step-00000001/manifest.json")) << k;
    }
    files.clear_faults();
    const FakeRun later(3);
    ASSERT_TRUE(writer.save(later.tensors, later.state, IfBusy::wait));
    EXPECT_FALSE(writer.wait().at(0).error.has_value()) << k;
    EXPECT_EQ(newest_step(files, "work/run"), 3);
    EXPECT_EQ(list_checkpoints(files, "work/run").size(), 1U) << k;
  }
}

TEST(Failure, DiskFullAtEveryOperation) {
  expect_failure_is_harmless(ErrorKind::no_space, true);
  expect_failure_is_harmless(ErrorKind::no_space, false);
}

TEST(Failure, InputOutputErrorAtEveryOperation) {
  expect_failure_is_harmless(ErrorKind::io, true);
  expect_failure_is_harmless(ErrorKind::io, false);
}

TEST(Failure, AFullDiskLeavesNoPartialFolder) {
  MemoryFileSystem files;
  save(files, 1);
  const int64_t used = [&] {
    int64_t bytes = 0;
    for (const CheckpointInfo& info : list_checkpoints(files, "work/run")) bytes += info.bytes;
    return bytes;
  }();
  for (const int64_t room : {int64_t{0}, int64_t{1}, int64_t{500}, used - 1}) {
    files.set_capacity(used + room);
    EXPECT_TRUE(says(error_of([&] { save(files, 2); }), ErrorKind::no_space, "step-00000002"));
    EXPECT_FALSE(files.exists("work/run/step-00000002")) << room;
    EXPECT_EQ(newest_step(files, "work/run"), 1);
    // A failed replacement leaves the old one as it was.
    EXPECT_TRUE(says(error_of([&] { save(files, 1); }), ErrorKind::no_space, "step-00000001"));
    EXPECT_TRUE(verify_checkpoint(files, "work/run/step-00000001", {}, serially).empty());
  }
  files.set_capacity(3 * used);
  save(files, 2);
  EXPECT_EQ(newest_step(files, "work/run"), 2);
}

}  // namespace
}  // namespace tutti::checkpoint
