#include "tutti/train/step/state_fetch.h"

#include <algorithm>

#include "tutti/engine/backend.h"
#include "tutti/train/session/run_state.h"
#include "tutti/train/step/step_scalars.h"

namespace tutti::train {
namespace {

constexpr int64_t kBuffers = 2;

}  // namespace

StateFetch::StateFetch(Trainer& trainer, int64_t chunk_bytes)
    : trainer_(trainer),
      chunk_bytes_(chunk_bytes),
      buffers_("state on its way", kBuffers * chunk_bytes, host_side(trainer.stream())),
      queue_(engine::find_backend(trainer.recipe().device).make_copy_queue(trainer.stream())) {}

bool StateFetch::lies_on_host(const void* data) const {
  const model::Memory& memory = trainer_.memory();
  return std::any_of(memory.map().arenas.begin(), memory.map().arenas.end(),
                     [&](const spec::ArenaPlan& plan) {
                       if (!plan.on_host) return false;
                       const char* begin = static_cast<char*>(memory.arena(plan.name).data());
                       return data >= begin && data < begin + plan.bytes;
                     });
}

std::vector<checkpoint::TensorSource> StateFetch::tensors() {
  std::vector<checkpoint::TensorSource> out = checkpoint_tensors(trainer_);
  trainer_.stream().synchronize();
  for (checkpoint::TensorSource& tensor : out) {
    if (lies_on_host(tensor.data)) continue;
    tensor.stream = [this, from = static_cast<const char*>(tensor.data),
                     bytes = checkpoint::tensor_bytes(tensor)](
                        const checkpoint::AppendBytes& append) { read(from, bytes, append); };
    tensor.data = nullptr;
  }
  return out;
}

// The stream has nothing else to do, so to wait for it is to wait for the chunk alone.
void StateFetch::read(const char* from, int64_t bytes, const checkpoint::AppendBytes& append) {
  const auto buffer = [&](int64_t chunk) {
    return static_cast<char*>(buffers_.data()) + chunk % kBuffers * chunk_bytes_;
  };
  const auto size = [&](int64_t chunk) {
    return std::min(chunk_bytes_, bytes - chunk * chunk_bytes_);
  };
  const auto begin = [&](int64_t chunk) {
    if (chunk * chunk_bytes_ >= bytes) return;
    queue_->copy(buffer(chunk), from + chunk * chunk_bytes_, size(chunk));
    queue_->mark(static_cast<int>(chunk % kBuffers));
  };
  queue_->after_stream();
  begin(0);
  for (int64_t chunk = 0; chunk * chunk_bytes_ < bytes; ++chunk) {
    begin(chunk + 1);
    queue_->stream_after(static_cast<int>(chunk % kBuffers));
    trainer_.stream().synchronize();
    append(buffer(chunk), size(chunk));
    fetched_bytes_ += size(chunk);
  }
}

}  // namespace tutti::train
