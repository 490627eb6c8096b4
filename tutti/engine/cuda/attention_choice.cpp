#include "tutti/engine/cuda/attention_choice.h"

#include <fmt/format.h>

#include <limits>

#include "tutti/base/attention_workspace.h"

namespace tutti::engine {

std::string why_not_fused(const AttentionShape& shape) {
  constexpr int64_t kMostHeadDim = 256;
  if (shape.dtype != DType::bf16) {
    return fmt::format("{}; the fused kernels support bf16 only", dtype_name(shape.dtype));
  }
  if (shape.documents && shape.sequence <= kShortDocument) {
    return fmt::format("documents of at most {} tokens", kShortDocument);
  }
  if (shape.elements > std::numeric_limits<int32_t>::max()) {
    return fmt::format("documents in {} elements; the fused kernels have 32-bit offsets",
                       shape.elements);
  }
  if (shape.sequence <= 1) return "a single token";
  if (shape.head_dim % 8 != 0 || shape.head_dim > kMostHeadDim) {
    return fmt::format("head size {}; the fused kernels support multiples of 8 up to {}",
                       shape.head_dim, kMostHeadDim);
  }
  if (!shape.aligned) return "operands whose rows are not aligned to 16 bytes";
  return "";
}

std::string plain_attention_note(const AttentionShape& shape, const std::string& reason) {
  return fmt::format(
      "attention B{} T{} A{} K{} D{} uses the plain kernels, which are slower than cuDNN's: {}",
      shape.batch, shape.sequence, shape.heads, shape.kv_heads, shape.head_dim, reason);
}

}  // namespace tutti::engine
