// The CPU's stream: a thread count and the workspace of kernels. It is synchronous: every operation
// is complete when its call returns. One host thread uses a stream at a time.
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

  void synchronize() override;  // nothing to wait for
  int threads() const override { return threads_; }

  // Makes parallel_ranges and libraries called from this thread use threads(). begin_op()
  // (record.h) calls it, hence every kernel does.
  void enter() const;

  // Scratch memory of the running operation, 4096-aligned, content undefined: valid until the next
  // call. Allocates only if `bytes` exceeds every earlier request, hence not after warm-up.
  void* scratch(int64_t bytes);

  // A second buffer for operands that one operation passes to another one's kernel, which may use
  // scratch().
  void* operands(int64_t bytes);

  GemmCache& gemm_cache() { return *gemm_cache_; }

 private:
  struct Buffer {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  static void* grow(Buffer& buffer, int64_t bytes);

  int threads_ = 1;
  Buffer scratch_;
  std::unique_ptr<GemmCache> gemm_cache_;
  Buffer operands_;
};

// The CPU stream behind the argument of a CPU kernel.
inline CpuStream& cpu_stream(Stream& stream) { return static_cast<CpuStream&>(stream); }

}  // namespace tutti::engine
