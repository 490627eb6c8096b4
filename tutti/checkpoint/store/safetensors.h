// The safetensors container: https://github.com/huggingface/safetensors#format
//
//   u64 little-endian header length N | N bytes of JSON, padded with spaces | tensor bytes
//
// The JSON maps a tensor's name to {"dtype", "shape", "data_offsets": [begin, end)} with offsets
// counted from the first tensor byte; "__metadata__" maps strings to strings. Tensor bytes are
// little-endian, row-major, back to back: no gap, no overlap, no byte left over.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/dtype.h"

namespace tutti::checkpoint {

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the start of the file
  int64_t end = 0;
  bool e4m3 = false;  // F8_E4M3, whose bytes are u8 here
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in file order
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;  // bytes from the start of the file
};

// Checks everything about `file` (the bytes of the whole file) but the values of the tensors.
// Throws corrupt naming `path`, the tensor and what is wrong; unsupported for an element type that
// Tutti does not have.
SafetensorsHeader parse_safetensors(std::string_view file, std::string_view path);

struct SafetensorsLayout {
  std::string header;                      // length field, JSON and padding; a multiple of 8 bytes
  std::vector<SafetensorsTensor> tensors;  // in file order, offsets filled in
  int64_t file_bytes = 0;
};

// Lays out `tensors` (begin and end are ignored) in one file: widest element type first, so that
// each tensor is aligned to its elements, otherwise in the order given. Names must be unique.
SafetensorsLayout layout_safetensors(std::vector<SafetensorsTensor> tensors,
                                     const std::map<std::string, std::string>& metadata);

// Product of the dimensions, times the element size; -1 when it does not fit into 63 bits or a
// dimension is negative. A scalar (empty shape) has one element.
int64_t checked_bytes(DType dtype, const std::vector<int64_t>& shape);

std::string format_shape(const std::vector<int64_t>& shape);  // "[2, 3]"

}  // namespace tutti::checkpoint
