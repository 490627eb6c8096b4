// What makes a folder a checkpoint: `manifest.json` (docs/formats.md, "Checkpoint"). It describes
// every tensor and every byte of the shards, and carries a checksum of itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/json.h"

namespace tutti::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kManifestTemporaryName = "manifest.json.tmp";
inline constexpr const char* kFormatName = "tutti-checkpoint";
inline constexpr int64_t kFormatVersion = 1;
inline constexpr int64_t kSealedFormatVersion = 2;  // only of sealed checkpoints
inline constexpr int64_t kChunkBytes = int64_t{4} << 20;
inline constexpr int64_t kSealBytes = 16;  // that sealing adds to a chunk (checkpoint/seal/seal.h)

// The checkpoint that holds what this one leaves out: the frozen parameters below its adapters.
struct Base {
  bool operator==(const Base&) const = default;
  std::string path;  // of the checkpoint folder, when this one was saved
  std::string
      manifest_xxh3;  // XXH3 of its whole manifest.json, which holds the checksums of the rest
};

// The checkpoint that a run learns from beside its data.
struct Teacher {
  bool operator==(const Teacher&) const = default;
  Base checkpoint;
  int64_t step = 0;  // of the teacher's own run
};

// What a run needs besides its tensors to resume exactly.
struct State {
  int64_t step = 0;         // optimizer steps done
  uint64_t seed = 0;        // random numbers are a function of (seed, step, index)
  int64_t next_sample = 0;  // data position: global index of the first sample not yet used
  std::optional<double> validation_loss;  // decides what keep-best keeps; non-finite means none
  std::string recipe_hash;
  std::optional<Base> base;        // only of checkpoints of adapters
  std::optional<Teacher> teacher;  // only of runs that learn from one
  Json model = Json::object();     // description of the model, compared by check_same_model
  Json training = Json::object();  // the trainer's own state; non-finite numbers become null
};

// A part of a global tensor, as stored in one shard.
struct Slice {
  int64_t file = 0;   // index into Manifest::files
  int64_t begin = 0;  // bytes from the start of that shard's contents
  int64_t end = 0;
  std::vector<int64_t> offset;  // index of its first element in the global tensor
  std::vector<int64_t> shape;
};

struct TensorRecord {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // global
  std::vector<Slice> slices;   // disjoint; together the whole tensor
};

// With which key the shards are sealed (checkpoint/seal/seal.h).
struct SealRecord {
  bool operator==(const SealRecord&) const = default;
  std::string key_id;
  std::string key_file;  // where it was when this was saved
};

struct FileRecord {
  std::string name;              // a plain name inside the checkpoint's folder
  int64_t bytes = 0;             // as stored
  std::vector<uint64_t> chunks;  // XXH3 of every chunk_bytes as stored, the last may be shorter
  std::string salt = {};         // of sealed shards, 64 hex digits
  int64_t content_bytes = 0;     // of the shard: `bytes` less what sealing added
};

struct Manifest {
  State state;
  std::string tutti_version;
  std::string created;  // UTC, "2026-01-31T12:00:00Z"
  int64_t chunk_bytes = kChunkBytes;
  std::optional<SealRecord> seal;  // absent: anybody can read the shards
  std::string signature;           // of signed_part, by a holder of the key
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;

  int64_t total_bytes() const;  // of all shards, as stored
  int64_t piece_bytes() const;  // of a shard's contents, per chunk
};

std::string format_manifest(const Manifest& manifest);
// What comes before the signature in the text of a sealed checkpoint's manifest; throws corrupt
// where there is none.
std::string_view signed_part(std::string_view text, std::string_view path);

// What the slices of every tensor are: all of it, or what one of several ranks writes of it.
enum class Coverage { whole, part };

// Throws corrupt when the checksum or anything else does not hold (ranges, slices that do not make
// up their tensor, names that would leave the folder), unsupported for a newer format version.
Manifest parse_manifest(std::string_view text, std::string_view path,
                        Coverage coverage = Coverage::whole);

// "step-00000120" and back; nullopt for any other name.
std::string step_folder_name(int64_t step);
std::optional<int64_t> parse_step_folder_name(std::string_view name);
// Of the last part of a path, which may end in slashes.
std::optional<int64_t> step_of_path(std::string_view path);

// Throws usage naming the first field in which the two model descriptions differ.
void check_same_model(const Json& saved, const Json& expected, std::string_view path);

}  // namespace tutti::checkpoint
