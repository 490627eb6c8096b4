// For the sources of the memory map alone (memory.h): builders of slots and arenas, and the parts
// of the map. memory.cpp assembles the map, parameters.cpp adds parameters, gradients and optimizer
// state, activations.cpp the activations kept for the backward pass.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/program/profile.h"

namespace tutti::spec {

// One slot, built tensor by tensor, each aligned to 256 bytes.
class SlotBuilder {
 public:
  SlotBuilder(std::string name, int64_t repeats);

  SlotBuilder& add(std::string name, DType dtype, std::vector<int64_t> shape);
  // The tensors that dense or routed layers need, or both if both are requested.
  SlotBuilder& add(const std::vector<SavedTensor>& tensors, const LocalSizes& sizes, bool dense,
                   bool routed);
  SlotPlan take();

 private:
  SlotPlan slot_;
};

// Slots, one after another.
ArenaPlan make_arena(std::string_view name, std::vector<SlotPlan> slots);

// parameters.cpp
void add_parameter_arenas(MemoryMap& map, const Recipe& recipe, const Profile& profile,
                          const LocalSizes& sizes, int64_t stage);

// activations.cpp
// Per chunk of a pipeline rank, its layers that are routed or not and recompute or not; without
// `offloaded` only those whose activations stay on the device.
std::vector<int64_t> chunk_layers(const Recipe& recipe, int64_t stage, bool routed, bool recomputes,
                                  bool offloaded = true);
bool any_layers(const Recipe& recipe, int64_t stage, bool routed, bool recomputes);
// In-flight micro-batches of a single chunk.
int64_t in_flight_of_chunk(const Recipe& recipe, int64_t stage, int64_t chunk);
std::string block_slot_name(bool routed, bool recomputes);

ArenaPlan activation_arena(const Recipe& recipe, const Profile& profile, const LocalSizes& sizes,
                           int64_t stage);
// The same slots for layers whose activations are offloaded, on the host.
void add_offloaded_activations(MemoryMap& map, const Recipe& recipe, int64_t stage);

}  // namespace tutti::spec
