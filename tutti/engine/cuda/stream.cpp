#include "tutti/engine/cuda/stream.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <thread>

#include "tutti/base/check.h"
#include "tutti/base/device_workspace.h"
#include "tutti/base/error.h"
#include "tutti/engine/cuda/attention.h"
#include "tutti/engine/cuda/check.h"
#include "tutti/engine/cuda/device_fault.h"
#include "tutti/engine/cuda/gemm.h"
#include "tutti/engine/cuda/op_timer.h"

namespace tutti::engine {
namespace {

int host_threads(int asked) {
  return asked > 0 ? asked : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

CudaStream::CudaStream(const StreamOptions& options)
    : DeviceStream(cuda_ops()),
      device_(options.device),
      threads_(host_threads(options.threads)),
      tf32_(options.tf32),
      deterministic_(options.deterministic),
      blocking_(options.blocking),
      tuning_folder_(options.tuning_folder) {
  cuda_check(cudaSetDevice(device_), "cudaSetDevice", "stream");
  int major = 0;
  int minor = 0;
  const auto attribute = [&](int& value, cudaDeviceAttr which) {
    cuda_check(cudaDeviceGetAttribute(&value, which, device_), "cudaDeviceGetAttribute", "stream");
  };
  attribute(major, cudaDevAttrComputeCapabilityMajor);
  attribute(minor, cudaDevAttrComputeCapabilityMinor);
  capability_ = major * 10 + minor;
  prepare_device_faults();
  // Not the default stream, which cannot be captured and synchronises with others.
  cuda_check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags", "stream");
  for (cudaEvent_t& point : points_) {
    cuda_check(cudaEventCreateWithFlags(&point, cudaEventDisableTiming), "cudaEventCreateWithFlags",
               "stream");
  }
  workspace(kProductWorkspaceBytes);  // plans of attention request more if they need it
  gemm_ = std::make_unique<CudaGemm>(*this);
  attention_ = std::make_unique<CudnnAttention>(*this);
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(handle_);
  timer_.reset();
  attention_.reset();
  gemm_.reset();
  for (const auto& [key, graph] : graphs_) cudaGraphExecDestroy(graph);
  for (cudaEvent_t point : points_) cudaEventDestroy(point);
  cudaFree(workspace_);
  cudaStreamDestroy(handle_);
}

void CudaStream::synchronize() {
  TUTTI_CHECK(!capturing_, "synchronize() while a graph is captured, after {} operations",
              operations_);
  cuda_check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize", "synchronize");
}

void CudaStream::transfer(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  cuda_copy(to, from, bytes, handle_, "transfer");
  // The caller may reuse pageable memory when this returns. The driver does not guarantee that such
  // a copy is complete by then: it "might be synchronous".
  if (blocking_ ||
      (!capturing_ && (is_pageable(to, "transfer") || is_pageable(from, "transfer")))) {
    synchronize();
  }
}

void CudaStream::zero(void* to, int64_t bytes) {
  if (bytes == 0) return;
  cuda_check(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), handle_), "cudaMemsetAsync",
             "zero");
  if (blocking_) synchronize();
}

void CudaStream::mark(int point) {
  const auto index = static_cast<size_t>(point);
  cuda_check(cudaEventRecord(points_.at(index), handle_), "cudaEventRecord", "mark");
  marked_[index] = true;
}

void CudaStream::reach(int point) {
  const auto index = static_cast<size_t>(point);
  if (!marked_.at(index)) return;
  cuda_check(cudaEventSynchronize(points_[index]), "cudaEventSynchronize", "reach");
}

void CudaStream::replay(int key, const std::function<void()>& work) {
  if (!replays()) return work();
  auto found = graphs_.find(key);
  if (found == graphs_.end()) {
    // Thread-local: other threads (loader, checkpoint writer) may call the driver during capture.
    cuda_check(cudaStreamBeginCapture(handle_, cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture", "replay");
    capturing_ = true;
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {  // end the capture: a capturing stream cannot even be synchronised
      capturing_ = false;
      cudaStreamEndCapture(handle_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    capturing_ = false;
    cuda_check(cudaStreamEndCapture(handle_, &graph), "cudaStreamEndCapture", "replay");
    cudaGraphExec_t executable = nullptr;
    cuda_check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate", "replay");
    cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy", "replay");
    cuda_check(cudaGraphUpload(executable, handle_), "cudaGraphUpload", "replay");
    found = graphs_.emplace(key, executable).first;
  }
  cuda_check(cudaGraphLaunch(found->second, handle_), "cudaGraphLaunch", "replay");
}

void CudaStream::forget(int key) {
  const auto found = graphs_.find(key);
  if (found == graphs_.end()) return;
  synchronize();
  cuda_check(cudaGraphExecDestroy(found->second), "cudaGraphExecDestroy", "forget");
  graphs_.erase(found);
}

void CudaStream::drop_graphs() {
  for (const auto& [key, graph] : graphs_) {
    cuda_check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy", "workspace");
  }
  graphs_.clear();
}

OpTimer& CudaStream::timer() {
  if (timer_ == nullptr) timer_ = std::make_unique<OpTimer>(*this);
  return *timer_;
}

void CudaStream::push_range(const char* name) { nvtxRangePushA(name); }
void CudaStream::pop_range() { nvtxRangePop(); }

void* CudaStream::workspace(int64_t bytes) {
  if (bytes > workspace_bytes_) {
    TUTTI_CHECK(!capturing_, "workspace of {} bytes requested in a captured step, after one of {}",
                bytes, workspace_bytes_);
    // Enqueued work may still use the old workspace.
    synchronize();
    drop_graphs();  // they contain its address
    if (workspace_ != nullptr) cuda_check(cudaFree(workspace_), "cudaFree", "workspace");
    workspace_ = nullptr;
    workspace_bytes_ = 0;  // so that a smaller request after a failed one allocates again
    const int64_t wanted = device_workspace_bytes(bytes);
    const cudaError_t result = cudaMalloc(&workspace_, static_cast<size_t>(wanted));
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      fail(ErrorKind::unsupported,
           "device {}: cannot allocate {} bytes of workspace besides the arenas; choose a smaller "
           "micro-batch",
           device_, wanted);
    }
    cuda_check(result, "cudaMalloc", "workspace");
    workspace_bytes_ = wanted;
  }
  return workspace_;
}

}  // namespace tutti::engine
