// The steps of writing a checkpoint folder, in the order that makes it durable.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/checkpoint/seal/seal.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/checkpoint/store/snapshot.h"
#include "tutti/checkpoint/store/writer.h"

namespace tutti::checkpoint {

// Makes `path` and what is missing above it, so that the whole path survives a crash, also where
// another process made a folder on it a moment ago.
void create_durable_directories(FileSystem& files, const std::string& path);

// What a save found in the folder of its checkpoint.
struct FolderBefore {
  // What is there stays until the commit: a valid checkpoint, or the folder is in an object store,
  // where what is there may be another process's, which is still writing. Until it is known: true.
  bool replace = true;
  // In an object store: of the manifest that is there, valid or damaged (ObjectStore::version),
  // since before the first shard was written; and the other files, just before the commit.
  std::string version = {};
  std::vector<std::string> others = {};
};

// Makes the folder of a checkpoint that is to be written. Leftovers go, where nothing has to stay.
void begin_folder(FileSystem& files, const std::string& path, FolderBefore& before);

// The shards with these tensors, under names that begin with `prefix`, and their folder: all
// durable; sealed where there is a key. Returns what a manifest says of them; adds the names of the
// files to `written` as soon as they are made.
Manifest write_shards(FileSystem& files, const std::string& path,
                      const std::vector<TensorSource>& tensors, const State& state,
                      const WriteOptions& options, const SealKey* key, const std::string& prefix,
                      std::vector<std::string>& written);

// A small file that appears whole; durable but for its name.
void write_appearing(FileSystem& files, const std::string& path, const std::string& text);

// A small file and its contents, durable but for its name.
void write_durably(FileSystem& files, const std::string& path, const std::string& text);

// The manifest of the folder, which makes what it names the checkpoint: `committed` says whether it
// has its name, also after an error. Signs it with `key`, if any. Returns its size in bytes.
// In an object store the manifest is one conditional request: throws peer where another process has
// committed since begin_folder(), or has taken this one for dead and removed its shards. There
// `committed` stays true after a failure that leaves it open whether the request took effect.
int64_t commit_manifest(FileSystem& files, const std::string& path, Manifest& manifest,
                        const SealKey* key, FolderBefore& before, bool& committed);

// What was written before a save failed. Its own failure is not worth more than the first.
void clean_up(FileSystem& files, const std::string& path, bool whole_folder,
              const std::vector<std::string>& written) noexcept;

// Files that the manifest does not name: of the checkpoint that was replaced. In an object store
// those that were there before the commit: who wrote them can no longer commit, and what came later
// may be of a save that will. Best effort; the next replacement tries again.
void remove_replaced(FileSystem& files, const std::string& path, const Manifest& manifest,
                     const FolderBefore& before) noexcept;

}  // namespace tutti::checkpoint
