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

  void synchronize() override;  // everything is done already
  int threads() const override { return threads_; }

  // Makes parallel_ranges and libraries called from this thread use threads(). Called by
  // begin_op() (record.h), so by every kernel.
  void enter() const;

  // Scratch memory of the running operation, 4096-aligned, content undefined: valid until the next
  // call. Allocates only when `bytes` exceeds every earlier request, hence not after warm-up.
  void* scratch(int64_t bytes);

  // The same for what an operation hands to another one's kernel, which has scratch() to itself.
  void* operands(int64_t bytes);

  GemmCache& gemm_cache() { return *gemm_cache_; }

 private:
  struct Room {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  static void* grow(Room& room, int64_t bytes);

  int threads_ = 1;
  Room scratch_;
  std::unique_ptr<GemmCache> gemm_cache_;
  Room operands_;
};

// The stream a CPU kernel was called with.
inline CpuStream& cpu_stream(Stream& stream) { return static_cast<CpuStream&>(stream); }

}  // namespace tutti::engine
