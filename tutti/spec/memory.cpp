#include "tutti/spec/memory.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/spec/narrow.h"
#include "tutti/spec/offload_plan.h"
#include "tutti/spec/schedule.h"
#include "tutti/spec/zero.h"
#include "tutti/spec/zero_layers.h"

namespace tutti::spec {
namespace {

constexpr int64_t kAlignment = 256;
constexpr const char* kOffloadedActivations = "offloaded_activations";

int64_t align_bytes(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <typename Named>
const Named& named(const std::vector<Named>& list, std::string_view name) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Named& one) { return one.name == name; });
  TUTTI_CHECK(found != list.end(), "the memory map has no '{}'", name);
  return *found;
}

class SlotBuilder {
 public:
  SlotBuilder(std::string name, int64_t repeats) {
    slot_.name = std::move(name);
    slot_.repeats = repeats;
  }

  SlotBuilder& add(std::string name, DType dtype, std::vector<int64_t> shape) {
    TensorPlace place;
    place.name = std::move(name);
    place.dtype = dtype;
    place.shape = std::move(shape);
    place.offset_bytes = slot_.stride_bytes;
    place.bytes = dtype_bytes(dtype);
    for (const int64_t size : place.shape) place.bytes *= size;
    slot_.stride_bytes += align_bytes(place.bytes);
    slot_.tensors.push_back(std::move(place));
    return *this;
  }

  // What dense or routed layers need, or both where both are asked for.
  SlotBuilder& add(const std::vector<SavedTensor>& tensors, const LocalSizes& sizes, bool dense,
                   bool routed) {
    for (const SavedTensor& saved : tensors) {
      if (!(dense && sizes.holds(saved.conditions, false)) &&
          !(routed && sizes.holds(saved.conditions, true))) {
        continue;
      }
      const int64_t rows = sizes.rows(saved.rows, saved.split);
      const int64_t width = sizes.width(saved.width, saved.split);
      if (width == 0) continue;  // of a projection without adapters
      const bool flat =
          saved.rows == Rows::single || saved.width == Width::one || saved.width == Width::heads;
      add(saved.name, sizes.dtype(saved.element),
          flat ? std::vector<int64_t>{rows * width} : std::vector<int64_t>{rows, width});
    }
    return *this;
  }

  SlotPlan take() { return std::move(slot_); }

 private:
  SlotPlan slot_;
};

ArenaPlan make_arena(std::string name, std::vector<SlotPlan> slots) {
  ArenaPlan arena;
  arena.name = std::move(name);
  for (SlotPlan& slot : slots) {
    slot.offset_bytes = arena.bytes;
    arena.bytes += slot.repeats * slot.stride_bytes;
  }
  arena.slots = std::move(slots);
  return arena;
}

ArenaPlan flat_arena(const char* name, DType dtype, int64_t elements) {
  return make_arena(name, {SlotBuilder("flat", 1).add("flat", dtype, {elements}).take()});
}

// What layers take turns in (zero_layers.h).
ArenaPlan layer_arena(const char* name, DType dtype, int64_t block_slots, int64_t block_elements,
                      int64_t outer_elements) {
  std::vector<SlotPlan> slots;
  const auto add = [&](const char* slot, int64_t repeats, int64_t elements) {
    if (repeats * elements == 0) return;
    slots.push_back(SlotBuilder(slot, repeats).add("flat", dtype, {elements}).take());
  };
  add("block", block_slots, block_elements);
  add("outer", 1, outer_elements);
  return make_arena(name, std::move(slots));
}

void add_parameter_arenas(MemoryMap& map, const Recipe& recipe, const Profile& profile,
                          const LocalSizes& sizes, int64_t stage) {
  const Mesh& mesh = recipe.parallel;
  const ParamTable table =
      param_table(recipe.model, recipe.lora, profile.vocabulary_multiple * mesh.tp);
  const LocalElements elements = local_elements(table, recipe, stage);
  const LocalElements trainable = local_elements(table, recipe, stage, true);
  int64_t shard = shard_elements(trainable, mesh);
  int64_t whole = divisible_elements(trainable, mesh);
  int64_t frozen = elements.total() - trainable.total();
  int64_t weights_shard = shard_elements(elements, mesh);
  const bool layered = profile.executable && by_layer(mesh);
  ZeroSizes layers;
  if (layered) {
    layers = zero_sizes(table, recipe, stage);
    shard = layers.shard;
    whole = layers.trainable();
    frozen = layers.frozen;
    weights_shard = shard + layers.frozen_shard;
  }
  const int64_t optimizer = mesh.zero >= 1 ? shard : whole;
  map.arenas.push_back(
      flat_arena("weights", sizes.compute, mesh.zero >= 3 ? weights_shard : whole + frozen));
  if (mesh.zero >= 3) {
    map.arenas.push_back(layered
                             ? layer_arena("gathered", sizes.compute, layers.block_slots,
                                           layers.gathered_block, layers.gathered_outer)
                             : flat_arena("gathered", sizes.compute, 2 * elements.largest_layer));
  }
  const NarrowFormat* format = block_scaled_format(recipe.precision);
  if (format != nullptr && !profile.executable) {
    // Both copies, kept from the first micro-batch of a step to the last.
    const LocalElements narrow = local_elements(narrow_parameters(table), recipe, stage);
    const int64_t count = mesh.zero >= 3 ? 2 * narrow.largest_layer : narrow.total();
    map.arenas.push_back(
        flat_arena("narrow", DType::u8,
                   static_cast<int64_t>(2 * format->element_bytes() * static_cast<double>(count))));
  }
  if (has_masters(recipe)) {
    map.arenas.push_back(flat_arena("master", DType::f32, optimizer));
  }
  map.arenas.push_back(flat_arena("gradients", profile.gradient, mesh.zero >= 2 ? shard : whole));
  if (layered) {
    map.arenas.push_back(layer_arena("layer_gradients", profile.gradient, layers.block_slots,
                                     layers.gradients_block, layers.gradients_outer));
  }
  map.arenas.push_back(flat_arena("moment1", DType::f32, optimizer));
  map.arenas.push_back(flat_arena("moment2", DType::f32, optimizer));
  if (!recipe.offload.optimizer) return;
  SlotBuilder buffer("buffer", kOffloadBuffers);
  for (ArenaPlan& arena : map.arenas) {
    if (arena.name != "master" && arena.name != "moment1" && arena.name != "moment2") continue;
    arena.on_host = true;
    buffer.add(arena.name, DType::f32, {offload_buffer_elements(optimizer)});
  }
  map.arenas.push_back(make_arena("optimizer_buffers", {buffer.take()}));
}

// Layers of every chunk of a pipeline rank that are routed or not, recompute or not; without
// `offloaded`, of those whose activations stay.
std::vector<int64_t> chunk_layers(const Recipe& recipe, int64_t stage, bool routed, bool recomputes,
                                  bool offloaded = true) {
  const ModelConfig& model = recipe.model;
  const int64_t dense_end = model.moe.experts > 0 ? model.moe.first_dense_layers : model.layers;
  std::vector<int64_t> counts;
  for (int64_t chunk = 0; chunk < recipe.parallel.vpp; ++chunk) {
    const LayerRange range =
        stage_layers(recipe.parallel, model.layers, chunk * recipe.parallel.pp + stage);
    int64_t count = 0;
    for (int64_t i = 0; i < range.count; ++i) {
      if ((range.first + i >= dense_end) == routed && recipe.recompute.covers(i) == recomputes &&
          (offloaded || !recipe.offload.covers(i))) {
        ++count;
      }
    }
    counts.push_back(count);
  }
  return counts;
}

bool any_layers(const Recipe& recipe, int64_t stage, bool routed, bool recomputes) {
  const std::vector<int64_t> counts = chunk_layers(recipe, stage, routed, recomputes);
  return std::any_of(counts.begin(), counts.end(), [](int64_t n) { return n > 0; });
}

// Micro-batches in flight of one chunk alone.
int64_t in_flight_of_chunk(const Recipe& recipe, int64_t stage, int64_t chunk) {
  return peak_in_flight_of_chunk(recipe.parallel, make_schedule(recipe).micro_batches, stage,
                                 chunk);
}

// Whether ranks of `profile` hand over the residual stream as it lies in memory.
bool has_boundaries(const Profile& profile, const Mesh& mesh) {
  return profile.executable && mesh.pp > 1;
}

std::string block_slot_name(bool routed, bool recomputes) {
  return std::string("block") + (routed ? ".moe" : "") + (recomputes ? ".recomputed" : "");
}

// The tensors of a layer that recomputation drops, or those that it keeps.
std::vector<SavedTensor> block_tensors(const Recipe& recipe, const Profile& profile, bool dropped) {
  std::vector<SavedTensor> list;
  std::copy_if(profile.block.begin(), profile.block.end(), std::back_inserter(list),
               [&](const SavedTensor& saved) {
                 return is_dropped(profile, recipe.recompute, saved) == dropped;
               });
  return list;
}

ArenaPlan activation_arena(const Recipe& recipe, const Profile& profile, const LocalSizes& sizes,
                           int64_t stage) {
  const Mesh& mesh = recipe.parallel;
  const int64_t micro_batches = make_schedule(recipe).micro_batches;
  std::vector<SlotPlan> slots;
  if (stage == 0 && !profile.embedding.empty()) {
    slots.push_back(SlotBuilder("embedding", in_flight_of_chunk(recipe, stage, 0))
                        .add(profile.embedding, sizes, true, false)
                        .take());
  }
  for (const bool recomputes : {false, true}) {
    for (const bool routed : {false, true}) {
      const int64_t repeats =
          peak_in_flight_weighted(mesh, micro_batches, stage,
                                  chunk_layers(recipe, stage, routed, recomputes, false)) +
          offload_plan(recipe, stage, routed, recomputes).places;
      if (repeats == 0) continue;
      slots.push_back(SlotBuilder(block_slot_name(routed, recomputes), repeats)
                          .add(recomputes ? block_tensors(recipe, profile, false) : profile.block,
                               sizes, !routed, routed)
                          .take());
    }
  }
  // One layer at work holds what recomputation dropped.
  for (const bool routed : {false, true}) {
    if (!any_layers(recipe, stage, routed, true)) continue;
    slots.push_back(SlotBuilder(routed ? "recompute.moe" : "recompute", 1)
                        .add(block_tensors(recipe, profile, true), sizes, !routed, routed)
                        .take());
  }
  if (stage == mesh.pp - 1) {
    const int64_t heads =
        profile.executable ? in_flight_of_chunk(recipe, stage, mesh.vpp - 1) : int64_t{1};
    slots.push_back(SlotBuilder("head", heads).add(profile.head, sizes, true, false).take());
  }
  const int64_t delayed = peak_delayed(mesh, micro_batches, stage);
  for (const bool routed : {false, true}) {
    if (delayed == 0 || profile.delayed.empty()) break;
    int64_t layers = 0;
    for (const bool recomputes : {false, true}) {
      for (const int64_t count : chunk_layers(recipe, stage, routed, recomputes)) layers += count;
    }
    if (layers == 0) continue;
    slots.push_back(SlotBuilder(routed ? "delayed.moe" : "delayed", layers * delayed)
                        .add(profile.delayed, sizes, !routed, routed)
                        .take());
  }
  return make_arena("activations", std::move(slots));
}

// The same slots of layers whose activations leave, on the host.
void add_offloaded_activations(MemoryMap& map, const Recipe& recipe, int64_t stage) {
  std::vector<SlotPlan> slots;
  for (const bool recomputes : {false, true}) {
    for (const bool routed : {false, true}) {
      const int64_t repeats = offload_plan(recipe, stage, routed, recomputes).host_slots;
      if (repeats == 0) continue;
      SlotPlan slot = map.arena("activations").slot(block_slot_name(routed, recomputes));
      slot.repeats = repeats;
      slots.push_back(std::move(slot));
    }
  }
  if (slots.empty()) return;
  map.arenas.push_back(make_arena(kOffloadedActivations, std::move(slots)));
  map.arenas.back().on_host = true;
}

// One buffer per shape of a layer's weights on this rank, an expert's counting by itself.
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

// Whether a tensor of the workspace lies in the slots of delayed layers instead.
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
  if (const NarrowRoom room = narrow_room(recipe, profile); room.left > 0) {
    work.add("narrow.left", DType::u8, {room.left}).add("narrow.right", DType::u8, {room.right});
  }
  slots.push_back(work.take());
  if (boundaries) {
    const std::vector<int64_t> shape = {sizes.shard_tokens, recipe.model.hidden};
    SlotBuilder boundary("boundary", 2);
    boundary.add("send", DType::f32, shape).add("d_residual", DType::f32, shape);
    // The place of the layer that reads it may be another's when it comes.
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

// What routers tell about a step, summed over its micro-batches.
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
  logits.add("logits", DType::f32, {chunk, sizes.vocabulary});
  if (profile.loss_keeps_compute_logits) {
    logits.add("logits.compute", sizes.compute, {chunk, sizes.vocabulary});
  }
  if (profile.executable && sizes.tp > 1)
    logits.add("statistics", DType::f32, {sizes.tp * 2 * chunk});
  return make_arena(
      "loss",
      {logits.take(), SlotBuilder("rows", 1).add("loss", DType::f32, {sizes.tokens}).take()});
}

constexpr const char* kForwardArenas[] = {"weights", "activations", "workspace", "loss"};

// The map of `recipe` with what forward passes alone need.
MemoryMap forward_map(const Recipe& recipe, Profile profile) {
  Recipe forward = recipe;
  forward.distill = {};
  forward.parallel = {};
  forward.recompute = {RecomputeMode::full, 0, 0};
  forward.offload = {};
  profile.checkpoint = {};
  std::erase_if(profile.head, [](const SavedTensor& tensor) {
    return std::string_view(tensor.name) == "d_final";
  });
  profile.workspace = profile.forward_workspace;
  return memory_map(forward, profile);
}

void add_teacher_arenas(MemoryMap& map, const Recipe& recipe, const Profile& profile) {
  const MemoryMap teacher = forward_map(teacher_recipe(recipe), profile);
  for (const char* name : kForwardArenas) {
    map.arenas.push_back(teacher.arena(name));
    map.arenas.back().name = kTeacherPrefix + map.arenas.back().name;
  }
}

}  // namespace

const TensorPlace& SlotPlan::tensor(std::string_view tensor_name) const {
  return named(tensors, tensor_name);
}

int64_t SlotPlan::tensor_bytes() const {
  int64_t sum = 0;
  for (const TensorPlace& place : tensors) sum += place.bytes;
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

int64_t held_layers(const ParamTable& table, const ParamGroup& group, const Recipe& recipe,
                    int64_t stage) {
  const Mesh& mesh = recipe.parallel;
  if (group.prefix != "blocks.") {
    if (&group == &table.groups.front()) return stage == 0 ? 1 : 0;
    return stage == mesh.pp - 1 ? group.repeats : 0;
  }
  int64_t layers = 0;
  for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
    const LayerRange range = stage_layers(mesh, recipe.model.layers, chunk * mesh.pp + stage);
    layers += std::max<int64_t>(
        0, std::min(range.first + range.count, group.first_layer + group.repeats) -
               std::max(range.first, group.first_layer));
  }
  return layers;
}

int64_t common_elements(const ParamTable& table, const Recipe& recipe, int64_t stage,
                        int64_t ways) {
  int64_t sum = 0;
  for (const ParamGroup& group : table.groups) {
    int64_t common = 0;
    for (const Param& param : group.params) {
      if (!param.trainable) continue;
      const ParamShard shard = param_shard(param, recipe.parallel, 0, 0);
      const int64_t across = shard.count() / shard.shape[static_cast<size_t>(shard.dim)];
      for (const ShardRange& range : shard.ranges) {
        if (range.copies == ways) common += range.count * across;
      }
    }
    sum += held_layers(table, group, recipe, stage) * common;
  }
  return sum;
}

LocalElements local_elements(const ParamTable& table, const Recipe& recipe, int64_t stage,
                             bool trainable_only) {
  const Mesh& mesh = recipe.parallel;
  LocalElements elements;
  for (const ParamGroup& group : table.groups) {
    int64_t shared = 0;
    int64_t expert = 0;
    for (const Param& param : group.params) {
      if (trainable_only && !param.trainable) continue;
      (param.expert ? expert : shared) += align_elements(param.local_count(mesh));
    }
    const int64_t times = held_layers(table, group, recipe, stage);
    if (times == 0) continue;
    elements.shared += times * shared;
    elements.expert += times * expert;
    elements.largest_layer = std::max(elements.largest_layer, shared + expert);
  }
  const std::vector<Param>& first = table.groups.front().params;
  if (first.empty()) return elements;  // a table of some parameters
  const Param& tokens = first.front();
  if (mesh.pp > 1 && stage == mesh.pp - 1 && recipe.model.tied_embeddings &&
      (tokens.trainable || !trainable_only)) {
    elements.shared += align_elements(tokens.local_count(mesh));
  }
  return elements;
}

namespace {

// Of each zone that ZeRO divides on its own, ranks and elements.
struct Zone {
  int64_t ways = 1;
  int64_t elements = 0;
};
std::vector<Zone> zero_zones(const LocalElements& elements, const Mesh& mesh) {
  if (mesh.ep == 1) return {{replicas(mesh), elements.total()}};
  return {{replicas(mesh), elements.shared}, {replicas(mesh, true), elements.expert}};
}

}  // namespace

int64_t shard_elements(const LocalElements& elements, const Mesh& mesh) {
  int64_t sum = 0;
  for (const Zone& zone : zero_zones(elements, mesh)) {
    sum += align_elements((zone.elements + zone.ways - 1) / zone.ways);
  }
  return sum;
}

int64_t divisible_elements(const LocalElements& elements, const Mesh& mesh) {
  if (mesh.zero == 0) return elements.total();
  int64_t sum = 0;
  for (const Zone& zone : zero_zones(elements, mesh)) {
    sum += zone.ways * align_elements((zone.elements + zone.ways - 1) / zone.ways);
  }
  return sum;
}

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
  if (scattered) batch.add("numbers", DType::i32, {sizes.tokens});
  map.arenas.push_back(make_arena("batch", {batch.take()}));
  if (recipe.distill.enabled()) add_teacher_arenas(map, recipe, profile);
  return map;
}

MemoryMap memory_map(const Recipe& recipe) {
  return memory_map(recipe, tutti_profile_on(recipe.device));
}

MemoryMap inference_memory_map(const Recipe& recipe) {
  const MemoryMap whole = forward_map(recipe, tutti_profile());
  MemoryMap map;
  for (const char* name : kForwardArenas) map.arenas.push_back(whole.arena(name));
  map.arenas.push_back(whole.arena("batch"));
  return map;
}

int64_t offload_buffer_elements(int64_t optimizer) {
  return std::min(kBucketElements, align_elements((optimizer + 3) / 4));
}

OffloadTraffic offload_traffic(const Recipe& recipe, const MemoryMap& map, int64_t stage) {
  OffloadTraffic out;
  for (const ArenaPlan& arena : map.arenas) {
    if (arena.on_host && arena.name != kOffloadedActivations) out.state_in += arena.bytes;
  }
  out.state_out = out.state_in;
  for (const bool recomputes : {false, true}) {
    for (const bool routed : {false, true}) {
      const OffloadPlan plan = offload_plan(recipe, stage, routed, recomputes);
      if (plan.host_slots == 0) continue;
      const int64_t bytes =
          map.arena(kOffloadedActivations).slot(block_slot_name(routed, recomputes)).stride_bytes;
      out.activations_out += plan.leaving * bytes;
      out.activations_in += plan.arriving * bytes;
    }
  }
  return out;
}

int64_t bytes_freed_by_recompute(const Recipe& recipe) {
  Recipe plain = recipe;
  plain.recompute = {};
  return memory_map(plain).total_bytes() - memory_map(recipe).total_bytes();
}

}  // namespace tutti::spec
