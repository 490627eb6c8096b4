#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/op_timer.h"

namespace tutti::engine {
namespace {

// Spins until the clock has advanced, so it terminates on any device.
__global__ void hold_kernel(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

}  // namespace

OpTimer::OpTimer(CudaStream& stream) : stream_(stream) {
  int kilohertz = 0;  // maximum clock of the multiprocessors: at a lower clock the hold is longer
  cuda_check(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, stream.device()),
             "cudaDeviceGetAttribute", "op_timer");
  hold_cycles_ = static_cast<int>(kHoldSeconds * 1e3 * kilohertz);
  cuda_check(cudaEventCreate(&begin_), "cudaEventCreate", "op_timer");
  cuda_check(cudaEventCreate(&end_), "cudaEventCreate", "op_timer");
}

OpTimer::~OpTimer() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

void OpTimer::begin() {
  launch(stream_, "op_timer", hold_kernel, dim3(1), dim3(1), 0, hold_cycles_);
  cuda_check(cudaEventRecord(begin_, stream_.handle()), "cudaEventRecord", "op_timer");
}

double OpTimer::end(const char* op) {
  cuda_check(cudaEventRecord(end_, stream_.handle()), "cudaEventRecord", op);
  cuda_check(cudaEventSynchronize(end_), "cudaEventSynchronize", op);
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime", op);
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace tutti::engine
