#include "tutti/checkpoint/huggingface/mxfp4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/checkpoint/huggingface/stream.h"

namespace tutti::checkpoint {
namespace {

// Magnitudes of e2m1, without its sign bit.
constexpr std::array<float, 8> kMxfp4Magnitudes = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

constexpr uint8_t kMxfp4NoScale = 255;  // NaN of e8m0

float mxfp4_value(unsigned code) {
  const float magnitude = kMxfp4Magnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

void check_mxfp4_tensor(const HfFolder& folder, const std::string& name,
                        const std::vector<int64_t>& shape) {
  if (!folder.contains(name)) {
    fail(ErrorKind::usage, "{}: tensor '{}' is missing, but weights in MXFP4 need it",
         folder.path(), name);
  }
  const SafetensorsTensor& found = folder.tensor(name);
  if (found.shape != shape || found.dtype != DType::u8) {
    fail(ErrorKind::usage, "{}: tensor '{}' is {} {}; by {} it should be u8 {}",
         folder.file_of(name), name, dtype_name(found.dtype), format_shape(found.shape),
         folder.config_path(), format_shape(shape));
  }
}

}  // namespace

std::string mxfp4_blocks(const HfPart& part) { return part.name + "_blocks"; }
std::string mxfp4_scales(const HfPart& part) { return part.name + "_scales"; }

bool has_mxfp4(const HfFolder& folder, const HfPart& part) {
  return part.stacked && part.shape.size() == 3 && !folder.contains(part.name) &&
         folder.contains(mxfp4_blocks(part));
}

void check_mxfp4(const HfFolder& folder, const HfPart& part) {
  const int64_t inputs = part.shape[1];
  if (inputs % kMxfp4Block != 0) {
    fail(ErrorKind::usage,
         "{}: tensor '{}' has {} inputs by {}, not a multiple of the block size {}",
         folder.file_of(mxfp4_blocks(part)), mxfp4_blocks(part), inputs, folder.config_path(),
         kMxfp4Block);
  }
  const std::vector<int64_t> scales = {part.shape[0], part.shape[2], inputs / kMxfp4Block};
  std::vector<int64_t> blocks = scales;
  blocks.push_back(kMxfp4Block / 2);
  check_mxfp4_tensor(folder, mxfp4_blocks(part), blocks);
  check_mxfp4_tensor(folder, mxfp4_scales(part), scales);
}

void decode_mxfp4(const uint8_t* blocks, const uint8_t* scales, int64_t count, bf16* out) {
  for (int64_t first = 0; first < count; first += kMxfp4Block) {
    const uint8_t scale = scales[first / kMxfp4Block];
    if (scale == kMxfp4NoScale) {
      std::fill_n(out + first, kMxfp4Block, to_bf16(std::numeric_limits<float>::quiet_NaN()));
      continue;
    }
    const int exponent = static_cast<int>(scale) - 127;
    for (int64_t i = 0; i < kMxfp4Block; i += 2) {
      const unsigned pair = blocks[(first + i) / 2];
      out[first + i] = to_bf16(std::ldexp(mxfp4_value(pair & 15), exponent));
      out[first + i + 1] = to_bf16(std::ldexp(mxfp4_value(pair >> 4), exponent));
    }
  }
}

int64_t stream_mxfp4(const HfFolder& folder, const HfPart& part, DType to,
                     const AppendBytes& append) {
  const std::string name = mxfp4_blocks(part);
  const auto* blocks = reinterpret_cast<const uint8_t*>(folder.bytes(name).data());
  const auto* scales = reinterpret_cast<const uint8_t*>(folder.bytes(mxfp4_scales(part)).data());
  const int64_t inputs = part.shape[1];
  const int64_t outputs = part.shape[2];
  const int64_t each = inputs * outputs;
  std::vector<bf16> expert(static_cast<size_t>(each));
  for (int64_t e = 0; e < part.shape[0]; ++e) {
    decode_mxfp4(blocks + e * each / 2, scales + e * each / kMxfp4Block, each, expert.data());
    StreamedTensor streamed;
    streamed.name = fmt::format("{}: tensor '{}'", folder.file_of(name), name);
    streamed.rows = {.data = reinterpret_cast<const char*>(expert.data()),
                     .rows = outputs,
                     .columns = inputs,
                     .element_bytes = dtype_bytes(DType::bf16),
                     .order = part.alternating ? RowOrder::interleaved_to_half : RowOrder::same,
                     .head_dim = outputs};
    streamed.from = DType::bf16;
    streamed.to = to;
    stream_tensor(streamed, append);
    folder.release(name, e * each / 2, (e + 1) * each / 2);
  }
  return static_cast<int64_t>(folder.bytes(name).size() + folder.bytes(mxfp4_scales(part)).size());
}

}  // namespace tutti::checkpoint
