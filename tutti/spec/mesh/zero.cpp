#include "tutti/spec/mesh/zero.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/spec/mesh/zero_layers.h"

namespace tutti::spec {

namespace {

// What is cut into buckets on its own.
struct ZeroZone {
  int64_t first = 0;
  int64_t end = 0;
  bool expert = false;
  bool trainable = true;
};

// Where the lowest block begins: what is behind it is complete at the very end.
int64_t last_layer_first(const ParamLayout& layout) {
  const PlacedParam* lowest = nullptr;
  int64_t number = 0;
  for (const PlacedParam& placed : layout.params) {
    const int64_t layer = layer_number(placed.name);
    const bool shared = placed.element_offset < layout.expert_offset;
    if (layer < 0 || !shared || !placed.param.trainable) continue;
    if (lowest != nullptr && layer >= number) continue;
    lowest = &placed;
    number = layer;
  }
  return lowest == nullptr ? layout.expert_offset : lowest->element_offset;
}

std::vector<ZeroZone> zones_of(const ParamLayout& layout, const Mesh& mesh,
                               int64_t bucket_elements) {
  if (!by_layer(mesh)) {
    // Of several buckets none but the last ones waits for the last layer.
    const int64_t unit = kParamAlignment * (mesh.zero >= 1 ? replicas(mesh) : 1);
    const bool several = layout.expert_offset > bucket_elements;
    const int64_t last = several ? last_layer_first(layout) / unit * unit : 0;
    return {{0, last, false, true},
            {last, layout.expert_offset, false, true},
            {layout.expert_offset, layout.trainable_elements, true, true}};
  }
  std::vector<ZeroZone> zones;
  for (const ZeroLayer& layer : zero_layers(layout, mesh)) {
    for (const LayerPart& part : layer.parts) {
      zones.push_back({part.first, part.first + part.count, part.expert, part.trainable});
    }
  }
  std::sort(zones.begin(), zones.end(),
            [](const ZeroZone& a, const ZeroZone& b) { return a.first < b.first; });
  return zones;
}

std::vector<Bucket> cut(const ParamLayout& layout, const Mesh& mesh, int64_t bucket_elements,
                        bool frozen) {
  std::vector<Bucket> out;
  int64_t shard_first = 0;
  for (const ZeroZone& zone : zones_of(layout, mesh, bucket_elements)) {
    if (!zone.trainable && !frozen) continue;
    const int64_t ways = replicas(mesh, zone.expert);
    const int64_t unit = kParamAlignment * (mesh.zero >= 1 ? ways : 1);
    const int64_t size = std::max<int64_t>(1, bucket_elements / unit) * unit;
    for (int64_t first = zone.first; first < zone.end; first += size) {
      Bucket bucket = {
          first, std::min(size, zone.end - first), ways, shard_first, zone.expert, zone.trainable};
      TUTTI_CHECK(bucket.count % unit == 0, "{} elements from {} on for {} ranks", bucket.count,
                  first, ways);
      shard_first += mesh.zero >= 1 ? bucket.slice() : bucket.count;
      out.push_back(bucket);
    }
  }
  return out;
}

std::vector<ShardSlice> slices_of(const std::vector<Bucket>& list, const Mesh& mesh,
                                  const Coordinates& at) {
  std::vector<ShardSlice> out;
  for (const Bucket& bucket : list) {
    const int64_t first = bucket.first + replica_rank(mesh, at, bucket.expert) * bucket.slice();
    const bool continues = !out.empty() && out.back().first + out.back().count == first;
    if (continues) {
      out.back().count += bucket.slice();
    } else {
      out.push_back({first, bucket.shard_first, bucket.slice()});
    }
  }
  return out;
}

}  // namespace

std::vector<Bucket> buckets(const ParamLayout& layout, const Mesh& mesh, int64_t bucket_elements) {
  return cut(layout, mesh, bucket_elements, false);
}

std::vector<Bucket> weight_buckets(const ParamLayout& layout, const Mesh& mesh,
                                   int64_t bucket_elements) {
  return cut(layout, mesh, bucket_elements, mesh.zero == 3 && by_layer(mesh));
}

std::vector<ShardSlice> owned_slices(const ParamLayout& layout, const Mesh& mesh,
                                     const Coordinates& at, int64_t bucket_elements) {
  if (mesh.zero == 0) return {{0, 0, layout.trainable_elements}};
  return slices_of(buckets(layout, mesh, bucket_elements), mesh, at);
}

std::vector<ShardSlice> weight_slices(const ParamLayout& layout, const Mesh& mesh,
                                      const Coordinates& at, int64_t bucket_elements) {
  if (mesh.zero < 3 || !by_layer(mesh)) return {{0, 0, layout.elements}};
  return slices_of(weight_buckets(layout, mesh, bucket_elements), mesh, at);
}

int64_t replica_rank(const Mesh& mesh, const Coordinates& at, bool expert) {
  const int64_t rank = at.dp * mesh.cp + at.cp;
  return expert ? rank / mesh.ep : rank;
}

}  // namespace tutti::spec
