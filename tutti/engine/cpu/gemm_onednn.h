// The general matrix product: oneDNN's matmul with primitives kept per shape. Types that oneDNN
// cannot multiply on this machine (bf16 without AVX-512) are converted to f32 around it.
#pragma once

#include <memory>

#include "tutti/engine/cpu/stream.h"

namespace tutti::engine {

// The primitives of one stream. A shape's first use creates its primitive (about 0.5 ms).
class GemmCache {
 public:
  GemmCache();
  ~GemmCache();
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// oneDNN 2.6 has products of bf16 from AVX-512 on; TUTTI_CPU_ISA may have limited it for good.
bool onednn_multiplies_bf16();

// As OpTable::gemm, without recording. m, n and k are not zero.
void gemm_onednn(CpuStream& stream, const GemmArgs& args);

// The same without a primitive, for shapes that change from call to call; bias must be empty.
void gemm_any(CpuStream& stream, const GemmArgs& args);

// Scratch memory that suffices for gemm_any of `args` and of every smaller product.
int64_t gemm_any_scratch_bytes(const GemmArgs& args);

}  // namespace tutti::engine
