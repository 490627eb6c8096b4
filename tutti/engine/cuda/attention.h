// Attention by cuDNN's fused kernels: complete sequences, packed documents, and the blocks of ring
// attention. Unsupported cases (f32, head sizes that are not a multiple of 8, documents of at most
// 64 tokens) use the plain kernels (attention_plain.cu).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tutti/base/attention_workspace.h"
#include "tutti/engine/cuda/attention_choice.h"
#include "tutti/engine/ops.h"

namespace tutti::engine {

class CudaStream;
class SdpaPlans;  // sdpa.h

class CudnnAttention {
 public:
  explicit CudnnAttention(CudaStream& stream);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // False if the library has no kernel for these shapes: nothing was enqueued.
  bool forward(const AttentionForwardArgs& args);
  bool backward(const AttentionBackwardArgs& args);
  bool forward(const AttentionBlockForwardArgs& args);
  bool backward(const AttentionBlockBackwardArgs& args);
  // Reason of the last call that returned false; the library's message if it was queried.
  const std::string& refusal() const { return refusal_; }

  // Splits backward calls so that each needs at most this much memory, except for the smallest
  // piece (base/attention_workspace.h). For tests.
  void limit_pieces(int64_t bytes) { piece_bytes_ = bytes; }

 private:
  // Returns false, after a note for users (engine/notes.h).
  bool refuse(const AttentionShape& shape, const std::string& reason);

  std::unique_ptr<SdpaPlans> plans_;
  CudaStream& stream_;
  std::string refusal_;
  int64_t piece_bytes_ = kAttentionPieceBytes;
};

// The operations on the plain kernels, without a record (attention_plain.cu). lse may be empty.
void attention_plain_forward(CudaStream& stream, const AttentionForwardArgs& args);
void attention_plain_backward(CudaStream& stream, const AttentionBackwardArgs& args);

}  // namespace tutti::engine
