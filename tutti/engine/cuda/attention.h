// Attention by cuDNN's fused kernels. What they do not take (f32, head sizes that are no multiple
// of 8, documents that begin anywhere) goes to the plain kernels (attention_plain.cu).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tutti/engine/cuda/attention_choice.h"
#include "tutti/engine/ops.h"

namespace tutti::engine {

class CudaStream;

class CudnnAttention {
 public:
  explicit CudnnAttention(CudaStream& stream);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // False where the library has no kernel for these shapes: nothing was enqueued.
  bool forward(const AttentionForwardArgs& args);
  bool backward(const AttentionBackwardArgs& args);
  // Why, in the library's words where it was asked; of the last such call.
  const std::string& refusal() const { return refusal_; }

 private:
  // False, after a note to people (engine/notes.h).
  bool refuse(const AttentionShape& shape, const std::string& reason);

  struct Plans;  // of every shape seen, and the library's handle
  std::unique_ptr<Plans> plans_;
  CudaStream& stream_;
  std::string refusal_;
};

// The operations by the plain kernels, without a record (attention_plain.cu). lse may be empty.
void attention_plain_forward(CudaStream& stream, const AttentionForwardArgs& args);
void attention_plain_backward(CudaStream& stream, const AttentionBackwardArgs& args);

}  // namespace tutti::engine
