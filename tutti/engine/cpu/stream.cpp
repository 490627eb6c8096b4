#include "tutti/engine/cpu/stream.h"

#include <sys/mman.h>

#include "tutti/base/check.h"
#include "tutti/engine/cpu/gemm_onednn.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/team.h"
#include "tutti/engine/device_calls.h"

namespace tutti::engine {
namespace {

constexpr int64_t kScratchGrain = int64_t{2} << 20;  // a huge page

}  // namespace

CpuStream::CpuStream(int threads)
    : Stream(cpu_ops()),
      threads_(threads > 0 ? threads : default_team_threads()),
      gemm_cache_(std::make_unique<GemmCache>()) {
  current_isa();  // selects the kernels' targets, or throws, before the first operation
  enter();
}

CpuStream::~CpuStream() {
  for (const Buffer& buffer : {scratch_, operands_}) {
    if (buffer.data != nullptr) munmap(buffer.data, static_cast<size_t>(buffer.bytes));
  }
}

void CpuStream::synchronize() { note_device_call("synchronize"); }

void CpuStream::enter() const { set_team_threads(threads_); }

void* CpuStream::grow(Buffer& buffer, int64_t bytes) {
  if (bytes > buffer.bytes) {
    if (buffer.data != nullptr) munmap(buffer.data, static_cast<size_t>(buffer.bytes));
    buffer.bytes = (bytes + kScratchGrain - 1) / kScratchGrain * kScratchGrain;
    buffer.data = mmap(nullptr, static_cast<size_t>(buffer.bytes), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TUTTI_CHECK(buffer.data != MAP_FAILED, "cannot allocate {} bytes of scratch memory",
                buffer.bytes);
    madvise(buffer.data, static_cast<size_t>(buffer.bytes), MADV_HUGEPAGE);  // a hint
  }
  return buffer.data;
}

void* CpuStream::scratch(int64_t bytes) { return grow(scratch_, bytes); }
void* CpuStream::operands(int64_t bytes) { return grow(operands_, bytes); }

std::unique_ptr<Stream> make_cpu_stream(int threads) {
  return std::make_unique<CpuStream>(threads);
}

}  // namespace tutti::engine
