#include "tutti/checkpoint/store/verify.h"

#include <algorithm>
#include <optional>

#include "tutti/base/error.h"
#include "tutti/base/fetched_file.h"
#include "tutti/base/hash.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/checkpoint/store/reader.h"

namespace tutti::checkpoint {
namespace {

constexpr int64_t kChunksPerReport = 32;

bool is_damage(const Error& error) {
  return error.kind() == ErrorKind::corrupt || error.kind() == ErrorKind::not_found;
}

// Compares the chunks of one file, whatever its size; reports the first byte of each damaged run.
void verify_file(const FileRecord& file, const MappedFile& map, int64_t chunk_bytes,
                 const ParallelFor& parallel, const std::function<void(int64_t)>& advance,
                 std::vector<Finding>& findings) {
  std::string_view bytes = map.bytes();
  const auto actual = static_cast<int64_t>(bytes.size());
  if (actual != file.bytes) {
    findings.push_back({file.name, std::min(actual, file.bytes),
                        fmt::format("{} bytes instead of {}", actual, file.bytes)});
    bytes = bytes.substr(0, static_cast<size_t>(file.bytes));
  }
  const auto chunks = static_cast<int64_t>(file.chunks.size());
  std::vector<uint8_t> damaged(file.chunks.size(), 0);
  for (int64_t first = 0; first < chunks; first += kChunksPerReport) {
    const int64_t count = std::min(kChunksPerReport, chunks - first);
    const auto end = std::min(static_cast<int64_t>(bytes.size()), (first + count) * chunk_bytes);
    const int64_t size = std::max(int64_t{0}, end - first * chunk_bytes);
    fetch({{&map, first * chunk_bytes, size}});
    parallel(count, [&](int64_t i) {
      const auto index = static_cast<size_t>(first + i);
      const size_t begin = std::min(index * static_cast<size_t>(chunk_bytes), bytes.size());
      const std::string_view chunk = bytes.substr(begin, static_cast<size_t>(chunk_bytes));
      damaged[index] = hash_bytes(chunk.data(), chunk.size()) != file.chunks[index] ? 1 : 0;
    });
    if (is_fetched(map)) {
      map.not_needed(static_cast<size_t>(first * chunk_bytes), static_cast<size_t>(size));
    }
    advance(std::min(file.bytes, (first + count) * chunk_bytes) - first * chunk_bytes);
  }
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t begin = i * chunk_bytes;
    const int64_t end = std::min(begin + chunk_bytes, file.bytes);
    if (damaged[static_cast<size_t>(i)] == 0 || end > actual) continue;  // size is reported above
    findings.push_back(
        {file.name, begin,
         fmt::format("damaged between bytes {} and {}: the checksum does not hold", begin, end)});
  }
}

}  // namespace

std::vector<Finding> verify_checkpoint(
    FileSystem& files, const std::string& path,
    const std::function<void(int64_t done_bytes, int64_t total_bytes)>& progress,
    const ParallelFor& parallel) {
  if (!files.is_directory(path)) {
    fail(ErrorKind::not_found, "'{}' is not a checkpoint: no such folder", path);
  }
  std::vector<Finding> findings;
  const std::string manifest_path = join_path(path, kManifestName);
  std::optional<Manifest> manifest;
  try {
    manifest = parse_manifest(read_file(files, manifest_path), manifest_path);
  } catch (const Error& error) {
    if (!is_damage(error)) throw;
    findings.push_back({kManifestName, 0, error.what()});
    return findings;  // nothing left to compare the shards with
  }
  const std::optional<int64_t> step = step_of_path(path);
  if (step && *step != manifest->state.step) {
    findings.push_back(
        {kManifestName, 0,
         fmt::format("it was saved at step {}, the folder says {}", manifest->state.step, *step)});
  }
  const int64_t total = manifest->total_bytes();
  int64_t done = 0;
  const auto advance = [&](int64_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  };
  for (const FileRecord& file : manifest->files) {
    std::unique_ptr<MappedFile> map;
    try {
      map = map_on_demand(files, join_path(path, file.name));
    } catch (const Error& error) {
      if (!is_damage(error)) throw;
      findings.push_back({file.name, 0, error.what()});
      advance(file.bytes);
      continue;
    }
    map->will_need(0, map->bytes().size());
    verify_file(file, *map, manifest->chunk_bytes, parallel, advance, findings);
  }
  if (!findings.empty()) return findings;
  try {
    Reader reader(files, path, parallel);  // headers against the manifest
    // Checksums find accidents; what was changed on purpose, only the seals.
    if (manifest->seal) reader.verify_contents();
  } catch (const Error& error) {
    if (!is_damage(error)) throw;
    findings.push_back({kManifestName, 0, error.what()});
  }
  return findings;
}

}  // namespace tutti::checkpoint
