#include "tutti/checkpoint/huggingface/pack_quantized.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"

namespace tutti::checkpoint {
namespace {

constexpr int64_t kElementsAtOnce = int64_t{1} << 20;

void check_tensor(const HfFolder& folder, const std::string& name, DType dtype,
                  const std::vector<int64_t>& shape, PackKind kind) {
  if (!folder.contains(name)) {
    fail(ErrorKind::usage, "{}: tensor '{}' is missing, which packed weights need", folder.path(),
         name);
  }
  const SafetensorsTensor& found = folder.tensor(name);
  if (found.dtype == dtype && found.shape == shape) return;
  fail(ErrorKind::usage, "{}: tensor '{}' is {} {}; packed as {} by {} it should be {} {}",
       folder.file_of(name), name, dtype_name(found.dtype), format_shape(found.shape),
       pack_name(kind), folder.config_path(), dtype_name(dtype), format_shape(shape));
}

// A tensor of `columns` elements per row of `part`, in the order of our rows.
RowSource packed_rows(const HfFolder& folder, const HfPart& part, const std::string& name,
                      DType type, int64_t columns, RopeLayout layout, int64_t head_dim) {
  HfPart rows = part;
  rows.shape = {part.shape[0], columns};
  return rows_to_ours(rows, type, folder.bytes(name).data(), layout, head_dim);
}

}  // namespace

std::string packed_codes(const HfPart& part) { return part.name + "_packed"; }
std::string packed_scales(const HfPart& part) { return part.name + "_scale"; }
std::string packed_shape(const HfPart& part) { return part.name + "_shape"; }

HfPart packed_part(const HfPart& part) {
  TUTTI_CHECK(part.shape.size() == 2 && !part.stacked, "tensor {} is no matrix", part.name);
  HfPart out = part;
  if (out.transposed) std::swap(out.shape[0], out.shape[1]);
  out.transposed = false;
  return out;
}

int64_t packed_words(PackKind kind, int64_t columns) {
  return columns * (kind == PackKind::int8 ? 8 : 4) / 32;
}

void pack_words(PackKind kind, const float* values, int64_t columns, uint8_t* words, bf16* scales) {
  std::vector<uint8_t> codes(static_cast<size_t>(packed_layout(kind, 1, columns).row_bytes));
  std::vector<int8_t> numbers(static_cast<size_t>(columns));
  pack_row(kind, values, columns, codes.data(), scales);
  get_codes(kind, codes.data(), columns, numbers.data());
  if (kind == PackKind::int8) {
    for (int64_t i = 0; i < columns; ++i) {
      words[i] = static_cast<uint8_t>(numbers[static_cast<size_t>(i)] + 128);
    }
    return;
  }
  for (int64_t i = 0; i < columns; i += 2) {
    const int low = numbers[static_cast<size_t>(i)] + 8;
    const int high = numbers[static_cast<size_t>(i + 1)] + 8;
    words[i / 2] = static_cast<uint8_t>(low | high << 4);
  }
}

void unpack_words(PackKind kind, const uint8_t* words, int64_t columns, int8_t* numbers) {
  if (kind == PackKind::int8) {
    for (int64_t i = 0; i < columns; ++i) numbers[i] = static_cast<int8_t>(words[i] - 128);
    return;
  }
  for (int64_t i = 0; i < columns; i += 2) {
    const int both = words[i / 2];
    numbers[i] = static_cast<int8_t>((both & 15) - 8);
    numbers[i + 1] = static_cast<int8_t>((both >> 4) - 8);
  }
}

bool has_packed(const HfFolder& folder, const HfPart& part) {
  return folder.contains(packed_codes(part));
}

void check_packed(const HfFolder& folder, const HfPart& part, PackKind kind) {
  const HfPart matrix = packed_part(part);
  const int64_t rows = matrix.shape[0];
  const int64_t columns = matrix.shape[1];
  if (columns % kPackGroup != 0) {
    fail(ErrorKind::usage, "{}: tensor '{}' is packed, but {} columns are not groups of {}",
         folder.path(), packed_codes(part), columns, kPackGroup);
  }
  check_tensor(folder, packed_codes(part), DType::i32, {rows, packed_words(kind, columns)}, kind);
  check_tensor(folder, packed_scales(part), DType::bf16, {rows, columns / kPackGroup}, kind);
  const std::string name = packed_shape(part);
  check_tensor(folder, name, DType::i64, {2}, kind);
  int64_t shape[2] = {};
  std::memcpy(shape, folder.bytes(name).data(), sizeof shape);
  if (shape[0] == rows && shape[1] == columns) return;
  fail(ErrorKind::usage, "{}: tensor '{}' says [{}, {}]; by {} it should say [{}, {}]",
       folder.file_of(name), name, shape[0], shape[1], folder.config_path(), rows, columns);
}

int64_t stream_packed(const HfFolder& folder, const HfPart& part, PackKind kind, RopeLayout layout,
                      int64_t head_dim, const PackedRows& sink) {
  const HfPart matrix = packed_part(part);
  const int64_t rows = matrix.shape[0];
  const int64_t columns = matrix.shape[1];
  const int64_t words = packed_words(kind, columns);
  const int64_t groups = columns / kPackGroup;
  const RowSource codes =
      packed_rows(folder, matrix, packed_codes(part), DType::i32, words, layout, head_dim);
  const RowSource scales =
      packed_rows(folder, matrix, packed_scales(part), DType::bf16, groups, layout, head_dim);
  const int64_t at_once = std::clamp<int64_t>(kElementsAtOnce / columns, 1, rows);
  std::vector<char> code_rows(static_cast<size_t>(at_once * words * 4));
  std::vector<bf16> scale_rows(static_cast<size_t>(at_once * groups));
  std::vector<int8_t> numbers(static_cast<size_t>(at_once * columns));
  const bool in_order = codes.order == RowOrder::same;
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t end = std::min(rows, first + at_once);
    gather_rows(codes, first, end, code_rows.data());
    gather_rows(scales, first, end, reinterpret_cast<char*>(scale_rows.data()));
    const int64_t count = (end - first) * columns;
    unpack_words(kind, reinterpret_cast<const uint8_t*>(code_rows.data()), count, numbers.data());
    const auto used = numbers.begin() + static_cast<std::ptrdiff_t>(count);
    if (kind == PackKind::int8 && std::find(numbers.begin(), used, int8_t{-128}) != used) {
      fail(ErrorKind::unsupported,
           "{}: tensor '{}' has the number -128; Tutti's int8 is -127 to 127",
           folder.file_of(packed_codes(part)), packed_codes(part));
    }
    const auto used_scales =
        scale_rows.begin() + static_cast<std::ptrdiff_t>((end - first) * groups);
    if (std::any_of(scale_rows.begin(), used_scales,
                    [](bf16 scale) { return !std::isfinite(to_f32(scale)); })) {
      fail(ErrorKind::corrupt, "{}: tensor '{}' has a scale that is not finite",
           folder.file_of(packed_scales(part)), packed_scales(part));
    }
    sink(end - first, numbers.data(), scale_rows.data());
    if (!in_order && end < rows) continue;
    const int64_t from = in_order ? first : 0;
    folder.release(packed_codes(part), from * words * 4, end * words * 4);
    folder.release(packed_scales(part), from * groups * 2, end * groups * 2);
  }
  return rows * (words * 4 + groups * 2);
}

}  // namespace tutti::checkpoint
