#include "tutti/spec/zero.h"

#include <algorithm>

#include "tutti/base/check.h"

namespace tutti::spec {

std::vector<Bucket> buckets(const ParamLayout& layout, const Mesh& mesh, int64_t bucket_elements) {
  std::vector<Bucket> out;
  int64_t shard_first = 0;
  for (const bool expert : {false, true}) {
    const int64_t begin = expert ? layout.expert_offset : 0;
    const int64_t end = expert ? layout.trainable_elements : layout.expert_offset;
    const int64_t ways = replicas(mesh, expert);
    const int64_t unit = kParamAlignment * (mesh.zero >= 1 ? ways : 1);
    const int64_t size = std::max<int64_t>(1, bucket_elements / unit) * unit;
    for (int64_t first = begin; first < end; first += size) {
      Bucket bucket = {first, std::min(size, end - first), ways, shard_first, expert};
      TUTTI_CHECK(bucket.count % unit == 0, "{} elements from {} on for {} ranks", bucket.count,
                  first, ways);
      shard_first += mesh.zero >= 1 ? bucket.slice() : bucket.count;
      out.push_back(bucket);
    }
  }
  return out;
}

std::vector<ShardSlice> owned_slices(const ParamLayout& layout, const Mesh& mesh,
                                     const Coordinates& at, int64_t bucket_elements) {
  if (mesh.zero == 0) return {{0, 0, layout.trainable_elements}};
  std::vector<ShardSlice> out;
  for (const Bucket& bucket : buckets(layout, mesh, bucket_elements)) {
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

int64_t replica_rank(const Mesh& mesh, const Coordinates& at, bool expert) {
  const int64_t rank = at.dp * mesh.cp + at.cp;
  return expert ? rank / mesh.ep : rank;
}

}  // namespace tutti::spec
