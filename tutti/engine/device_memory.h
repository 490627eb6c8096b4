// Device and pinned memory behind Arena. Defined by the device backend that is linked in; without
// one every allocation fails as unsupported.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/engine/arena.h"

namespace tutti::engine {

// `kind` is device or pinned. Zero-filled, aligned to 4096 (pinned) or kArenaAlignment (device).
// Throws unsupported, naming the arena, the requested and the free bytes.
void* allocate_device_memory(const std::string& name, int64_t bytes, ArenaKind kind);
void free_device_memory(void* data, ArenaKind kind);

// Sets every byte; synchronous.
void fill_device_memory(void* data, int byte, int64_t bytes);

}  // namespace tutti::engine
