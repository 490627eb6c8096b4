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

// Makes the folder of a checkpoint that is to be written. `replace`: whether a valid one is there,
// which stays until the commit. Leftovers go, in an object store after the commit.
void begin_folder(FileSystem& files, const std::string& path, bool& replace);

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
// `replace`: a valid one has its name already. In an object store the manifest is one conditional
// request: throws peer where another process has committed meanwhile.
int64_t commit_manifest(FileSystem& files, const std::string& path, Manifest& manifest,
                        const SealKey* key, bool replace, bool& committed);

bool has_valid_manifest(FileSystem& files, const std::string& path);

// What was written before a save failed; of a folder in an object store, in which another process
// may have committed, no more than that. Its own failure is not worth more than the first.
void clean_up(FileSystem& files, const std::string& path, bool whole_folder,
              const std::vector<std::string>& written) noexcept;

// Files that the manifest does not name: of the checkpoint that was replaced. Best effort; the next
// replacement tries again.
void remove_replaced(FileSystem& files, const std::string& path, const Manifest& manifest) noexcept;

}  // namespace tutti::checkpoint
