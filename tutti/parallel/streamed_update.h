// The update of what lies in memory of the host (spec/recipe/offload.h): moments, and with bf16
// weights the masters. Pieces of a rank's shard take turns in two buffers of the device: while one
// is updated, the next is on its way in and the one before on its way out. Elements see the same
// arithmetic as without, in any order.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "tutti/engine/copy_queue.h"
#include "tutti/engine/stream.h"
#include "tutti/model/activation_offload.h"
#include "tutti/model/memory.h"
#include "tutti/parallel/owned_slice.h"

namespace tutti::parallel {

class StreamedUpdate {
 public:
  // slices: what the rank owns, ascending; their masters and moments on the host. Queues and memory
  // outlive this.
  StreamedUpdate(const std::vector<OwnedSlice>& slices, const model::Memory& memory,
                 const engine::CopyQueues& queues);

  // Enqueues the first pieces, to arrive while the step computes. What is written to the state from
  // now on would be lost: forget() lets the update fetch again, and the stream waits for these.
  void fetch_ahead();
  void forget();

  // Updates the next slice, the last one first: `update` is called for its parts, with state on the
  // device. After the first slice the stream has come after the last copy.
  void update_slice(const std::function<void(const optim::AdamwState& state)>& update);

  size_t pieces() const { return pieces_.size(); }

 private:
  // Point of either queue at which a buffer has arrived, or left.
  static int point(size_t buffer) {
    return model::ActivationOffload::kPoints + static_cast<int>(buffer);
  }
  struct Copy {  // of one array
    void* host = nullptr;
    void* device = nullptr;
    int64_t bytes = 0;
  };
  struct Part {
    optim::AdamwState state;
    bool ends = false;  // with it the whole slice is updated
  };
  struct Piece {
    std::vector<Copy> copies;
    std::vector<Part> parts;  // descending
  };
  void fetch(size_t turn);
  void leave(size_t turn);

  std::vector<Piece> pieces_;  // in the order of their turns
  size_t turn_ = 0;            // of the piece that is updated next
  size_t part_ = 0;            // of it
  engine::CopyQueue* out_;
  engine::CopyQueue* in_;
  bool fetched_ = false;
};

}  // namespace tutti::parallel
