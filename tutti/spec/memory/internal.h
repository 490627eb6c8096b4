// For the sources of the memory map alone (memory.h): slots and arenas as they are put together,
// and its parts. memory.cpp is the whole map, parameters.cpp what holds parameters,
// gradients and the optimizer's state, activations.cpp what layers keep for the way back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/program/profile.h"

namespace tutti::spec {

// One slot, tensor by tensor, each at a multiple of 256 bytes.
class SlotBuilder {
 public:
  SlotBuilder(std::string name, int64_t repeats);

  SlotBuilder& add(std::string name, DType dtype, std::vector<int64_t> shape);
  // What dense or routed layers need, or both where both are asked for.
  SlotBuilder& add(const std::vector<SavedTensor>& tensors, const LocalSizes& sizes, bool dense,
                   bool routed);
  SlotPlan take();

 private:
  SlotPlan slot_;
};

// Slots one after another.
ArenaPlan make_arena(std::string_view name, std::vector<SlotPlan> slots);

// parameters.cpp
void add_parameter_arenas(MemoryMap& map, const Recipe& recipe, const Profile& profile,
                          const LocalSizes& sizes, int64_t stage);

// activations.cpp
// Layers of every chunk of a pipeline rank that are routed or not, recompute or not; without
// `offloaded`, of those whose activations stay.
std::vector<int64_t> chunk_layers(const Recipe& recipe, int64_t stage, bool routed, bool recomputes,
                                  bool offloaded = true);
bool any_layers(const Recipe& recipe, int64_t stage, bool routed, bool recomputes);
// Micro-batches in flight of one chunk alone.
int64_t in_flight_of_chunk(const Recipe& recipe, int64_t stage, int64_t chunk);
std::string block_slot_name(bool routed, bool recomputes);

ArenaPlan activation_arena(const Recipe& recipe, const Profile& profile, const LocalSizes& sizes,
                           int64_t stage);
// The same slots of layers whose activations leave, on the host.
void add_offloaded_activations(MemoryMap& map, const Recipe& recipe, int64_t stage);

}  // namespace tutti::spec
