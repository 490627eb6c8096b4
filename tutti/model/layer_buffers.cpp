#include "tutti/model/layer_buffers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/spec/mesh/zero.h"

namespace tutti::model {
namespace {

engine::Vector buffer(const Memory& memory, const char* arena, const spec::ZeroLayer& layer,
                      int64_t elements) {
  if (elements == 0) return {};
  engine::Vector slot = memory.vector(arena, layer.slot, layer.repeat, "flat");
  TUTTI_CHECK(elements <= slot.count, "layer {}: {} elements in a slot of {}", layer.layer,
              elements, slot.count);
  slot.count = elements;
  return slot;
}

// Parameters in the buffers of their layers, from `begin` of their part on.
using BufferOf = engine::Vector (*)(const Memory&, const spec::ZeroLayer&);
ParamAddress buffer_address(const std::vector<spec::ZeroLayer>& layers, const Memory& memory,
                            BufferOf buffer_of, int64_t spec::LayerPart::*begin,
                            ParamAddress otherwise) {
  return [=, &memory](const spec::PlacedParam& placed) -> void* {
    for (const spec::ZeroLayer& layer : layers) {
      const spec::LayerPart* part = layer.part_of(placed.element_offset);
      if (part == nullptr) continue;
      if (part->*begin < 0) return otherwise(placed);
      const engine::Vector all = buffer_of(memory, layer);
      const int64_t at = part->*begin + placed.element_offset - part->first;
      return static_cast<char*>(all.data) + at * dtype_bytes(all.dtype);
    }
    TUTTI_CHECK(false, "{} is in no layer", placed.name);
    return nullptr;
  };
}

// In the arena of weights, on a rank that holds all of the parameter.
ParamAddress shard_address(const spec::ParamLayout& layout, const spec::Mesh& mesh, char* weights,
                           DType compute) {
  return [=,
          buckets = spec::weight_buckets(layout, mesh)](const spec::PlacedParam& placed) -> void* {
    const auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const spec::Bucket& one) {
      return one.first <= placed.element_offset && placed.element_offset < one.first + one.count;
    });
    TUTTI_CHECK(bucket != buckets.end() && bucket->ways == 1, "{} is not whole here", placed.name);
    const int64_t at = bucket->shard_first + placed.element_offset - bucket->first;
    return weights + at * dtype_bytes(compute);
  };
}

}  // namespace

engine::Vector gathered_buffer(const Memory& memory, const spec::ZeroLayer& layer) {
  return buffer(memory, "gathered", layer, layer.gathered);
}

engine::Vector gradient_buffer(const Memory& memory, const spec::ZeroLayer& layer) {
  return buffer(memory, "layer_gradients", layer, layer.gradients);
}

Parameters bind_parameters(const spec::ParamLayout& layout, const spec::Mesh& mesh,
                           const Memory& memory, DType compute) {
  void* weights = memory.arena("weights").data();
  const bool trains = memory.map().has("gradients");
  if (!trains || !spec::by_layer(mesh)) {
    return {layout, weights, compute,
            trains ? static_cast<float*>(memory.arena("gradients").data()) : nullptr};
  }
  const std::vector<spec::ZeroLayer> layers = spec::zero_layers(layout, mesh);
  ParamAddress flat = [=](const spec::PlacedParam& placed) -> void* {
    return static_cast<char*>(weights) + placed.element_offset * dtype_bytes(compute);
  };
  if (mesh.zero == 3) {
    flat = buffer_address(layers, memory, gathered_buffer, &spec::LayerPart::in_gathered,
                          shard_address(layout, mesh, static_cast<char*>(weights), compute));
  }
  return {layout, std::move(flat), compute,
          buffer_address(layers, memory, gradient_buffer, &spec::LayerPart::in_gradients,
                         [](const spec::PlacedParam&) -> void* { return nullptr; })};
}

}  // namespace tutti::model
