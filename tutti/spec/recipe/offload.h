// Offloading of device data to host memory until it is needed: less device memory, the same work
// and bits, and traffic over its link (offload_traffic).
//
// optimizer    moments, and with bf16 weights the f32 masters. The update has them brought over a
//              bucket at a time, in two buffers that take turns.
// activations  what the first N layers of each virtual stage keep for the backward pass. They
//              share two or three slots on the device per kind of layer (offload_plan.h):
//              what a layer keeps goes out after its forward pass, and comes back while the layer
//              after its backward pass, unless its slot has not been reused.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::spec {

inline constexpr int64_t kEveryLayer = -1;

struct Offload {
  bool operator==(const Offload&) const = default;
  bool optimizer = false;
  int64_t activations = 0;  // layers of a virtual stage; kEveryLayer: all of them ("all")

  bool enabled() const { return optimizer || activations != 0; }
  // Whether the activations of layer `index` of its virtual stage do.
  bool covers(int64_t index) const { return activations == kEveryLayer || index < activations; }
};

// Device slots that layers of one kind share in turn, for one micro-batch at a time.
inline constexpr int64_t kOffloadSlots = 2;
// And the buffers of the update.
inline constexpr int64_t kOffloadBuffers = 2;

struct Recipe;
// Throws usage naming what cannot be.
void validate_offload(const Recipe& recipe);

// For people: "optimizer, activations of the first 4 layers"; "none".
std::string offload_text(const Offload& offload);

}  // namespace tutti::spec
