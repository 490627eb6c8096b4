// CUDA's stream: a device, a queue on it, and the workspace and library handles of operations. One
// host thread uses a stream at a time. Sources that only launch kernels include launch.h and
// record.h, which include this.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tutti/engine/backend.h"
#include "tutti/engine/device_stream.h"

namespace tutti::engine {

class CudaGemm;        // gemm.h
class CudnnAttention;  // attention.h
class OpTimer;         // op_timer.h

class CudaStream final : public DeviceStream {
 public:
  explicit CudaStream(const StreamOptions& options);
  ~CudaStream() override;

  void synchronize() override;
  int threads() const override { return threads_; }
  ArenaKind memory() const override { return ArenaKind::device; }
  void transfer(void* to, const void* from, int64_t bytes) override;
  void zero(void* to, int64_t bytes) override;
  void mark(int point) override;
  void reach(int point) override;
  void replay(int key, const std::function<void()>& work) override;
  void forget(int key) override;
  bool replays() const override { return !blocking_ && recorder() == nullptr; }
  void push_range(const char* name) override;
  void pop_range() override;
  void* native_handle() override { return handle_; }

  cudaStream_t handle() const { return handle_; }
  int device() const { return device_; }
  int capability() const { return capability_; }  // 90 for 9.0
  bool tf32() const { return tf32_; }
  bool deterministic() const { return deterministic_; }
  bool blocking() const { return blocking_; }
  bool capturing() const { return capturing_; }
  const std::string& tuning_folder() const { return tuning_folder_; }
  void count_operation() { ++operations_; }

  // Device memory for the running operation, aligned to 256, content undefined: valid until the
  // next operation. Allocates only if `bytes` exceeds every earlier request, hence not after
  // warm-up; during capture this aborts. It then frees the smaller workspace and drops all graphs,
  // which contain its address: each is captured again at its next replay.
  void* workspace(int64_t bytes);
  // Device memory that the stream has allocated.
  int64_t workspace_bytes() const { return workspace_bytes_; }

  CudaGemm& gemm() { return *gemm_; }
  CudnnAttention& attention() { return *attention_; }
  OpTimer& timer();  // created on first use

 private:
  void drop_graphs();

  int device_ = 0;
  int threads_ = 1;
  int capability_ = 0;
  bool tf32_ = false;
  bool deterministic_ = true;
  bool blocking_ = false;
  bool capturing_ = false;
  std::string tuning_folder_;
  cudaStream_t handle_ = nullptr;
  uint64_t operations_ = 0;  // enqueued so far
  void* workspace_ = nullptr;
  int64_t workspace_bytes_ = 0;
  std::array<cudaEvent_t, kPoints> points_ = {};
  std::array<bool, kPoints> marked_ = {};
  std::map<int, cudaGraphExec_t> graphs_;
  std::unique_ptr<CudaGemm> gemm_;
  std::unique_ptr<CudnnAttention> attention_;
  std::unique_ptr<OpTimer> timer_;
};

// The CUDA stream behind the argument of a CUDA operation.
inline CudaStream& cuda_stream(Stream& stream) { return static_cast<CudaStream&>(stream); }

// The complete table of the CUDA backend.
const OpTable& cuda_ops();

}  // namespace tutti::engine
