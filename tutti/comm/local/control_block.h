// Shared memory of the ranks of a local group, with the same layout for threads and processes. A
// rank writes its own slot, its staging memory, and its side of channels; arrivals are counted for
// all.
//
// Meeting. Collectives consist of phases. A rank publishes what the others need, then arrives; a
// phase has begun when all have arrived. No rank is more than one phase ahead, so what a rank
// publishes alternates between two slots and needs no further lock.
//
// Waiting. Every rank has a doorbell (base/doorbell.h); a rank that changes what others may wait
// for rings. The last to arrive rings for all.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "tutti/base/doorbell.h"
#include "tutti/comm/collectives/call.h"
#include "tutti/comm/local/segment.h"

namespace tutti::comm {

// Where a buffer lies, for other ranks (peer_memory.h).
struct Location {
  enum : int32_t { kUnreachable = -1, kSameProcess = -2 };
  int32_t arena = kUnreachable;  // index of a shared arena of the rank
  uint64_t address = 0;          // offset into the arena; kSameProcess: the pointer
};

struct PublishedCall {
  CallShape shape;
  uint64_t number = 0;  // among the collectives of the group
  Location send;
  Location receive;
};

struct alignas(64) RankSlot {
  Doorbell doorbell;
  std::atomic<uint32_t> presence;  // Presence
  std::atomic<uint32_t> working;   // reading or writing buffers of others
  std::atomic<uint64_t> arrived;   // phases
  std::atomic<int32_t> process;    // pid
  // What the rank is doing (RankActivity), in parts.
  std::atomic<uint64_t> calls;
  std::atomic<uint64_t> call_kind;  // kind, dtype, reduce, root: see pack_kind
  std::atomic<int64_t> call_count;
  std::atomic<int64_t> since_nanoseconds;
  std::atomic<uint32_t> inside;
  PublishedCall published[2];
};
enum class Presence : uint32_t { expected, here, left };

// Messages from one rank to another: up to two pieces on their way.
struct Piece {
  CallShape shape;
  int64_t begin = 0;  // elements of the message; direct pieces are whole messages
  int64_t count = 0;
  Location source;  // unreachable: the bytes are in the channel's memory
};
struct Channel {
  alignas(64) std::atomic<uint64_t> posted;  // pieces, by the sender
  alignas(64) std::atomic<uint64_t> taken;   // by the receiver
  Piece pieces[2];
};

class ControlBlock {
 public:
  static constexpr int64_t kInlineBytes = 16 << 10;  // calls up to this size need one meeting
  static constexpr int64_t kStagingBytes = 1 << 20;  // per rank and turn, for private buffers
  static constexpr int64_t kPieceBytes = 128 << 10;  // of a message
  static constexpr size_t kMessageBytes = 1000;

  static int64_t bytes(int size);

  // The creator formats the block; others check it. Throws corrupt or peer (another generation, or
  // a creator that does not come to format it).
  ControlBlock(std::shared_ptr<Segment> segment, int rank, int size, uint64_t generation,
               bool create, double timeout_seconds);

  int size() const { return size_; }
  RankSlot& slot(int rank) const { return slots_[rank]; }
  Channel& channel(int from, int to) const { return channels_[from * size_ + to]; }
  char* piece_data(int from, int to, uint64_t piece) const {
    return pieces_ +
           ((int64_t{from} * size_ + to) * 2 + static_cast<int64_t>(piece % 2)) * kPieceBytes;
  }
  char* inline_data(uint64_t turn, int rank) const {
    return inline_ + (static_cast<int64_t>(turn % 2) * size_ + rank) * kInlineBytes;
  }
  char* staging(uint64_t turn, int rank) const {
    return staging_ + (static_cast<int64_t>(turn % 2) * size_ + rank) * kStagingBytes;
  }
  // Send counts of a rank, then its receive counts, for all_to_all.
  int64_t* counts(uint64_t turn, int rank) const {
    return counts_ + (static_cast<int64_t>(turn % 2) * size_ + rank) * 2 * size_;
  }

  // Phases, from 1.
  void arrive(uint64_t phase) const;
  bool all_arrived(uint64_t phase) const;

  void ring(int rank) const;
  void ring_all() const;
  // Returns when the doorbell of this rank is no longer `seen`, or after the timeout: false.
  bool wait(uint32_t seen, bool spin, double timeout_seconds) const;

  // The first message counts.
  void fail(const std::string& message) const;
  bool failed() const;
  std::string message() const;  // of a block that has failed

  // Whether the process of a rank that has come still runs (threads always do).
  bool is_alive(int rank) const;
  void enter(bool threads);  // this rank is here; `threads`: all ranks are threads of this process
  void leave() const;

 private:
  struct Header;
  std::shared_ptr<Segment> segment_;
  int rank_ = 0;
  int size_ = 0;
  bool threads_ = false;
  Header* header_ = nullptr;
  RankSlot* slots_ = nullptr;
  Channel* channels_ = nullptr;
  int64_t* counts_ = nullptr;
  char* inline_ = nullptr;
  char* staging_ = nullptr;
  char* pieces_ = nullptr;
};

}  // namespace tutti::comm
