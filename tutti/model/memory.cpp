#include "tutti/model/memory.h"

#include <string>

#include "tutti/base/check.h"
#include "tutti/base/text.h"
#include "tutti/spec/memory/arenas.h"

namespace tutti::model {
namespace {

const spec::SlotPlan& find_slot(const spec::ArenaPlan& arena, std::string_view name) {
  for (const spec::SlotPlan& slot : arena.slots) {
    if (slot.name == name) return slot;
  }
  check_failed(__FILE__, __LINE__, "slot exists",
               fmt::format("memory map: arena '{}' has no slot '{}'", arena.name, name));
}

const spec::TensorPlan* find_tensor(const spec::SlotPlan& slot, std::string_view name) {
  for (const spec::TensorPlan& tensor : slot.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace

Memory::Memory(const spec::MemoryMap& map, engine::ArenaKind kind, comm::World* world) : map_(map) {
  const bool shares = kind == engine::ArenaKind::host && world != nullptr && world->shares_arenas();
  for (const spec::ArenaPlan& plan : map_.arenas) {
    if (plan.by_stream) {
      arenas_.push_back(std::make_shared<const engine::Arena>(plan.name, 0, kind));
      continue;
    }
    if (!shares || plan.on_host || spec::arena_kind(plan.name).own) {
      const bool pinned = plan.on_host && kind == engine::ArenaKind::device;
      arenas_.push_back(std::make_shared<const engine::Arena>(
          plan.name, plan.bytes, pinned ? engine::ArenaKind::pinned : kind));
      continue;
    }
    auto* arena = new engine::Arena(plan.name, plan.bytes, engine::ArenaKind::shared);
    arenas_.emplace_back(arena, [world](const engine::Arena* shared) {
      world->withdraw(*shared);
      delete shared;
    });
    world->share(*arena);
  }
}

const engine::Arena& Memory::arena(std::string_view name) const {
  for (size_t i = 0; i < arenas_.size(); ++i) {
    if (map_.arenas[i].name == name) return *arenas_[i];
  }
  check_failed(__FILE__, __LINE__, "arena exists", fmt::format("memory map: no arena '{}'", name));
}

bool Memory::has(std::string_view arena, std::string_view slot, std::string_view name) const {
  return find_tensor(find_slot(map_.arena(arena), slot), name) != nullptr;
}

Memory::SlotBytes Memory::slot(std::string_view arena_name, std::string_view slot_name,
                               int64_t repeat) const {
  const spec::SlotPlan& plan = find_slot(map_.arena(arena_name), slot_name);
  TUTTI_CHECK(repeat >= 0 && repeat < plan.repeats,
              "memory map: slot '{}/{}' has {} repeats, not {}", arena_name, slot_name,
              plan.repeats, repeat);
  const int64_t offset = plan.offset_bytes + repeat * plan.stride_bytes;
  return {static_cast<char*>(arena(arena_name).at(offset, plan.stride_bytes)), plan.stride_bytes};
}

int64_t Memory::repeats(std::string_view arena, std::string_view slot_name) const {
  for (const spec::SlotPlan& slot : map_.arena(arena).slots) {
    if (slot.name == slot_name) return slot.repeats;
  }
  return 0;
}

Memory::Found Memory::find(std::string_view arena_name, std::string_view slot_name, int64_t repeat,
                           std::string_view name) const {
  const spec::SlotPlan& slot = find_slot(map_.arena(arena_name), slot_name);
  const spec::TensorPlan* tensor = find_tensor(slot, name);
  TUTTI_CHECK(tensor != nullptr, "memory map: slot '{}/{}' has no tensor '{}'", arena_name,
              slot_name, name);
  TUTTI_CHECK(repeat >= 0 && repeat < slot.repeats,
              "memory map: slot '{}/{}' has {} repeats, not {}", arena_name, slot_name,
              slot.repeats, repeat);
  const int64_t offset = slot.offset_bytes + repeat * slot.stride_bytes + tensor->offset_bytes;
  return {tensor, arena(arena_name).at(offset, tensor->bytes)};
}

engine::Matrix Memory::matrix(std::string_view arena, std::string_view slot, int64_t repeat,
                              std::string_view name) const {
  const Found found = find(arena, slot, repeat, name);
  TUTTI_CHECK(found.tensor->shape.size() >= 2, "tensor '{}' is no matrix", name);
  const int64_t cols = found.tensor->shape.back();
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < found.tensor->shape.size(); ++i) rows *= found.tensor->shape[i];
  return engine::matrix(found.data, found.tensor->dtype, rows, cols);
}

engine::Vector Memory::vector(std::string_view arena, std::string_view slot, int64_t repeat,
                              std::string_view name) const {
  const Found found = find(arena, slot, repeat, name);
  int64_t count = 1;
  for (const int64_t dim : found.tensor->shape) count *= dim;
  return engine::vector(found.data, found.tensor->dtype, count);
}

Memory Memory::part(std::string_view prefix) const {
  Memory out;
  for (size_t i = 0; i < arenas_.size(); ++i) {
    if (!starts_with(map_.arenas[i].name, prefix)) continue;
    out.map_.arenas.push_back(map_.arenas[i]);
    out.map_.arenas.back().name.erase(0, prefix.size());
    out.arenas_.push_back(arenas_[i]);
  }
  return out;
}

void Memory::poison_transients() const {
  for (size_t i = 0; i < arenas_.size(); ++i) {
    if (!spec::arena_kind(map_.arenas[i].name).transient) continue;
    arenas_[i]->poison(0, arenas_[i]->bytes());
  }
}

}  // namespace tutti::model
