// One allocation that holds many tensors at the offsets that spec::MemoryMap assigns.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::engine {

enum class ArenaKind {
  host,    // private memory of this process
  shared,  // an anonymous file that other processes of this user can map: see file_descriptor()
  device,  // device memory, which the host must not access (device_memory.h)
  pinned,  // host memory that the device also accesses directly, at the same address
};

// Zero-filled at creation, in huge pages where the system grants them. The base address is aligned
// to 4096 bytes, offsets of tensors to kArenaAlignment.
inline constexpr int64_t kArenaAlignment = 256;

// Maps `bytes` of an anonymous file: readable and writable, populated, and in huge pages where the
// system grants them. Returns null and sets errno on failure. The caller unmaps it (munmap).
void* map_shared(int file_descriptor, int64_t bytes);

class Arena {
 public:
  Arena(std::string name, int64_t bytes, ArenaKind kind = ArenaKind::host);
  ~Arena();
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  const std::string& name() const { return name_; }
  int64_t bytes() const { return bytes_; }
  ArenaKind kind() const { return kind_; }
  void* data() const { return data_; }
  // Descriptor of a shared arena, else -1. Other processes open "/proc/<pid>/fd/<descriptor>" and
  // map it. The memory is freed with the last mapping, even if its processes are killed.
  int file_descriptor() const { return file_descriptor_; }

  // The range [offset, offset + bytes); aborts if it is out of bounds or misaligned.
  void* at(int64_t offset, int64_t bytes) const;

  // Fills a range with a pattern that reads as NaN in f32 and bf16 and as an invalid token, so that
  // tests detect reads of freed memory.
  void poison(int64_t offset, int64_t bytes) const;

 private:
  std::string name_;
  int64_t bytes_ = 0;
  ArenaKind kind_ = ArenaKind::host;
  void* data_ = nullptr;
  int file_descriptor_ = -1;
};

}  // namespace tutti::engine
