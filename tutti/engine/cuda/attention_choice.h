// Selects the attention calls for cuDNN's fused kernels, and explains the others to users.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/base/dtype.h"

namespace tutti::engine {

struct AttentionShape {
  int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  DType dtype = DType::bf16;
  bool documents = false;  // sequences are packed documents
  int64_t elements = 0;    // with documents: elements of the largest operand, padding included
  bool aligned = true;     // all operands and their rows are aligned to 16 bytes
};

// Why the library is not queried, in one line; empty if it is.
std::string why_not_fused(const AttentionShape& shape);

// "attention B8 T1024 A12 K12 D64: ...", with the reason: why_not_fused() or the library's own.
std::string plain_attention_note(const AttentionShape& shape, const std::string& reason);

}  // namespace tutti::engine
