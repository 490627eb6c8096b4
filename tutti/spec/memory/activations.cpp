// Slots of activations kept for the backward pass, on the device and on the host.
#include <algorithm>
#include <utility>

#include "tutti/spec/memory/internal.h"
#include "tutti/spec/memory/kept_tensors.h"
#include "tutti/spec/memory/offload_plan.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::spec {
namespace {

constexpr const char* kOffloadedActivations = "offloaded_activations";

// The tensors of a layer that recomputation drops, or those that it keeps.
std::vector<SavedTensor> block_tensors(const Recipe& recipe, const Profile& profile, bool dropped) {
  std::vector<SavedTensor> list = kept_tensors(recipe, profile);
  std::erase_if(list, [&](const SavedTensor& saved) {
    return is_dropped(profile, recipe.recompute, saved) != dropped;
  });
  return list;
}

}  // namespace

std::vector<int64_t> chunk_layers(const Recipe& recipe, int64_t stage, bool routed, bool recomputes,
                                  bool offloaded) {
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

int64_t in_flight_of_chunk(const Recipe& recipe, int64_t stage, int64_t chunk) {
  return peak_in_flight_of_chunk(recipe.parallel, make_schedule(recipe).micro_batches, stage,
                                 chunk);
}

std::string block_slot_name(bool routed, bool recomputes) {
  return std::string("block") + (routed ? ".moe" : "") + (recomputes ? ".recomputed" : "");
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
          offload_plan(recipe, stage, routed, recomputes).device_slots;
      if (repeats == 0) continue;
      slots.push_back(SlotBuilder(block_slot_name(routed, recomputes), repeats)
                          .add(recomputes ? block_tensors(recipe, profile, false)
                                          : kept_tensors(recipe, profile),
                               sizes, !routed, routed)
                          .take());
    }
  }
  // Only the active layer holds recomputed tensors.
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

}  // namespace tutti::spec
