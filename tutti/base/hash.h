// Checksums and content hashes: XXH3, 64 bits, seed 0 (through the xxHash library).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tutti {

uint64_t hash_bytes(const void* data, size_t size);
uint64_t hash_text(std::string_view text);
std::string hash_hex(uint64_t hash);  // 16 lower-case hex digits

// The same hash over data that arrives in pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void update(const void* data, size_t size);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
