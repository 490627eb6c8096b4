// The contents of a sealed shard, opened chunk by chunk on demand.
#pragma once

#include <cstdint>
#include <string_view>

#include "tutti/checkpoint/seal/seal.h"
#include "tutti/checkpoint/store/manifest.h"

namespace tutti::checkpoint {

class OpenedShard {
 public:
  // Takes addresses for file.content_bytes, and memory only for what is opened.
  OpenedShard(const SealKey& key, const FileRecord& file, int64_t piece_bytes);
  ~OpenedShard();
  OpenedShard(const OpenedShard&) = delete;
  OpenedShard& operator=(const OpenedShard&) = delete;

  // Where the contents are; zero as long as their chunk is not opened.
  std::string_view bytes() const { return {data_, size_}; }
  // False: the chunk is not what was sealed. Several threads may open different chunks.
  bool open(int64_t chunk, std::string_view stored);
  // The memory of [begin, end), at most: it must be opened again.
  void forget(int64_t begin, int64_t end);

 private:
  const ShardSeal seal_;
  const int64_t piece_bytes_;
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tutti::checkpoint
