// `tutti bench storage`: what one storage, a folder of a disk or a prefix of an object store, does
// for training, each figure beside what its device or link does in the same minute.
//
//   write, read        one file from front to back, as the program writes and maps files; writing
//                      ends when the bytes are durable
//   read_many          parts of it side by side, by several readers
//   random_4k, _64k    random reads of one reader, and _many of several; 64 KiB is what a corpus in
//                      a store is read by
//   small_write        4 KiB made durable: appended to a file, or an object of its own
//   create, stat, remove   of small files or objects; new names are durable at the end
//   checkpoint_save, checkpoint_load   through the checkpoint store: shards, checksums, manifest,
//                      commit; tensors as those of a model's state, as far as space and time allow
//
// Reads come from the storage and not from memory, or StorageBench::source says so. Ceilings of a
// disk are deep queues of O_DIRECT requests to the same file; of a store, plain requests side by
// side for the same object, and the round trip of an empty one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/direct_file.h"
#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/node/storage_probe.h"
#include "tutti/spec/model/config.h"
#include "tutti/train/tasks/checkpoint_bench.h"

namespace tutti::train {

struct StorageFigure {
  std::string name;
  std::string unit;             // "bytes/s" or "requests/s"
  std::vector<double> repeats;  // in that unit
  double value = 0;             // their median
  double median_seconds = 0;    // of one request; 0: whole files
  double p99_seconds = 0;
  int64_t requests = 0;  // in all repeats; whole files count as one
  int64_t bytes = 0;     // in all repeats
  double ceiling = 0;    // in the same unit; 0: none measured
  std::string ceiling_from;
};

struct StorageBench {
  std::string path;
  bool is_store = false;
  ReadSource source = ReadSource::device;  // of cold reads; of a disk
  int readers = 0;
  int64_t file_bytes = 0;         // of the measured file or object
  double round_trip_seconds = 0;  // of an empty request; 0: no store
  CheckpointShape checkpoint;
  std::vector<StorageFigure> figures;
  double seconds = 0;

  const StorageFigure* find(const std::string& name) const;  // null: not measured
};

struct StorageBenchOptions {
  int64_t size_bytes = int64_t{1} << 30;  // most that is on the storage at any time
  double seconds = 60;                    // about
  int readers = 8;
  int repeats = 3;
  spec::ModelConfig model;   // whose state is saved
  bool around_cache = true;  // false: `files` are not the machine's, and there are no ceilings
  node::CheckStop check;     // called between requests, from any thread; may throw
  std::function<void(int64_t done, int64_t total)> progress;
};

inline constexpr int64_t kLeastStorageBytes = int64_t{16} << 20;  // of size_bytes

// Everything is written below a new folder in `path`, which is gone afterwards however this ends.
// Throws not_found where a disk has no such folder; no_space before anything is written where less
// than 5% of the disk would be left; and what the file system throws.
StorageBench bench_storage(FileSystem& files, const std::string& path,
                           const StorageBenchOptions& options);

Json to_json(const StorageBench& bench);

}  // namespace tutti::train
