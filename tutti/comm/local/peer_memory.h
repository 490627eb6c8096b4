// Memory of other ranks of this host in shared arenas: lets a collective read and write the buffers
// of all ranks directly, without copies through staging memory.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tutti/comm/local/control_block.h"
#include "tutti/comm/local/segment.h"
#include "tutti/engine/arena.h"

namespace tutti::comm {

class PeerMemory {
 public:
  static constexpr int kMaxArenas = 64;  // per rank

  static int64_t bytes(int ranks);
  // `local_rank`: of this rank among the `ranks` ranks of the host. `threads`: they are all threads
  // of this process, so every buffer is reachable by its pointer.
  PeerMemory(std::shared_ptr<Segment> segment, int local_rank, int ranks, bool threads);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // Lets the other ranks reach buffers in this arena, which must be of kind shared, until it is
  // withdrawn. Throws unsupported after kMaxArenas.
  void share(const engine::Arena& arena);
  // No call that uses it is under way, and none that follows will.
  void withdraw(const engine::Arena& arena);

  // Of a buffer of this rank; unreachable unless it lies within a shared arena (or is empty).
  Location locate(const void* data, int64_t bytes) const;
  // The buffer of the rank at `local_rank`, in this process. Maps its arena at the first use.
  char* reach(int local_rank, const Location& location);

 private:
  struct Entry;
  struct Table;
  struct Mapping {
    char* data = nullptr;
    int64_t bytes = 0;
  };
  struct Own {
    const char* data = nullptr;
    int64_t bytes = 0;
  };

  std::shared_ptr<Segment> segment_;
  int local_rank_ = 0;
  bool threads_ = false;
  Table* tables_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<Own> own_;
  std::vector<std::vector<Mapping>> mappings_;  // [local_rank][arena]
};

}  // namespace tutti::comm
