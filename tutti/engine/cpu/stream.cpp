#include "tutti/engine/cpu/stream.h"

#include <sys/mman.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "tutti/base/check.h"
#include "tutti/engine/cpu/gemm_onednn.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/device_calls.h"

namespace tutti::engine {
namespace {

// Cores this process may run on (as taskset, cgroup cpusets and OMP_NUM_THREADS allow): what OpenMP
// says before any stream has told it otherwise.
int available_cores() {
#ifdef _OPENMP
  static const int cores = omp_get_max_threads();
  return cores;
#else
  return 1;
#endif
}

int threads_of(int wanted) {
  const int all = available_cores();  // asked by the first stream, whatever it wants
  return wanted > 0 ? wanted : all;
}

constexpr int64_t kScratchGrain = int64_t{2} << 20;  // a huge page

}  // namespace

CpuStream::CpuStream(int threads)
    : Stream(cpu_ops()), threads_(threads_of(threads)), gemm_cache_(std::make_unique<GemmCache>()) {
  current_isa();  // chooses the kernels' targets, or throws, before the first operation
  enter();
}

CpuStream::~CpuStream() {
  for (const Room& room : {scratch_, operands_}) {
    if (room.data != nullptr) munmap(room.data, static_cast<size_t>(room.bytes));
  }
}

void CpuStream::synchronize() { note_device_call("synchronize"); }

void CpuStream::enter() const {
#ifdef _OPENMP
  if (omp_get_max_threads() != threads_) omp_set_num_threads(threads_);
#endif
}

void* CpuStream::grow(Room& room, int64_t bytes) {
  if (bytes > room.bytes) {
    if (room.data != nullptr) munmap(room.data, static_cast<size_t>(room.bytes));
    room.bytes = (bytes + kScratchGrain - 1) / kScratchGrain * kScratchGrain;
    room.data = mmap(nullptr, static_cast<size_t>(room.bytes), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TUTTI_CHECK(room.data != MAP_FAILED, "no memory for {} bytes of scratch", room.bytes);
    madvise(room.data, static_cast<size_t>(room.bytes), MADV_HUGEPAGE);  // a hint
  }
  return room.data;
}

void* CpuStream::scratch(int64_t bytes) { return grow(scratch_, bytes); }
void* CpuStream::operands(int64_t bytes) { return grow(operands_, bytes); }

std::unique_ptr<Stream> make_cpu_stream(int threads) {
  return std::make_unique<CpuStream>(threads);
}

}  // namespace tutti::engine
