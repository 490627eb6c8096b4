#include "tutti/checkpoint/store/snapshot.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "tutti/base/check.h"
#include "tutti/checkpoint/store/safetensors.h"

namespace tutti::checkpoint {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// One run of bytes, contiguous in the source and in the copy.
struct Run {
  const char* from;
  int64_t bytes;
  int64_t to;  // offset in the copy
};

// Below this a second thread costs more than it saves.
constexpr int64_t kLeastBytesPerTask = int64_t{1} << 20;

}  // namespace

int64_t tensor_bytes(const TensorSource& tensor) {
  const int64_t bytes = checked_bytes(tensor.dtype, tensor.shape);
  TUTTI_CHECK(bytes >= 0, "tensor {} has impossible shape {}", tensor.name,
              format_shape(tensor.shape));
  return bytes;
}

int64_t tensor_bytes(const std::vector<TensorSource>& tensors) {
  int64_t bytes = 0;
  for (const TensorSource& tensor : tensors) bytes += tensor_bytes(tensor);
  return bytes;
}

void Snapshot::Free::operator()(char* memory) const { std::free(memory); }

Snapshot::Snapshot(int64_t capacity_bytes, engine::Stream* stream)
    : capacity_bytes_(capacity_bytes) {
  TUTTI_CHECK(capacity_bytes >= 0, "capacity {}", capacity_bytes);
  if (capacity_bytes == 0) return;
  if (stream != nullptr && stream->memory() == engine::ArenaKind::device) {
    stream_ = stream;
    pinned_.emplace("checkpoint snapshot", capacity_bytes, engine::ArenaKind::pinned);
    memory_ = static_cast<char*>(pinned_->data());
    return;
  }
  const size_t bytes =
      (static_cast<size_t>(capacity_bytes) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  own_.reset(static_cast<char*>(std::aligned_alloc(kHugePageBytes, bytes)));
  memory_ = own_.get();
  TUTTI_CHECK(memory_ != nullptr, "out of memory for a checkpoint snapshot of {} bytes", bytes);
#ifdef __linux__
  ::madvise(memory_, bytes, MADV_HUGEPAGE);  // a hint; small pages work too
#endif
  std::memset(memory_, 0, bytes);
}

std::vector<TensorSource> Snapshot::copy(const std::vector<TensorSource>& tensors,
                                         const ParallelFor& parallel) {
  const int64_t total = tensor_bytes(tensors);
  TUTTI_CHECK(total <= capacity_bytes_, "snapshot of {} bytes into {} bytes", total,
              capacity_bytes_);
  std::vector<TensorSource> copies = tensors;
  std::vector<Run> runs;
  int64_t to = 0;
  for (TensorSource& tensor : copies) {
    TUTTI_CHECK(!tensor.stream, "tensor {} is not in memory", tensor.name);
    const int64_t bytes = tensor_bytes(tensor);
    const char* from = static_cast<const char*>(tensor.data);
    // Tensors of one arena are adjacent: one long copy runs faster than many short ones.
    if (!runs.empty() && runs.back().from + runs.back().bytes == from) {
      runs.back().bytes += bytes;
    } else if (bytes > 0) {
      runs.push_back({from, bytes, to});
    }
    tensor.data = memory_ + to;
    to += bytes;
  }
  if (stream_ != nullptr) {
    for (const Run& run : runs) stream_->transfer(memory_ + run.to, run.from, run.bytes);
    stream_->synchronize();
    return copies;
  }
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  const int64_t tasks = std::clamp<int64_t>(total / kLeastBytesPerTask, 1, cores);
  parallel(tasks, [&](int64_t task) {
    const int64_t begin = total / tasks * task;
    const int64_t end = task + 1 == tasks ? total : total / tasks * (task + 1);
    for (const Run& run : runs) {
      const int64_t first = std::max(begin, run.to);
      const int64_t last = std::min(end, run.to + run.bytes);
      if (first >= last) continue;
      std::memcpy(memory_ + first, run.from + (first - run.to), static_cast<size_t>(last - first));
    }
  });
  return copies;
}

}  // namespace tutti::checkpoint
