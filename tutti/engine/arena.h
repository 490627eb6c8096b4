// One allocation that holds many tensors at offsets that spec::MemoryMap chose.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::engine {

enum class ArenaKind {
  host,    // private memory of this process
  shared,  // an anonymous file that other processes of this user can map: see file_descriptor()
  device,  // memory of the accelerator, which the host must not touch (device_memory.h)
  pinned,  // memory of the host that the accelerator reads and writes too, at the same address
};

// Zero-filled at creation, in huge pages where the system grants them. Bytes are aligned to 4096;
// offsets of tensors to kArenaAlignment.
inline constexpr int64_t kArenaAlignment = 256;

// `bytes` of an anonymous file, readable and writable, populated, and in huge pages where the
// system grants them. Null with errno where it does not grant the memory. To be unmapped.
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
  // Of a shared arena: other processes open "/proc/<pid>/fd/<descriptor>" and map it; it vanishes
  // with the last mapping, however its processes end. Otherwise -1.
  int file_descriptor() const { return file_descriptor_; }

  // The range [offset, offset + bytes); aborts when it is outside or misaligned.
  void* at(int64_t offset, int64_t bytes) const;

  // Fills a range with a pattern that reads as NaN in f32 and bf16 and as an impossible token, so
  // that a read of freed memory shows (tests).
  void poison(int64_t offset, int64_t bytes) const;

 private:
  std::string name_;
  int64_t bytes_ = 0;
  ArenaKind kind_ = ArenaKind::host;
  void* data_ = nullptr;
  int file_descriptor_ = -1;
};

}  // namespace tutti::engine
