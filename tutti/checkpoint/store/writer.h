// Saving: one checkpoint (write_checkpoint), and many of them asynchronously (Writer).
//
// Commit order: shards written and synced, folder synced, manifest written under a temporary name
// and synced, renamed, folder synced. A crash at any moment leaves the old state or the new one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/checkpoint/store/parallel.h"
#include "tutti/checkpoint/store/retention.h"
#include "tutti/checkpoint/store/snapshot.h"

namespace tutti::checkpoint {

struct WriteOptions {
  int64_t max_shard_bytes = int64_t{64} << 30;  // a further tensor starts the next shard
  int64_t chunk_bytes = kChunkBytes;            // bytes per checksum, as stored
  std::string key_file = {};                    // shards are sealed with its key (seal/seal.h)
};

// Which part of a checkpoint that several ranks save together (joint_save.h) is written here.
struct JointSave {
  int rank = 0;
  int ranks = 1;
  std::string attempt;  // the same on all ranks, another for every save; fit for a file name
  double timeout_seconds = 600;  // for the others
  // Of the Writer: the moment (monotonic_seconds) from which on the others are not waited for.
  const std::atomic<double>* give_up_at = nullptr;
};

struct Written {
  std::string path;
  int64_t bytes = 0;  // shards and manifest
};

// Writes folder/step-NNNNNNNN durably, on the calling thread, straight from the tensors. Missing
// folders are made, and the names of all folders on the path are made durable. A checkpoint of the
// same step is replaced at the moment of commit, not before; a folder of that name without a valid
// manifest is removed first, in an object store by the commit. Throws Error after removing what it
// wrote; when only the last sync of the folder fails, the new checkpoint stays, complete but
// perhaps not yet durable, and so it does when an object store may have taken the manifest.
Written write_checkpoint(FileSystem& files, const std::string& folder,
                         const std::vector<TensorSource>& tensors, const State& state,
                         const WriteOptions& options = {});

struct WriterOptions {
  // Memory for the copy from which the writer thread saves: tensor_bytes() of what will be saved.
  // 0: no copy is made, save() returns when the checkpoint is durable; with several ranks: this one
  // has nothing to save, and save() returns at once.
  int64_t snapshot_bytes = 0;
  Retention retention;
  WriteOptions write;
  // With several ranks: every one has a Writer and calls save() for the same steps, always with
  // IfBusy::wait. `attempt` is completed with the number of the save. Rank 0 applies retention.
  JointSave joint = {};
  ParallelFor parallel = parallel_threads;  // for the copy
  engine::Stream* stream =
      nullptr;  // in whose memory the tensors are; null: the host's. Outlives it
};

struct SaveResult {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;
  double stall_seconds = 0;  // time save() kept its caller
  double write_seconds = 0;
  std::vector<std::string> removed;      // older checkpoints that retention removed
  std::optional<Error> error;            // the save failed; older checkpoints are untouched
  std::optional<Error> retention_error;  // the save succeeded, removing older ones did not
};

enum class IfBusy { skip, wait };  // what save() does while the previous one is being written

// All functions are called by one thread, the owner. The destructor waits for a save in progress.
class Writer {
 public:
  // `folder` is where the step folders go; it is made when the first one is written.
  Writer(FileSystem& files, std::string folder, WriterOptions options);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Copies the tensors and hands them to the writer thread. False: skipped, the previous save is
  // still being written. Never throws for a failing disk: the result carries the error.
  bool save(const std::vector<TensorSource>& tensors, const State& state, IfBusy if_busy);

  bool busy();                       // a save is being written
  std::optional<SaveResult> poll();  // the oldest result not yet taken
  // Waits for the save in progress; all results not yet taken, oldest first.
  std::vector<SaveResult> wait();
  // The run has failed, so other ranks may never come: a joint save in progress waits for them only
  // this much longer. What all of them have handed over is still committed.
  void hurry(double seconds);

 private:
  SaveResult write(const std::vector<TensorSource>& tensors, const State& state);
  void remove_leftovers() noexcept;  // of the failed save before
  Written write_tensors(const std::vector<TensorSource>& tensors, const State& state);
  void run();
  void wait_until_idle(std::unique_lock<std::mutex>& lock);

  FileSystem& files_;
  const std::string folder_;
  const WriterOptions options_;
  Snapshot snapshot_;  // the owner's while idle, the thread's while busy

  struct Job {
    std::vector<TensorSource> tensors;  // in the snapshot
    State state;
    double stall_seconds = 0;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> job_;  // present while busy
  bool stop_ = false;
  std::deque<SaveResult> results_;
  int64_t saves_ = 0;        // written by the writing thread, as is
  bool has_failed_ = false;  // the save before this one
  std::atomic<double> give_up_at_{std::numeric_limits<double>::infinity()};
  std::thread thread_;  // last: starts when everything else is there
};

}  // namespace tutti::checkpoint
