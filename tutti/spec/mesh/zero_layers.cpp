#include "tutti/spec/mesh/zero_layers.h"

#include <algorithm>
#include <charconv>

#include "tutti/base/check.h"
#include "tutti/base/round_up.h"
#include "tutti/spec/memory/memory.h"

namespace tutti::spec {
namespace {

// Where the part that `placed` is in ends at the latest.
int64_t zone_end(const ParamLayout& layout, int64_t first) {
  if (first < layout.expert_offset) return layout.expert_offset;
  return first < layout.trainable_elements ? layout.trainable_elements : layout.elements;
}

ZeroLayer& layer_named(std::vector<ZeroLayer>& layers, int64_t number) {
  const auto found = std::find_if(layers.begin(), layers.end(),
                                  [&](const ZeroLayer& layer) { return layer.is(number); });
  TUTTI_CHECK(found != layers.end(), "layer {} is not of this rank", number);
  return *found;
}

// In forward order.
std::vector<ZeroLayer> empty_layers(const ParamLayout& layout) {
  std::vector<int64_t> blocks;
  bool embedding = false;
  bool head = false;
  for (const PlacedParam& placed : layout.params) {
    const int64_t number = layer_number(placed.name);
    embedding = embedding || number == kEmbeddingLayer;
    head = head || number == kHeadLayer;
    if (number >= 0) blocks.push_back(number);
  }
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());

  const bool joined = holds_tied_head(layout);
  std::vector<ZeroLayer> layers;
  const auto add = [&](int64_t number, const char* slot, int64_t repeat) {
    layers.push_back({number, joined && number == kEmbeddingLayer, slot, repeat, 0, 0, {}});
  };
  if (embedding || joined) add(kEmbeddingLayer, "outer", 0);
  int64_t turn = 0;
  for (const int64_t number : blocks) add(number, "block", turn++ % 2);
  if (head && !joined) add(kHeadLayer, "outer", 0);
  return layers;
}

// Of the parameters of one layer: trainable by zone, and frozen.
struct LayerSums {
  int64_t shared = 0;
  int64_t expert = 0;
  int64_t frozen = 0;
};
LayerSums padded_sums(const std::vector<Param>& params, const Mesh& mesh) {
  LayerSums sums;
  for (const Param& param : params) {
    int64_t& sum = !param.trainable              ? sums.frozen
                   : param.expert && mesh.ep > 1 ? sums.expert
                                                 : sums.shared;
    sum += align_elements(param.local_count(mesh));
  }
  const int64_t unit = kParamAlignment * replicas(mesh);
  sums.shared = round_up(sums.shared, unit);
  sums.expert = round_up(sums.expert, kParamAlignment * replicas(mesh, true));
  sums.frozen = round_up(sums.frozen, unit);
  return sums;
}

}  // namespace

int64_t layer_number(std::string_view parameter) {
  constexpr std::string_view kBlocks = "blocks.";
  if (parameter.starts_with("embedding.")) return kEmbeddingLayer;
  if (!parameter.starts_with(kBlocks)) return kHeadLayer;
  int64_t number = 0;
  std::from_chars(parameter.data() + kBlocks.size(), parameter.data() + parameter.size(), number);
  return number;
}

bool holds_tied_head(const ParamLayout& layout) {
  const auto holds = [&](std::string_view name) {
    return std::any_of(layout.params.begin(), layout.params.end(),
                       [&](const PlacedParam& placed) { return placed.name == name; });
  };
  return holds("final_norm.weight") && !holds("head.weight");
}

bool by_layer(const Mesh& mesh) { return mesh.zero >= 2 && replicas(mesh) > 1; }

const LayerPart* ZeroLayer::part_of(int64_t first) const {
  for (const LayerPart& part : parts) {
    if (part.first <= first && first < part.first + part.count) return &part;
  }
  return nullptr;
}

std::vector<ZeroLayer> zero_layers(const ParamLayout& layout, const Mesh& mesh) {
  TUTTI_CHECK(by_layer(mesh), "zero {} of {} ranks goes by no layers", mesh.zero, replicas(mesh));
  std::vector<ZeroLayer> layers = empty_layers(layout);
  const ZeroLayer* last_layer = nullptr;
  for (size_t i = 0; i < layout.params.size(); ++i) {
    const PlacedParam& placed = layout.params[i];
    const bool trainable = placed.element_offset < layout.trainable_elements;
    const bool expert = trainable && placed.element_offset >= layout.expert_offset;
    int64_t end = zone_end(layout, placed.element_offset);
    if (i + 1 < layout.params.size()) end = std::min(end, layout.params[i + 1].element_offset);
    ZeroLayer& layer = layer_named(layers, layer_number(placed.name));
    const bool apart = mesh.pp > 1 && placed.name == "embedding.token.weight";
    const bool goes_on = !apart && last_layer == &layer &&
                         layer.parts.back().trainable == trainable &&
                         layer.parts.back().expert == expert;
    last_layer = &layer;
    if (goes_on) {
      layer.parts.back().count = end - layer.parts.back().first;
    } else {
      layer.parts.push_back({placed.element_offset, end - placed.element_offset,
                             replicas(mesh, expert), expert, trainable, -1, -1});
    }
  }
  for (ZeroLayer& layer : layers) {
    for (LayerPart& part : layer.parts) {
      TUTTI_CHECK(part.count % (kParamAlignment * part.ways) == 0,
                  "layer {}: {} elements for {} ranks", layer.layer, part.count, part.ways);
      if (part.ways > 1) {
        part.in_gathered = layer.gathered;
        layer.gathered += part.count;
      }
      if (!part.trainable) continue;
      part.in_gradients = layer.gradients;
      layer.gradients += part.count;
    }
  }
  return layers;
}

ZeroSizes zero_sizes(const ParamTable& table, const Recipe& recipe, int64_t stage) {
  const Mesh& mesh = recipe.parallel;
  const int64_t expert_ways = replicas(mesh, true);
  ZeroSizes sizes;
  // Before the blocks and after them: elements in "gathered" and in "layer_gradients".
  struct Buffers {
    int64_t gathered = 0;
    int64_t gradients = 0;
  } embedding, head;
  const auto add = [&](const std::vector<Param>& params, int64_t times, bool block,
                       Buffers& outer) {
    const LayerSums sums = padded_sums(params, mesh);
    sizes.shared += times * sums.shared;
    sizes.expert += times * sums.expert;
    sizes.frozen += times * sums.frozen;
    const int64_t apart = expert_ways > 1 ? sums.expert : 0;
    const int64_t gathered = sums.shared + sums.frozen + apart;
    const int64_t gradients = sums.shared + sums.expert;
    sizes.forward.shared += times * (sums.shared + sums.frozen);
    sizes.forward.expert += times * apart;
    if (!block) {
      outer.gathered += times * gathered;
      outer.gradients += times * gradients;
      return;
    }
    sizes.backward.shared += times * (sums.shared + sums.frozen);
    sizes.backward.expert += times * apart;
    sizes.block_slots = std::min<int64_t>(2, sizes.block_slots + times);
    sizes.gathered_block = std::max(sizes.gathered_block, gathered);
    sizes.gradients_block = std::max(sizes.gradients_block, gradients);
  };
  for (const ParamGroup& group : table.groups) {
    const int64_t times = held_layers(table, group, recipe, stage);
    if (times == 0) continue;
    const bool first = &group == &table.groups.front();
    std::vector<Param> params = group.params;
    if (first && mesh.pp > 1) {
      add({params.front()}, 1, false, embedding);
      params.erase(params.begin());
    }
    add(params, times, group.prefix == "blocks.", first ? embedding : head);
  }
  const bool tied = recipe.model.tied_embeddings;
  if (tied && mesh.pp > 1 && stage == mesh.pp - 1) {
    add({table.groups.front().params.front()}, 1, false, head);
  }
  const bool joined = tied && mesh.pp == 1;
  const auto outer = [&](int64_t Buffers::*size) {
    return joined ? embedding.*size + head.*size : std::max(embedding.*size, head.*size);
  };
  sizes.gathered_outer = outer(&Buffers::gathered);
  sizes.gradients_outer = outer(&Buffers::gradients);
  sizes.shard = sizes.shared / replicas(mesh) + sizes.expert / expert_ways;
  sizes.frozen_shard = sizes.frozen / replicas(mesh);
  return sizes;
}

}  // namespace tutti::spec
