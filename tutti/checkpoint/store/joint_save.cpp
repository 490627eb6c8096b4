#include "tutti/checkpoint/store/joint_save.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/object_store.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/store/shard_writer.h"

namespace tutti::checkpoint {
namespace {

struct Names {
  std::string folder;
  std::string attempt;

  std::string saving() const { return join_path(folder, "saving-" + attempt); }
  std::string part(int rank) const {
    return join_path(folder, fmt::format("part-{}-{:05}.json", attempt, rank));
  }
  std::string failed(int rank) const {
    return join_path(folder, fmt::format("failed-{}-{:05}", attempt, rank));
  }
};

// How long the others are waited for.
struct Patience {
  explicit Patience(const JointSave& joint)
      : deadline(monotonic_seconds() + joint.timeout_seconds), give_up_at(joint.give_up_at) {}
  double deadline;
  const std::atomic<double>* give_up_at;
};

// Returns when `path` is there. Gives up when `rank`, which is to make it, reports a failure, or
// when this rank's run did.
void wait_for(FileSystem& files, const Names& names, const std::string& path, int rank,
              const Patience& patience, double timeout_seconds) {
  // A look at a store is a request or more.
  const double look_every_seconds = object_store(files, path) == nullptr ? 0.005 : 0.2;
  while (!files.exists(path)) {
    if (files.exists(names.failed(rank))) {
      const std::string reason = read_file(files, names.failed(rank));
      fail(ErrorKind::io, "{}: rank {} could not save its part: {}", names.folder, rank,
           reason.empty() ? "its disk did not take the reason" : printable(reason));
    }
    const double now = monotonic_seconds();
    if (patience.give_up_at != nullptr && now > *patience.give_up_at) {
      fail(ErrorKind::io, "{}: the run failed before rank {} came to save its part", names.folder,
           rank);
    }
    if (now > patience.deadline) {
      fail(ErrorKind::io, "{}: rank {} did not come to save its part within {} s", names.folder,
           rank, timeout_seconds);
    }
    sleep_seconds(look_every_seconds);
  }
}

// Best effort: without it the others wait until their time is up. After the cleaning up, which may
// have removed the folder: some may come later, and disks be full. Such a disk takes no bytes, but
// a name.
void report_failure(FileSystem& files, const Names& names, int rank, const char* reason) noexcept {
  const std::string path = names.failed(rank);
  try {
    if (rank == 0) files.create_directories(names.folder);
    write_appearing(files, path, reason);
  } catch (const Error&) {
    try {
      files.create(path)->close();
    } catch (const Error&) {
      return;
    }
  }
}

Written write_first(FileSystem& files, const Names& names, const std::vector<TensorSource>& tensors,
                    const State& state, const WriteOptions& options, const JointSave& joint) {
  const std::string& path = names.folder;
  FolderBefore before;
  std::vector<std::string> written = {kManifestTemporaryName};
  bool committed = false;
  try {
    const std::shared_ptr<const SealKey> key = save_key(files, options.key_file);
    begin_folder(files, path, before);
    write_durably(files, names.saving(), "");
    written.push_back(base_name(names.saving()));
    Manifest manifest = write_shards(files, path, tensors, state, options, key.get(),
                                     rank_prefix(joint.rank), written);
    const Patience deadline(joint);
    for (int rank = 1; rank < joint.ranks; ++rank) {
      const std::string part = names.part(rank);
      wait_for(files, names, part, rank, deadline, joint.timeout_seconds);
      const std::string text = read_file(files, part);
      const Manifest theirs = parse_manifest(text, part, Coverage::part);
      if (key && theirs.seal) check_signature(text, *key, part);
      add_part(manifest, theirs, part);
      if (object_store(files, path) == nullptr) continue;
      // A folder of a store is not removed whole.
      written.push_back(base_name(part));
      for (const FileRecord& file : theirs.files) written.push_back(file.name);
    }
    const int64_t manifest_bytes =
        commit_manifest(files, path, manifest, key.get(), before, committed);
    remove_replaced(files, path, manifest, before);
    return {path, manifest.total_bytes() + manifest_bytes};
  } catch (const std::exception& error) {
    if (!committed) clean_up(files, path, !before.replace, written);
    report_failure(files, names, joint.rank, error.what());
    throw;
  }
}

Written write_other(FileSystem& files, const Names& names, const std::vector<TensorSource>& tensors,
                    const State& state, const WriteOptions& options, const JointSave& joint) {
  std::vector<std::string> written;
  try {
    wait_for(files, names, names.saving(), 0, Patience(joint), joint.timeout_seconds);
    const std::shared_ptr<const SealKey> key = save_key(files, options.key_file);
    Manifest manifest = write_shards(files, names.folder, tensors, state, options, key.get(),
                                     rank_prefix(joint.rank), written);
    if (key) sign(manifest, *key);
    const std::string part = names.part(joint.rank);
    const std::string text = format_manifest(manifest);
    write_appearing(files, part, text);
    written.clear();  // rank 0 may have committed it: whatever fails now, it stays
    files.sync_directory(names.folder);
    return {names.folder, manifest.total_bytes()};
  } catch (const std::exception& error) {
    clean_up(files, names.folder, false, written);
    report_failure(files, names, joint.rank, error.what());
    throw;
  }
}

}  // namespace

std::string rank_prefix(int64_t rank) { return fmt::format("rank-{:05}-", rank); }

void add_part(Manifest& manifest, const Manifest& part, const std::string& path) {
  if (manifest.seal.has_value() != part.seal.has_value() ||
      (manifest.seal && manifest.seal->key_id != part.seal->key_id)) {
    fail(ErrorKind::corrupt, "{}: ranks seal with different keys", path);
  }
  if (manifest.state.step != part.state.step) {
    fail(ErrorKind::corrupt, "{}: of step {} instead of {}", path, part.state.step,
         manifest.state.step);
  }
  const auto first_file = static_cast<int64_t>(manifest.files.size());
  manifest.files.insert(manifest.files.end(), part.files.begin(), part.files.end());
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) index[manifest.tensors[i].name] = i;
  for (const TensorRecord& tensor : part.tensors) {
    const auto [at, added] = index.emplace(tensor.name, manifest.tensors.size());
    if (added) manifest.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
    TensorRecord& record = manifest.tensors[at->second];
    if (record.dtype != tensor.dtype || record.shape != tensor.shape) {
      fail(ErrorKind::corrupt, "{}: ranks disagree about the shape of tensor '{}'", path,
           tensor.name);
    }
    for (Slice slice : tensor.slices) {
      slice.file += first_file;
      record.slices.push_back(std::move(slice));
    }
  }
}

Written write_joint_checkpoint(FileSystem& files, const std::string& folder,
                               const std::vector<TensorSource>& tensors, const State& state,
                               const WriteOptions& options, const JointSave& joint) {
  TUTTI_CHECK(joint.rank >= 0 && joint.rank < joint.ranks && !joint.attempt.empty(),
              "rank {} of {}, attempt '{}'", joint.rank, joint.ranks, joint.attempt);
  const Names names = {join_path(folder, step_folder_name(state.step)), joint.attempt};
  return joint.rank == 0 ? write_first(files, names, tensors, state, options, joint)
                         : write_other(files, names, tensors, state, options, joint);
}

}  // namespace tutti::checkpoint
