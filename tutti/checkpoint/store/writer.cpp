#include "tutti/checkpoint/store/writer.h"

#include <exception>
#include <iterator>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/object_store.h"
#include "tutti/checkpoint/store/joint_save.h"
#include "tutti/checkpoint/store/shard_writer.h"

namespace tutti::checkpoint {

Written write_checkpoint(FileSystem& files, const std::string& folder,
                         const std::vector<TensorSource>& tensors, const State& state,
                         const WriteOptions& options) {
  TUTTI_CHECK(state.step >= 0 && options.chunk_bytes > 0, "step {}, chunks of {} bytes", state.step,
              options.chunk_bytes);
  const std::string path = join_path(folder, step_folder_name(state.step));
  FolderBefore before;
  std::vector<std::string> written = {kManifestTemporaryName};
  bool committed = false;
  const std::shared_ptr<const SealKey> key = save_key(files, options.key_file);
  try {
    begin_folder(files, path, before);
    Manifest manifest = write_shards(files, path, tensors, state, options, key.get(), "", written);
    const int64_t manifest_bytes =
        commit_manifest(files, path, manifest, key.get(), before, committed);
    if (before.replace) remove_replaced(files, path, manifest, before);
    return {path, manifest.total_bytes() + manifest_bytes};
  } catch (...) {
    if (!committed) clean_up(files, path, !before.replace, written);
    throw;
  }
}

Writer::Writer(FileSystem& files, std::string folder, WriterOptions options)
    : files_(files),
      folder_(std::move(folder)),
      options_(std::move(options)),
      snapshot_(options_.snapshot_bytes, options_.stream) {
  // A rank without anything to save waits for the others as well.
  const bool beside_training = options_.snapshot_bytes > 0 || options_.joint.ranks > 1;
  if (beside_training) thread_ = std::thread([this] { run(); });
}

Writer::~Writer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Writer::save(const std::vector<TensorSource>& tensors, const State& state, IfBusy if_busy) {
  const double start = monotonic_seconds();
  if (!thread_.joinable()) {
    SaveResult result = write(tensors, state);
    result.stall_seconds = monotonic_seconds() - start;
    results_.push_back(std::move(result));
    return true;
  }
  {
    std::unique_lock lock(mutex_);
    if (job_ && if_busy == IfBusy::skip) return false;
    wait_until_idle(lock);
  }
  Job job;
  job.tensors = snapshot_.copy(tensors, options_.parallel);
  job.state = state;
  job.stall_seconds = monotonic_seconds() - start;
  {
    const std::lock_guard lock(mutex_);
    job_ = std::move(job);
  }
  changed_.notify_all();
  return true;
}

bool Writer::busy() {
  const std::lock_guard lock(mutex_);
  return job_.has_value();
}

std::optional<SaveResult> Writer::poll() {
  const std::lock_guard lock(mutex_);
  if (results_.empty()) return std::nullopt;
  SaveResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

std::vector<SaveResult> Writer::wait() {
  std::unique_lock lock(mutex_);
  wait_until_idle(lock);
  std::vector<SaveResult> results(std::make_move_iterator(results_.begin()),
                                  std::make_move_iterator(results_.end()));
  results_.clear();
  return results;
}

void Writer::hurry(double seconds) { give_up_at_ = monotonic_seconds() + seconds; }

void Writer::wait_until_idle(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !job_; });
}

Written Writer::write_tensors(const std::vector<TensorSource>& tensors, const State& state) {
  if (options_.joint.ranks == 1) {
    return write_checkpoint(files_, folder_, tensors, state, options_.write);
  }
  JointSave joint = options_.joint;
  joint.attempt += fmt::format(".{}", saves_++);
  joint.give_up_at = &give_up_at_;
  return write_joint_checkpoint(files_, folder_, tensors, state, options_.write, joint);
}

// Of a store that may have taken a manifest everything stays until it is known whether it has.
// Where no save succeeds there is no retention, and each would leave a checkpoint's worth of bytes.
void Writer::remove_leftovers() noexcept {
  if (!has_failed_ || options_.joint.rank > 0 || object_store(files_, folder_) == nullptr) return;
  try {
    remove_unfinished(files_, folder_);
  } catch (const Error&) {
    return;  // what the save says is what matters
  }
}

SaveResult Writer::write(const std::vector<TensorSource>& tensors, const State& state) {
  SaveResult result;
  result.step = state.step;
  result.path = join_path(folder_, step_folder_name(state.step));
  const double start = monotonic_seconds();
  remove_leftovers();
  try {
    const Written written = write_tensors(tensors, state);
    result.bytes = written.bytes;
  } catch (const Error& error) {
    result.error = error;
  } catch (const std::exception& error) {  // such as out of memory
    result.error = Error(ErrorKind::io, fmt::format("{}: {}", result.path, error.what()));
  }
  has_failed_ = result.error.has_value();
  result.write_seconds = monotonic_seconds() - start;
  if (result.error || options_.joint.rank > 0) return result;
  try {
    result.removed = apply_retention(files_, folder_, options_.retention, state.step);
  } catch (const Error& error) {
    result.retention_error = error;
  }
  return result;
}

void Writer::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return job_ || stop_; });
    if (!job_) return;
    Job& job = *job_;  // the owner leaves it alone until it is reset
    lock.unlock();
    SaveResult result = write(job.tensors, job.state);
    result.stall_seconds = job.stall_seconds;
    lock.lock();
    results_.push_back(std::move(result));
    job_.reset();
    changed_.notify_all();
  }
}

}  // namespace tutti::checkpoint
