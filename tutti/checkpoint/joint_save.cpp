#include "tutti/checkpoint/joint_save.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/shard_writer.h"

namespace tutti::checkpoint {
namespace {

std::string rank_prefix(int rank) { return fmt::format("rank-{:05}-", rank); }

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

// Returns when `path` is there. Gives up when `rank`, who is to make it, says that it failed.
void wait_for(FileSystem& files, const Names& names, const std::string& path, int rank,
              double deadline, double timeout_seconds) {
  constexpr double kLookEverySeconds = 0.005;
  while (!files.exists(path)) {
    if (files.exists(names.failed(rank))) {
      fail(ErrorKind::io, "{}: rank {} could not save its part: {}", names.folder, rank,
           printable(read_file(files, names.failed(rank))));
    }
    if (monotonic_seconds() > deadline) {
      fail(ErrorKind::io, "{}: rank {} did not come to save its part within {} s", names.folder,
           rank, timeout_seconds);
    }
    sleep_seconds(kLookEverySeconds);
  }
}

// Best effort: without it the others wait until their time is up.
void tell_failure(FileSystem& files, const Names& names, int rank, const char* reason) noexcept {
  try {
    const std::string path = names.failed(rank);
    write_durably(files, path + ".tmp", reason);
    files.rename(path + ".tmp", path);
  } catch (const Error&) {
    return;
  }
}

// Adds the files and slices of `part`.
void join(Manifest& manifest, const Manifest& part, const std::string& path) {
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

Written write_first(FileSystem& files, const Names& names, const std::vector<TensorSource>& tensors,
                    const State& state, const WriteOptions& options, const JointSave& joint) {
  const std::string& path = names.folder;
  const bool replace = has_valid_manifest(files, path);
  std::vector<std::string> written = {kManifestTemporaryName};
  bool committed = false;
  try {
    if (!replace) files.remove_tree(path);
    create_durable_directories(files, path);
    write_durably(files, names.saving(), "");
    written.push_back(base_name(names.saving()));
    Manifest manifest =
        write_shards(files, path, tensors, state, options, rank_prefix(joint.rank), written);
    const double deadline = monotonic_seconds() + joint.timeout_seconds;
    for (int rank = 1; rank < joint.ranks; ++rank) {
      const std::string part = names.part(rank);
      wait_for(files, names, part, rank, deadline, joint.timeout_seconds);
      join(manifest, parse_manifest(read_file(files, part), part, Coverage::part), part);
    }
    const int64_t manifest_bytes = commit_manifest(files, path, manifest, committed);
    remove_replaced(files, path, manifest);
    return {path, manifest.total_bytes() + manifest_bytes};
  } catch (const std::exception& error) {
    tell_failure(files, names, joint.rank, error.what());
    if (!committed) clean_up(files, path, !replace, written);
    throw;
  }
}

Written write_other(FileSystem& files, const Names& names, const std::vector<TensorSource>& tensors,
                    const State& state, const WriteOptions& options, const JointSave& joint) {
  std::vector<std::string> written;
  try {
    wait_for(files, names, names.saving(), 0, monotonic_seconds() + joint.timeout_seconds,
             joint.timeout_seconds);
    const Manifest manifest = write_shards(files, names.folder, tensors, state, options,
                                           rank_prefix(joint.rank), written);
    const std::string part = names.part(joint.rank);
    const std::string text = format_manifest(manifest);
    write_durably(files, part + ".tmp", text);
    files.rename(part + ".tmp", part);
    files.sync_directory(names.folder);
    return {names.folder, manifest.total_bytes()};
  } catch (const std::exception& error) {
    clean_up(files, names.folder, false, written);
    tell_failure(files, names, joint.rank, error.what());
    throw;
  }
}

}  // namespace

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
