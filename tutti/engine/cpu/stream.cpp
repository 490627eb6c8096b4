#include "tutti/engine/cpu/stream.h"

#include <sys/mman.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "tutti/base/check.h"
#include "tutti/engine/cpu/gemm_onednn.h"
#include "tutti/engine/cpu/isa.h"

namespace tutti::engine {
namespace {

// Cores this process may run on (as taskset, cgroup cpusets and OMP_NUM_THREADS allow).
int available_cores() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

constexpr int64_t kScratchGrain = int64_t{2} << 20;  // a huge page

}  // namespace

CpuStream::CpuStream(int threads)
    : Stream(cpu_ops()),
      threads_(threads > 0 ? threads : available_cores()),
      gemm_cache_(std::make_unique<GemmCache>()) {
  current_isa();  // chooses the kernels' targets, or throws, before the first operation
  enter();
}

CpuStream::~CpuStream() {
  if (scratch_ != nullptr) munmap(scratch_, static_cast<size_t>(scratch_bytes_));
}

void CpuStream::enter() const {
#ifdef _OPENMP
  if (omp_get_max_threads() != threads_) omp_set_num_threads(threads_);
#endif
}

void* CpuStream::scratch(int64_t bytes) {
  if (bytes > scratch_bytes_) {
    if (scratch_ != nullptr) munmap(scratch_, static_cast<size_t>(scratch_bytes_));
    scratch_bytes_ = (bytes + kScratchGrain - 1) / kScratchGrain * kScratchGrain;
    scratch_ = mmap(nullptr, static_cast<size_t>(scratch_bytes_), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TUTTI_CHECK(scratch_ != MAP_FAILED, "no memory for {} bytes of scratch", scratch_bytes_);
    madvise(scratch_, static_cast<size_t>(scratch_bytes_), MADV_HUGEPAGE);  // a hint
  }
  return scratch_;
}

std::unique_ptr<Stream> make_cpu_stream(int threads) {
  return std::make_unique<CpuStream>(threads);
}

}  // namespace tutti::engine
