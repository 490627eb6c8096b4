// Memory of the accelerator: what Arena is made of where its kind says so. Defined by the backend
// that is linked in; without one every allocation fails as unsupported.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/engine/arena.h"

namespace tutti::engine {

// `kind` is device or pinned. Zero-filled, aligned to 4096 (pinned) or kArenaAlignment (device).
// Throws unsupported, naming the arena, what was asked for and what is free.
void* allocate_device_memory(const std::string& name, int64_t bytes, ArenaKind kind);
void free_device_memory(void* data, ArenaKind kind);

// Sets every byte; done on return.
void fill_device_memory(void* data, int byte, int64_t bytes);

}  // namespace tutti::engine
