// The GGUF container, versions 2 and 3, little-endian: metadata by key, then tensors.
//
//   "GGUF" | u32 version | u64 tensors | u64 keys
//   per key:    string | u32 type | value     (string: u64 bytes, then them; array: u32 type,
//                                               u64 count, then its values)
//   per tensor: string name | u32 dimensions | u64 of each, the fastest first | u32 element type |
//               u64 offset from the start of the data
//   padding to general.alignment (32) | tensor data, each tensor at a multiple of it
//
// Source: docs/gguf.md of ggml.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/checkpoint/gguf/blocks.h"

namespace tutti::checkpoint {

enum class GgufKind : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};

struct GgufValue {
  GgufKind kind = GgufKind::u32;
  GgufKind element = GgufKind::u32;  // of an array
  Json value;
};

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  std::vector<int64_t> shape;  // slowest dimension first, as everywhere in Tutti
  int64_t offset = 0;          // bytes from the start of the data
  int64_t bytes = 0;
};

class GgufFile {
 public:
  // Throws corrupt naming the path, the key or tensor and the byte in the file, if the file is
  // truncated or inconsistent; unsupported for other versions and element types.
  GgufFile(FileSystem& files, std::string path);

  const std::string& path() const { return path_; }
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  // Null if absent.
  const Json* find(const std::string& key) const;
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* tensor(const std::string& name) const;
  std::string_view bytes(const GgufTensor& tensor) const;

 private:
  std::string path_;
  std::unique_ptr<MappedFile> file_;
  std::map<std::string, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t> by_name_;
  size_t data_begin_ = 0;
};

using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

// Writes `path` atomically. Offsets and bytes of `tensors` are computed; `write` is called for each
// of them in order with a function that appends its bytes.
using GgufAppend = std::function<void(const void* data, size_t bytes)>;
void write_gguf(FileSystem& files, const std::string& path, const GgufMetadata& metadata,
                std::vector<GgufTensor> tensors,
                const std::function<void(const GgufTensor&, const GgufAppend&)>& write);

}  // namespace tutti::checkpoint
