// Arenas of parameters, gradients and optimizer state, and their numbers of elements.
#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/spec/memory/internal.h"
#include "tutti/spec/memory/kept_tensors.h"
#include "tutti/spec/mesh/zero.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/program/narrow.h"

namespace tutti::spec {
namespace {

ArenaPlan flat_arena(const char* name, DType dtype, int64_t elements) {
  return make_arena(name, {SlotBuilder("flat", 1).add("flat", dtype, {elements}).take()});
}

// Buffers that layers share in turn (spec/mesh/zero_layers.h).
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

// Weights as narrow products read them, straight and transposed: of the blocks in their order on
// this rank, and of the head.
void add_quantized_weights(MemoryMap& map, const Recipe& recipe, const LocalSizes& sizes,
                           int64_t stage) {
  const NarrowKind kind = operand_kind(recipe.precision);
  const auto add = [&](SlotBuilder& slot, const NarrowWeight& weight) {
    const std::string name = weight.name;
    slot.add(name, DType::u8, {narrow_layout(kind, weight.out, weight.in).bytes})
        .add(name + ".turned", DType::u8, {narrow_layout(kind, weight.in, weight.out).bytes});
  };
  std::vector<SlotPlan> slots;
  if (const int64_t blocks = narrow_blocks(recipe, stage); blocks > 0) {
    SlotBuilder slot("block", blocks);
    for (const NarrowWeight& weight : block_weights(recipe.model, sizes)) add(slot, weight);
    slots.push_back(slot.take());
  }
  if (has_narrow_head(recipe, stage)) {
    SlotBuilder slot("head", 1);
    add(slot, head_weight(recipe.model, sizes));
    slots.push_back(slot.take());
  }
  if (!slots.empty()) map.arenas.push_back(make_arena("narrow", std::move(slots)));
}

// Ranks and elements of each zone that ZeRO divides separately.
struct Zone {
  int64_t ways = 1;
  int64_t elements = 0;
};
std::vector<Zone> zero_zones(const LocalElements& elements, const Mesh& mesh) {
  if (mesh.ep == 1) return {{replicas(mesh), elements.total()}};
  return {{replicas(mesh), elements.shared}, {replicas(mesh, true), elements.expert}};
}

// Elements of the matrices that are stored in mxfp8 only (Profile::narrow_weights).
int64_t narrow_only_elements(const ParamTable& table, const Recipe& recipe, const Profile& profile,
                             int64_t stage) {
  if (!profile.narrow_weights || recipe.precision != Precision::mxfp8 || recipe.lora.enabled() ||
      held_zero(recipe.parallel, profile) >= 3) {
    return 0;
  }
  return local_elements(narrow_parameters(table), recipe, stage).total();
}

// Gradients that a rank holds, of `whole` in all: its shard and, if they are reduced after rounds,
// those of the virtual stage at work and of a layer that is being reduced: FSDP reduces each layer
// as soon as its last backward pass ends.
int64_t held_gradients(const ParamTable& table, const Recipe& recipe, const Profile& profile,
                       int64_t stage, int64_t shard, int64_t whole) {
  const Mesh& mesh = recipe.parallel;
  if (held_zero(mesh, profile) >= 2) return shard;
  if (!reduces_rounds(mesh, profile)) return whole;
  Recipe flat = recipe;
  flat.parallel.pp = mesh.virtual_stages();
  flat.parallel.vpp = 1;
  int64_t most = 0;
  for (int64_t g = stage; g < mesh.virtual_stages(); g += mesh.pp) {
    const LocalElements chunk = local_elements(table, flat, g, true);
    most = std::max(most, chunk.total() + chunk.largest_layer);
  }
  return std::min(whole, shard + most);
}

// Weights that ZeRO-3 of a published implementation gathers and holds at a time.
int64_t gathered_elements(const ParamTable& table, const Recipe& recipe, const Profile& profile,
                          int64_t largest_layer) {
  const int64_t layers = 2 * largest_layer;
  if (profile.gathered_elements == 0) return layers;
  int64_t most = profile.gathered_elements;
  for (const ParamGroup& group : table.groups) {
    for (const Param& param : group.params) {
      most = std::max(most, param.local_count(recipe.parallel));
    }
  }
  return std::min(most, layers);
}

}  // namespace

void add_parameter_arenas(MemoryMap& map, const Recipe& recipe, const Profile& profile,
                          const LocalSizes& sizes, int64_t stage) {
  const Mesh& mesh = recipe.parallel;
  const ParamTable table =
      param_table(recipe.model, recipe.lora, profile.vocabulary_multiple * mesh.tp);
  const LocalElements elements = local_elements(table, recipe, stage);
  const LocalElements trainable = local_elements(table, recipe, stage, true);
  int64_t shard = shard_elements(trainable, mesh);
  int64_t whole = divisible_elements(trainable, mesh);
  const int64_t frozen_narrow = narrow_frozen_elements(table, recipe, profile, stage);
  int64_t frozen = elements.total() - trainable.total() - frozen_narrow;
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
  const int64_t zero = held_zero(mesh, profile);
  const int64_t optimizer = zero >= 1 ? shard : whole;
  const int64_t wide = whole + frozen - narrow_only_elements(table, recipe, profile, stage);
  map.arenas.push_back(flat_arena("weights", sizes.compute, zero >= 3 ? weights_shard : wide));
  if (zero >= 3) {
    map.arenas.push_back(
        layered ? layer_arena("gathered", sizes.compute, layers.block_slots, layers.gathered_block,
                              layers.gathered_outer)
                : flat_arena("gathered", sizes.compute,
                             gathered_elements(table, recipe, profile, elements.largest_layer)));
  }
  if (frozen_narrow > 0) {
    const double bytes = narrow_frozen_bytes(recipe.precision) * static_cast<double>(frozen_narrow);
    map.arenas.push_back(flat_arena("frozen", DType::u8, static_cast<int64_t>(std::ceil(bytes))));
  }
  const NarrowFormat* format = block_scaled_format(recipe.precision);
  if (format != nullptr && !profile.executable && frozen_narrow == 0) {
    // Both copies, kept from the first micro-batch of a step to the last.
    const LocalElements narrow = local_elements(narrow_parameters(table), recipe, stage);
    const int64_t count = zero >= 3 ? 2 * narrow.largest_layer : narrow.total();
    map.arenas.push_back(
        flat_arena("narrow", DType::u8,
                   static_cast<int64_t>(2 * format->element_bytes() * static_cast<double>(count))));
  }
  if (profile.quantizes_weights_once) add_quantized_weights(map, recipe, sizes, stage);
  if (has_masters(recipe)) {
    map.arenas.push_back(flat_arena("master", DType::f32, optimizer));
  }
  map.arenas.push_back(flat_arena("gradients", profile.gradient,
                                  held_gradients(table, recipe, profile, stage, shard, whole)));
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
  if (first.empty()) return elements;  // a table with some of the parameters
  const Param& tokens = first.front();
  if (mesh.pp > 1 && stage == mesh.pp - 1 && recipe.model.tied_embeddings &&
      (tokens.trainable || !trainable_only)) {
    elements.shared += align_elements(tokens.local_count(mesh));
  }
  return elements;
}

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

int64_t offload_buffer_elements(int64_t optimizer) {
  return std::min(kBucketElements, align_elements((optimizer + 3) / 4));
}

}  // namespace tutti::spec
