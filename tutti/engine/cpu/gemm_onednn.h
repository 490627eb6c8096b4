// The general matrix product: oneDNN's matmul with primitives cached by shape. Types that oneDNN
// does not support on this machine (bf16 without AVX-512) are converted to f32 and back.
#pragma once

#include <memory>

#include "tutti/engine/cpu/stream.h"

namespace tutti::engine {

// The primitives of one stream. The first use of a shape creates its primitive (about 0.5 ms).
class GemmCache {
 public:
  GemmCache();
  ~GemmCache();
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Whether oneDNN multiplies bf16: oneDNN 2.6 needs AVX-512, and TUTTI_CPU_ISA may have limited its
// instruction set, which cannot be undone.
bool onednn_multiplies_bf16();

// Whether oneDNN multiplies bf16 in the tiles of AMX, several times as fast as by dot products of
// AVX-512. Not where TUTTI_CPU_ISA limits it.
bool onednn_has_tiles();

// OpTable::gemm without recording. m, n and k must not be zero.
void gemm_onednn(CpuStream& stream, const GemmArgs& args);

// The same without a cached primitive, for shapes that vary between calls; bias must be empty.
void gemm_any(CpuStream& stream, const GemmArgs& args);

// Scratch memory that is enough for gemm_any of `args` and of every smaller product.
int64_t gemm_any_scratch_bytes(const GemmArgs& args);

}  // namespace tutti::engine
