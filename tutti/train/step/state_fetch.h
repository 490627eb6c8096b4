// The state of a trainer in device memory, read in order for a copy: two pinned buffers alternate,
// so that one is read while the next is copied over a queue beside the stream. What lies in memory
// of the host already (spec/recipe/offload.h) is read there.
//
// Takes 2 * chunk_bytes of pinned memory, whatever the state takes, and brings each byte over the
// link once: of a trainable parameter 12 (master, moments), 10 where there are no masters, none of
// what is offloaded.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/checkpoint/store/snapshot.h"
#include "tutti/engine/arena.h"
#include "tutti/engine/copy_queue.h"
#include "tutti/train/step/trainer.h"

namespace tutti::train {

class StateFetch {
 public:
  // The trainer outlives it.
  explicit StateFetch(Trainer& trainer, int64_t chunk_bytes = int64_t{8} << 20);

  // What checkpoint_tensors() of the trainer names, to be read one after the other before the next
  // step. The host waits for each chunk as it is read.
  std::vector<checkpoint::TensorSource> tensors();

  int64_t fetched_bytes() const { return fetched_bytes_; }  // over the link so far

 private:
  bool lies_on_host(const void* data) const;
  void read(const char* from, int64_t bytes, const checkpoint::AppendBytes& append);

  Trainer& trainer_;
  const int64_t chunk_bytes_;
  engine::Arena buffers_;
  std::unique_ptr<engine::CopyQueue> queue_;  // ends before the buffers
  int64_t fetched_bytes_ = 0;
};

}  // namespace tutti::train
