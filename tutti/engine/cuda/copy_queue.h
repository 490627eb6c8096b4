// A CUDA stream for copies next to a CudaStream; events synchronise the two (engine/copy_queue.h).
#pragma once

#include <cuda_runtime_api.h>

#include <array>

#include "tutti/engine/copy_queue.h"
#include "tutti/engine/cuda/stream.h"

namespace tutti::engine {

class CudaCopyQueue final : public CopyQueue {
 public:
  explicit CudaCopyQueue(CudaStream& stream);
  ~CudaCopyQueue() override;
  CudaCopyQueue(const CudaCopyQueue&) = delete;
  CudaCopyQueue& operator=(const CudaCopyQueue&) = delete;

  void copy(void* to, const void* from, int64_t bytes) override;
  void mark(int point) override;
  void after_stream() override;
  void after(const CopyQueue& other, int point) override;
  void stream_after(int point) override;

 private:
  cudaEvent_t event(int point) const;

  CudaStream& stream_;
  cudaStream_t queue_ = nullptr;
  cudaEvent_t stream_point_ = nullptr;
  std::array<cudaEvent_t, kPoints> points_ = {};
  std::array<bool, kPoints> marked_ = {};
};

}  // namespace tutti::engine
