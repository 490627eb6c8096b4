#include "tutti/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "tutti/base/check.h"

namespace tutti {

struct Hasher::State {
  XXH3_state_t* xxh;
};

uint64_t hash_bytes(const void* data, size_t size) { return XXH3_64bits(data, size); }

uint64_t hash_text(std::string_view text) { return hash_bytes(text.data(), text.size()); }

std::string hash_hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

Hasher::Hasher() : state_(std::make_unique<State>(State{XXH3_createState()})) {
  TUTTI_CHECK(state_->xxh != nullptr, "out of memory for a hash state");
  XXH3_64bits_reset(state_->xxh);
}

Hasher::~Hasher() {
  if (state_) XXH3_freeState(state_->xxh);
}

Hasher::Hasher(Hasher&&) noexcept = default;

Hasher& Hasher::operator=(Hasher&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

void Hasher::update(const void* data, size_t size) { XXH3_64bits_update(state_->xxh, data, size); }

uint64_t Hasher::digest() const { return XXH3_64bits_digest(state_->xxh); }

}  // namespace tutti
