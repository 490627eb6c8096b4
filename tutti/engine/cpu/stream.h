// The CPU's stream: a thread count and the memory that kernels need besides their operands. It
// runs every operation to its end before returning. One host thread uses a stream at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "tutti/engine/stream.h"

namespace tutti::engine {

class GemmCache;  // gemm_onednn.h

class CpuStream final : public Stream {
 public:
  explicit CpuStream(int threads);  // 0: one per available core
  ~CpuStream() override;

  void synchronize() override {}
  int threads() const override { return threads_; }

  // Makes parallel_ranges and libraries called from this thread use threads(). Called by
  // begin_op() (record.h), so by every kernel.
  void enter() const;

  // Scratch memory of the running operation, 4096-aligned, content undefined: valid until the next
  // call. Allocates only when `bytes` exceeds every earlier request, hence not after warm-up.
  void* scratch(int64_t bytes);

  GemmCache& gemm_cache() { return *gemm_cache_; }

 private:
  int threads_ = 1;
  void* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  std::unique_ptr<GemmCache> gemm_cache_;
};

// The stream a CPU kernel was called with.
inline CpuStream& cpu_stream(Stream& stream) { return static_cast<CpuStream&>(stream); }

}  // namespace tutti::engine
