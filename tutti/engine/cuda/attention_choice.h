// Which attention goes to cuDNN's fused kernels, and what is said of one that does not.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/base/dtype.h"

namespace tutti::engine {

struct AttentionShape {
  int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  DType dtype = DType::bf16;
  bool documents = false;  // sequences have further beginnings
  int64_t elements = 0;    // with documents: of the largest operand, gaps included
  bool aligned = true;     // all operands and their rows to 16 bytes
};

// Why the library is not even asked, in one line; empty: it is.
std::string why_not_fused(const AttentionShape& shape);

// "attention B8 T1024 A12 K12 D64: ...", with the reason: why_not_fused() or the library's own.
std::string plain_attention_note(const AttentionShape& shape, const std::string& reason);

}  // namespace tutti::engine
