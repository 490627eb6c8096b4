// The arenas of one rank, allocated exactly as in its spec::MemoryMap, except those that its stream
// allocates, which are empty here; and views of their tensors by the map's names.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tutti/comm/world/world.h"
#include "tutti/engine/arena.h"
#include "tutti/engine/tensor.h"
#include "tutti/spec/memory/memory.h"

namespace tutti::model {

class Memory {
 public:
  // kind: where the stream's operands are (engine/stream.h); if that is a device, arenas of the map
  // on the host are pinned. With a world whose ranks are processes of one host, they have direct
  // access to the arenas that collectives use; the world must outlive this object.
  explicit Memory(const spec::MemoryMap& map, engine::ArenaKind kind = engine::ArenaKind::host,
                  comm::World* world = nullptr);

  const spec::MemoryMap& map() const { return map_; }
  const engine::Arena& arena(std::string_view name) const;

  // The tensor `name` of the `repeat`-th slot; aborts if the map has no such tensor. A tensor with
  // one dimension is a vector; with more, a matrix of all but the last dimension by the last.
  engine::Matrix matrix(std::string_view arena, std::string_view slot, int64_t repeat,
                        std::string_view name) const;
  engine::Vector vector(std::string_view arena, std::string_view slot, int64_t repeat,
                        std::string_view name) const;
  // Whether the slot has the tensor (the map omits what a model does not need).
  bool has(std::string_view arena, std::string_view slot, std::string_view name) const;

  // All bytes of the `repeat`-th slot.
  struct SlotBytes {
    char* data = nullptr;
    int64_t bytes = 0;
  };
  SlotBytes slot(std::string_view arena, std::string_view slot, int64_t repeat) const;

  // Number of slots of this name; 0: the arena has none.
  int64_t repeats(std::string_view arena, std::string_view slot) const;

  // The arenas whose names begin with `prefix`, named without it; the same memory.
  Memory part(std::string_view prefix) const;

  // Fills everything that does not outlive a step (activations, workspace, loss, the buffers that
  // layers and updates share in turn; also a teacher's) with poison.
  void poison_transients() const;

 private:
  Memory() = default;
  struct Found {
    const spec::TensorPlan* tensor;
    void* data;
  };
  Found find(std::string_view arena, std::string_view slot, int64_t repeat,
             std::string_view name) const;

  spec::MemoryMap map_;
  std::vector<std::shared_ptr<const engine::Arena>> arenas_;  // in the map's order
};

}  // namespace tutti::model
