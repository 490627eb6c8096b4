// cuDNN has no stand-in on the host: attention goes to the plain kernels.
#include <string>

#include "tutti/engine/cuda/attention.h"

namespace tutti::engine {

struct CudnnAttention::Plans {};

CudnnAttention::CudnnAttention(CudaStream& stream) : stream_(stream) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::refuse(const AttentionShape& /*shape*/, const std::string& reason) {
  refusal_ = reason;
  return false;
}

bool CudnnAttention::forward(const AttentionForwardArgs& /*args*/) {
  return refuse({}, "there is no cuDNN on the host");
}
bool CudnnAttention::backward(const AttentionBackwardArgs& /*args*/) {
  return refuse({}, "there is no cuDNN on the host");
}

}  // namespace tutti::engine
