#include "tutti/spec/memory/memory.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "tutti/base/attention_workspace.h"
#include "tutti/base/check.h"
#include "tutti/base/device_workspace.h"
#include "tutti/base/round_up.h"
#include "tutti/spec/memory/arenas.h"
#include "tutti/spec/memory/internal.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::spec {
namespace {

constexpr int64_t kAlignment = 256;

int64_t align_bytes(int64_t bytes) { return round_up(bytes, kAlignment); }

template <typename Named>
const Named& named(const std::vector<Named>& list, std::string_view name) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Named& one) { return one.name == name; });
  TUTTI_CHECK(found != list.end(), "the memory map has no '{}'", name);
  return *found;
}

// Whether ranks of `profile` send the residual stream as it is in memory.
bool has_boundaries(const Profile& profile, const Mesh& mesh) {
  return profile.executable && mesh.pp > 1;
}

// One buffer per shape of a layer's weights on this rank, counting experts individually.
SlotPlan weight_stand_ins(const Recipe& recipe, const Profile& profile, const LocalSizes& sizes) {
  std::set<std::pair<int64_t, int64_t>> shapes;  // elements, columns
  const Mesh& mesh = recipe.parallel;
  const ParamTable table = param_table(recipe.model, profile.vocabulary_multiple * mesh.tp);
  for (const ParamGroup& group : table.groups) {
    if (group.prefix != "blocks.") continue;
    for (const Param& param : group.params) {
      if (param.shape.size() < 2) continue;
      const int64_t experts = param.expert ? param.shape.front() / mesh.ep : 1;
      shapes.emplace(param.local_count(mesh) / experts, param.shape.back());
    }
  }
  SlotBuilder slot("weight_gradients", 1);
  for (const auto& [elements, columns] : shapes) {
    slot.add("stand_in", sizes.compute, {elements / columns, columns});
  }
  return slot.take();
}

// Whether a tensor of the workspace is in the slots of delayed layers instead.
bool lies_delayed(const Profile& profile, const LocalSizes& sizes, const SavedTensor& tensor) {
  const std::string_view name = tensor.name;
  return std::any_of(profile.delayed.begin(), profile.delayed.end(), [&](const SavedTensor& one) {
    const bool needed = sizes.holds(one.conditions, false) || sizes.holds(one.conditions, true);
    const bool both =
        one.name == std::string_view("d_branch") && (name == "d_branch.0" || name == "d_branch.1");
    return needed && (both || name == one.name);
  });
}

ArenaPlan workspace_arena(const Recipe& recipe, const Profile& profile, const LocalSizes& sizes,
                          int64_t stage) {
  const auto any = [&](bool routed) {
    return any_layers(recipe, stage, routed, false) || any_layers(recipe, stage, routed, true);
  };
  std::vector<SlotPlan> slots;
  if (profile.weight_gradient_stand_ins) {
    slots.push_back(weight_stand_ins(recipe, profile, sizes));
  }
  const Mesh& mesh = recipe.parallel;
  const bool boundaries = has_boundaries(profile, mesh);
  const bool delays = peak_delayed(mesh, make_schedule(recipe).micro_batches, stage) > 0;
  std::vector<SavedTensor> step = profile.workspace;
  std::erase_if(step, [&](const SavedTensor& tensor) {
    if (boundaries && std::string_view(tensor.name) == "d_residual") return true;
    return delays && lies_delayed(profile, sizes, tensor);
  });
  SlotBuilder work("step", 1);
  work.add(step, sizes, any(false), any(true));
  if (const NarrowBuffers buffers = narrow_buffers(recipe, profile); buffers.left > 0) {
    work.add("narrow.left", DType::u8, {buffers.left})
        .add("narrow.right", DType::u8, {buffers.right});
    if (buffers.turned_qkv > 0) {
      work.add("narrow.turned.qkv", DType::u8, {buffers.turned_qkv})
          .add("narrow.turned.output", DType::u8, {buffers.turned_output})
          .add("narrow.turned.up", DType::u8, {buffers.turned_up})
          .add("narrow.turned.down", DType::u8, {buffers.turned_down});
    }
  }
  slots.push_back(work.take());
  if (boundaries) {
    const std::vector<int64_t> shape = {sizes.shard_tokens, recipe.model.hidden};
    SlotBuilder boundary("boundary", 2);
    boundary.add("send", DType::f32, shape).add("d_residual", DType::f32, shape);
    // When it arrives, another layer may still use the slot of the layer that reads it.
    if (recipe.offload.activations != 0 && stage + mesh.vpp > 1) {
      boundary.add("receive", DType::f32, shape);
    }
    slots.push_back(boundary.take());
  }
  ArenaPlan arena = make_arena("workspace", std::move(slots));
  if (profile.loss_in_compute_type && stage == recipe.parallel.pp - 1) {
    SlotPlan loss = SlotBuilder("loss", 1)
                        .add("logits", sizes.compute, {sizes.tokens, sizes.vocabulary})
                        .add("d_logits", sizes.compute, {sizes.tokens, sizes.vocabulary})
                        .take();
    loss.offset_bytes = arena.slot("step").offset_bytes;
    arena.bytes = std::max(arena.bytes, loss.offset_bytes + loss.stride_bytes);
    arena.slots.push_back(std::move(loss));
  }
  return arena;
}

// Statistics of the routers, summed over the micro-batches of a step.
void add_routing_arena(MemoryMap& map, const Recipe& recipe, int64_t stage) {
  int64_t layers = 0;
  for (const bool recomputes : {false, true}) {
    for (const int64_t count : chunk_layers(recipe, stage, true, recomputes)) layers += count;
  }
  if (layers == 0) return;
  map.arenas.push_back(
      make_arena("routing", {SlotBuilder("step", 1)
                                 .add("layers", DType::f32, {layers, recipe.model.moe.experts + 3})
                                 .take()}));
}

ArenaPlan loss_arena(const Profile& profile, const LocalSizes& sizes) {
  const int64_t chunk = loss_chunk_rows(profile, sizes.tokens, sizes.vocabulary);
  SlotBuilder logits("chunk", 1);
  logits.add("logits", loss_logits_type(profile, sizes.compute), {chunk, sizes.vocabulary});
  if (profile.loss_keeps_compute_logits) {
    logits.add("logits.compute", sizes.compute, {chunk, sizes.vocabulary});
  }
  if (profile.loss_keeps_gradient) logits.add("d_logits", DType::f32, {chunk, sizes.vocabulary});
  if (profile.executable && sizes.tp > 1)
    logits.add("statistics", DType::f32, {sizes.tp * 2 * chunk});
  return make_arena(
      "loss",
      {logits.take(), SlotBuilder("rows", 1).add("loss", DType::f32, {sizes.tokens}).take()});
}

ArenaPlan kernel_arena(const Recipe& recipe, const LocalSizes& sizes) {
  int64_t bytes = device_workspace_bytes(0);
  if (sizes.compute == DType::bf16) {
    AttentionUse use;
    use.batch = sizes.batch;
    use.tokens = sizes.sequence / sizes.cp;
    use.heads = sizes.heads;
    use.kv_heads = sizes.kv_heads;
    use.head_dim = key_dim(recipe.model);
    use.documents = recipe.data.packing == Packing::documents;
    use.ring = sizes.cp > 1;
    use.fixed_order = recipe.deterministic;
    bytes = device_workspace_bytes(attention_workspace_bytes(use));
  }
  ArenaPlan arena = make_arena(
      "kernels", {SlotBuilder("workspace", 1).add("workspace", DType::u8, {bytes}).take()});
  arena.by_stream = true;
  return arena;
}

// The arenas of `recipe` that forward-only models need.
MemoryMap forward_map(const Recipe& recipe, Profile profile) {
  Recipe forward = recipe;
  forward.distill = {};
  forward.parallel = {};
  forward.recompute = {RecomputeMode::full, 0, 0};
  forward.offload = {};
  profile.checkpoint = {};
  profile.quantizes_weights_once = false;
  std::erase_if(profile.head, [](const SavedTensor& tensor) {
    return std::string_view(tensor.name) == "d_final";
  });
  profile.workspace = profile.forward_workspace;
  return memory_map(forward, profile);
}

void add_teacher_arenas(MemoryMap& map, const Recipe& recipe, const Profile& profile) {
  const MemoryMap teacher = forward_map(teacher_recipe(recipe), profile);
  for (const ArenaPlan& arena : teacher.arenas) {
    if (!arena_kind(arena.name).forward) continue;
    map.arenas.push_back(arena);
    map.arenas.back().name = kTeacherPrefix + arena.name;
  }
}

}  // namespace

SlotBuilder::SlotBuilder(std::string name, int64_t repeats) {
  slot_.name = std::move(name);
  slot_.repeats = repeats;
}

SlotBuilder& SlotBuilder::add(std::string name, DType dtype, std::vector<int64_t> shape) {
  TensorPlan tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.offset_bytes = slot_.stride_bytes;
  tensor.bytes = dtype_bytes(dtype);
  for (const int64_t size : tensor.shape) tensor.bytes *= size;
  slot_.stride_bytes += align_bytes(tensor.bytes);
  slot_.tensors.push_back(std::move(tensor));
  return *this;
}

SlotBuilder& SlotBuilder::add(const std::vector<SavedTensor>& tensors, const LocalSizes& sizes,
                              bool dense, bool routed) {
  for (const SavedTensor& saved : tensors) {
    if (!(dense && sizes.holds(saved.conditions, false)) &&
        !(routed && sizes.holds(saved.conditions, true))) {
      continue;
    }
    const int64_t rows = sizes.rows(saved.rows, saved.split);
    const int64_t width = sizes.width(saved.width, saved.split);
    if (width == 0) continue;  // of a projection without adapters
    if (saved.element == Element::product) {
      const double bytes = static_cast<double>(rows * width) * sizes.product_bytes;
      add(saved.name, DType::u8, {static_cast<int64_t>(std::ceil(bytes))});
      continue;
    }
    const bool flat =
        saved.rows == Rows::single || saved.width == Width::one || saved.width == Width::heads;
    add(saved.name, sizes.dtype(saved.element),
        flat ? std::vector<int64_t>{rows * width} : std::vector<int64_t>{rows, width});
  }
  return *this;
}

SlotPlan SlotBuilder::take() { return std::move(slot_); }

ArenaPlan make_arena(std::string_view name, std::vector<SlotPlan> slots) {
  ArenaPlan arena;
  arena.name = arena_kind(name).name;
  for (SlotPlan& slot : slots) {
    slot.offset_bytes = arena.bytes;
    arena.bytes += slot.repeats * slot.stride_bytes;
  }
  arena.slots = std::move(slots);
  return arena;
}

const TensorPlan& SlotPlan::tensor(std::string_view tensor_name) const {
  return named(tensors, tensor_name);
}

int64_t SlotPlan::tensor_bytes() const {
  int64_t sum = 0;
  for (const TensorPlan& tensor : tensors) sum += tensor.bytes;
  return sum;
}

const SlotPlan& ArenaPlan::slot(std::string_view slot_name) const {
  return named(slots, slot_name);
}

int64_t MemoryMap::total_bytes() const {
  int64_t sum = 0;
  for (const ArenaPlan& plan : arenas) sum += plan.on_host ? 0 : plan.bytes;
  return sum;
}

int64_t MemoryMap::host_bytes() const {
  int64_t sum = 0;
  for (const ArenaPlan& plan : arenas) sum += plan.on_host ? plan.bytes : 0;
  return sum;
}

bool MemoryMap::has(std::string_view name) const {
  return std::any_of(arenas.begin(), arenas.end(),
                     [&](const ArenaPlan& plan) { return plan.name == name; });
}

const ArenaPlan& MemoryMap::arena(std::string_view name) const { return named(arenas, name); }

MemoryMap memory_map(const Recipe& recipe, const Profile& profile, int64_t stage) {
  TUTTI_CHECK(stage >= 0 && stage < recipe.parallel.pp, "stage {} of {}", stage,
              recipe.parallel.pp);
  const LocalSizes sizes = local_sizes(recipe, profile);
  MemoryMap map;
  add_parameter_arenas(map, recipe, profile, sizes, stage);
  map.arenas.push_back(activation_arena(recipe, profile, sizes, stage));
  add_offloaded_activations(map, recipe, stage);
  map.arenas.push_back(workspace_arena(recipe, profile, sizes, stage));
  add_routing_arena(map, recipe, stage);
  if (stage == recipe.parallel.pp - 1 && !profile.loss_in_compute_type) {
    map.arenas.push_back(loss_arena(profile, sizes));
  }
  const int64_t loaded =
      profile.executable ? std::max<int64_t>(2, in_flight_of_chunk(recipe, stage, 0)) : int64_t{2};
  SlotBuilder batch("batch", loaded);
  batch.add("tokens", DType::i32, {sizes.tokens}).add("targets", DType::i32, {sizes.tokens});
  const bool scattered = sizes.cp > 1 && profile.executable;
  const bool packed = recipe.data.packing == Packing::documents;
  if (packed || scattered) batch.add("positions", DType::i32, {sizes.tokens});
  if (packed) batch.add("starts", DType::i32, {(scattered ? sizes.cp : 1) * sizes.tokens});
  if (has_windows(recipe.model, sizes.batch * sizes.sequence)) {
    batch.add("window_starts", DType::i32, {(scattered ? sizes.cp : 1) * sizes.tokens});
  }
  if (scattered) batch.add("numbers", DType::i32, {sizes.tokens});
  map.arenas.push_back(make_arena("batch", {batch.take()}));
  if (profile.executable && recipe.device != "cpu") {
    map.arenas.push_back(kernel_arena(recipe, sizes));
  }
  if (recipe.distill.enabled()) add_teacher_arenas(map, recipe, profile);
  return map;
}

MemoryMap memory_map(const Recipe& recipe) { return memory_map(recipe, tutti_profile_on(recipe)); }

MemoryMap inference_memory_map(const Recipe& recipe) {
  const MemoryMap whole = forward_map(recipe, tutti_profile());
  MemoryMap map;
  for (const ArenaPlan& arena : whole.arenas) {
    if (arena_kind(arena.name).forward || arena.name == "batch") map.arenas.push_back(arena);
  }
  return map;
}

int64_t bytes_freed_by_recompute(const Recipe& recipe) {
  Recipe plain = recipe;
  plain.recompute = {};
  return memory_map(plain).total_bytes() - memory_map(recipe).total_bytes();
}

}  // namespace tutti::spec
