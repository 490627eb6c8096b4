#include "tutti/checkpoint/huggingface/fp8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/narrow_float.h"
#include "tutti/checkpoint/store/elements.h"

namespace tutti::checkpoint {
namespace {

std::array<float, 256> fp8_numbers() {
  std::array<float, 256> out{};
  for (size_t code = 0; code < out.size(); ++code) {
    out[code] = decode<kE4m3>(static_cast<uint8_t>(code));
  }
  return out;
}

int64_t fp8_blocks(int64_t size) { return (size + kFp8Block - 1) / kFp8Block; }

std::vector<float> read_scales(const HfFolder& folder, const HfPart& part) {
  const std::string name = fp8_scales(part);
  const SafetensorsTensor& tensor = folder.tensor(name);
  std::vector<float> out(static_cast<size_t>(checked_bytes(DType::u8, tensor.shape)));
  convert_elements(tensor.dtype, folder.bytes(name).data(), DType::f32, out.data(),
                   static_cast<int64_t>(out.size()),
                   fmt::format("{}: tensor '{}'", folder.file_of(name), name), 0);
  return out;
}

// Rows [first, first + rows) of `part`, whose scales are those of rows of blocks.
void decode_rows(const HfPart& part, const uint8_t* codes, const std::vector<float>& scales,
                 int64_t first, int64_t rows, float* out) {
  const int64_t columns = part.shape[1];
  const int64_t across = fp8_blocks(columns);
  for (int64_t row = first; row < first + rows; ++row) {
    for (int64_t block = 0; block < across; ++block) {
      const int64_t from = block * kFp8Block;
      const int64_t count = std::min(kFp8Block, columns - from);
      decode_fp8(codes + row * columns + from,
                 scales[static_cast<size_t>(row / kFp8Block * across + block)], count,
                 out + (row - first) * columns + from);
    }
  }
}

}  // namespace

std::string fp8_scales(const HfPart& part) { return part.name + "_scale_inv"; }

bool has_fp8(const HfFolder& folder, const HfPart& part) {
  return folder.contains(part.name) && folder.tensor(part.name).e4m3;
}

void check_fp8(const HfFolder& folder, const HfPart& part) {
  const std::string name = fp8_scales(part);
  const SafetensorsTensor& codes = folder.tensor(part.name);
  if (part.shape.size() != 2) {
    fail(ErrorKind::unsupported, "{}: tensor '{}' is F8_E4M3; only matrices may be",
         folder.file_of(part.name), part.name);
  }
  if (codes.shape != part.shape) {
    fail(ErrorKind::usage, "{}: tensor '{}' in FP8 has shape {}; by {} it should be {}",
         folder.file_of(part.name), part.name, format_shape(codes.shape), folder.config_path(),
         format_shape(part.shape));
  }
  if (!folder.contains(name)) {
    fail(ErrorKind::usage, "{}: tensor '{}' is missing, which weights in FP8 need", folder.path(),
         name);
  }
  const SafetensorsTensor& scales = folder.tensor(name);
  const std::vector<int64_t> wanted = {fp8_blocks(part.shape[0]), fp8_blocks(part.shape[1])};
  if (scales.shape != wanted || (scales.dtype != DType::f32 && scales.dtype != DType::bf16)) {
    fail(ErrorKind::usage, "{}: tensor '{}' is {} {}; by '{}' it should be f32 {}",
         folder.file_of(name), name, dtype_name(scales.dtype), format_shape(scales.shape),
         part.name, format_shape(wanted));
  }
  const std::vector<float> values = read_scales(folder, part);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0) continue;
    fail(ErrorKind::usage, "{}: tensor '{}' has the scale {} at element {}; scales are above 0",
         folder.file_of(name), name, values[i], i);
  }
}

void decode_fp8(const uint8_t* codes, float scale, int64_t count, float* out) {
  static const std::array<float, 256> numbers = fp8_numbers();
  for (int64_t i = 0; i < count; ++i) out[i] = numbers[codes[i]] * scale;
}

int64_t stream_fp8(const HfFolder& folder, const HfPart& part, DType to, RopeLayout layout,
                   int64_t head_dim, const AppendBytes& append) {
  const std::string_view bytes = folder.bytes(part.name);
  const auto* codes = reinterpret_cast<const uint8_t*>(bytes.data());
  const std::vector<float> scales = read_scales(folder, part);
  const int64_t rows = part.shape[0];
  const int64_t columns = part.shape[1];
  const int64_t at_once = part.rotary || part.transposed ? rows : kFp8Block;
  std::vector<float> decoded(static_cast<size_t>(std::min(rows, at_once) * columns));
  for (int64_t first = 0; first < rows; first += at_once) {
    HfPart piece = part;
    piece.shape[0] = std::min(at_once, rows - first);
    decode_rows(part, codes, scales, first, piece.shape[0], decoded.data());
    StreamedTensor streamed;
    streamed.name = fmt::format("{}: tensor '{}'", folder.file_of(part.name), part.name);
    streamed.rows = rows_to_ours(piece, DType::f32, reinterpret_cast<const char*>(decoded.data()),
                                 layout, head_dim);
    streamed.from = DType::f32;
    streamed.to = to;
    stream_tensor(streamed, append);
    folder.release(part.name, first * columns, (first + piece.shape[0]) * columns);
  }
  return static_cast<int64_t>(bytes.size() + folder.bytes(fp8_scales(part)).size());
}

}  // namespace tutti::checkpoint
