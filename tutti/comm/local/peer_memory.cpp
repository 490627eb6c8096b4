#include "tutti/comm/local/peer_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tutti/base/check.h"
#include "tutti/base/error.h"

namespace tutti::comm {

struct PeerMemory::Entry {
  int64_t bytes;
  int32_t process;
  int32_t file;
};
struct PeerMemory::Table {
  alignas(64) std::atomic<int32_t> count;
  Entry entries[kMaxArenas];
};

int64_t PeerMemory::bytes(int ranks) { return ranks * static_cast<int64_t>(sizeof(Table)); }

// The memory is zero at first: tables without entries.
PeerMemory::PeerMemory(std::shared_ptr<Segment> segment, int local_rank, int ranks, bool threads)
    : segment_(std::move(segment)),
      local_rank_(local_rank),
      threads_(threads),
      tables_(static_cast<Table*>(segment_->data())),
      mappings_(static_cast<size_t>(ranks)) {
  TUTTI_CHECK(local_rank >= 0 && local_rank < ranks && segment_->bytes() == bytes(ranks),
              "local rank {} of {}, {} bytes", local_rank, ranks, segment_->bytes());
  for (std::vector<Mapping>& arenas : mappings_) arenas.resize(kMaxArenas);
}

PeerMemory::~PeerMemory() {
  for (const std::vector<Mapping>& arenas : mappings_) {
    for (const Mapping& mapping : arenas) {
      if (mapping.data != nullptr) munmap(mapping.data, static_cast<size_t>(mapping.bytes));
    }
  }
}

void PeerMemory::share(const engine::Arena& arena) {
  if (arena.bytes() == 0) return;
  TUTTI_CHECK(arena.file_descriptor() >= 0, "arena {} is not shared", arena.name());
  const std::lock_guard lock(mutex_);
  Table& table = tables_[local_rank_];
  const int32_t index = table.count.load();
  if (index == kMaxArenas) {
    fail(ErrorKind::unsupported, "arena {}: {} arenas are shared already", arena.name(), index);
  }
  table.entries[index] = {arena.bytes(), getpid(), arena.file_descriptor()};
  table.count.store(index + 1);
  own_.push_back({static_cast<const char*>(arena.data()), arena.bytes()});
}

// The others may still have it mapped; its number is not used again.
void PeerMemory::withdraw(const engine::Arena& arena) {
  const std::lock_guard lock(mutex_);
  for (Own& own : own_) {
    if (own.data == arena.data()) own = {};
  }
}

Location PeerMemory::locate(const void* data, int64_t bytes) const {
  const auto* begin = static_cast<const char*>(data);
  Location location;
  if (threads_ || bytes == 0) {
    location.arena = Location::kSameProcess;
    location.address = reinterpret_cast<uintptr_t>(data);
    return location;
  }
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < own_.size(); ++i) {
    if (begin >= own_[i].data && begin + bytes <= own_[i].data + own_[i].bytes) {
      location.arena = static_cast<int32_t>(i);
      location.address = static_cast<uint64_t>(begin - own_[i].data);
      break;
    }
  }
  return location;
}

char* PeerMemory::reach(int local_rank, const Location& location) {
  // For an empty buffer in another process this is not an address; it is never read.
  if (location.arena == Location::kSameProcess) {
    return reinterpret_cast<char*>(location.address);  // NOLINT(performance-no-int-to-ptr)
  }
  const std::lock_guard lock(mutex_);
  if (local_rank == local_rank_) {
    return const_cast<char*>(own_[static_cast<size_t>(location.arena)].data) + location.address;
  }
  Mapping& mapping =
      mappings_[static_cast<size_t>(local_rank)][static_cast<size_t>(location.arena)];
  if (mapping.data == nullptr) {
    const Table& table = tables_[local_rank];
    TUTTI_CHECK(location.arena >= 0 && location.arena < table.count.load(), "arena {} of {}",
                location.arena, table.count.load());
    const Entry entry = table.entries[location.arena];
    const std::string path = fmt::format("/proc/{}/fd/{}", entry.process, entry.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) {
      fail(ErrorKind::peer, "{}: the shared memory of another rank cannot be opened ({})", path,
           std::strerror(errno));
    }
    void* data = engine::map_shared(file, entry.bytes);
    const int error = errno;
    close(file);
    if (data == nullptr) {
      fail(ErrorKind::peer, "{}: {} bytes of another rank cannot be mapped ({})", path, entry.bytes,
           std::strerror(error));
    }
    mapping = {static_cast<char*>(data), entry.bytes};
  }
  return mapping.data + location.address;
}

}  // namespace tutti::comm
