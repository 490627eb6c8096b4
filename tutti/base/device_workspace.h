// Size of the workspace of device kernels, one per stream. The memory map counts it
// (spec/memory/memory.h), the CUDA backend allocates it (engine/cuda/stream.h), so both read its
// size here.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tutti {

// Of products: what cuBLAS recommends on Hopper and later (its documentation,
// cublasSetWorkspace()).
inline constexpr int64_t kProductWorkspaceBytes = int64_t{32} << 20;
inline constexpr int64_t kWorkspaceGrainBytes = int64_t{2} << 20;

// What a stream allocates when an operation asks for `bytes`: whole grains, that of products at
// least.
constexpr int64_t device_workspace_bytes(int64_t bytes) {
  const int64_t grains = (bytes + kWorkspaceGrainBytes - 1) / kWorkspaceGrainBytes;
  return std::max(kProductWorkspaceBytes, grains * kWorkspaceGrainBytes);
}

}  // namespace tutti
