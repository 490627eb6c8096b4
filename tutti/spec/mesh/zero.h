// How the flat arenas are divided among the ranks that hold the same parameters (ZeRO; Rajbhandari
// et al. 2020), and in which pieces their gradients are reduced.
//
// The trainable elements of a rank are cut into buckets in the order in which gradients complete,
// so that a bucket is reduced while the layers below still compute; only the last ones hold
// anything of the layer that is computed last. Of every bucket each of the `ways` ranks owns an
// equal slice; a rank's shard is its slices one after another. With stages 2 and 3 no bucket is of
// more than one layer (zero_layers.h), and with stage 3 frozen elements are divided in the same
// way, behind the others.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/model/params.h"

namespace tutti::spec {

inline constexpr int64_t kBucketElements = int64_t{8} << 20;  // 32 MiB of f32 gradients

struct Bucket {
  int64_t first = 0;        // elements of the flat arenas
  int64_t count = 0;        // with ZeRO a multiple of ways * kParamAlignment
  int64_t ways = 1;         // ranks it is reduced over
  int64_t shard_first = 0;  // where its slice begins in the shard of every rank
  bool expert = false;      // reduced over the ranks that hold the same experts
  bool trainable = true;
  int64_t slice() const { return count / ways; }
  bool operator==(const Bucket&) const = default;
};

// All buckets of `layout`, ascending; of about `bucket_elements`.
std::vector<Bucket> buckets(const ParamLayout& layout, const Mesh& mesh,
                            int64_t bucket_elements = kBucketElements);

// Those and, with stage 3, the buckets of the frozen weights.
std::vector<Bucket> weight_buckets(const ParamLayout& layout, const Mesh& mesh,
                                   int64_t bucket_elements = kBucketElements);

// Elements [first, first + count) of the flat arenas that lie from shard_first on in the shard.
struct ShardSlice {
  int64_t first = 0;
  int64_t shard_first = 0;
  int64_t count = 0;
  bool operator==(const ShardSlice&) const = default;
};

// What rank `at` owns of its copies: with ZeRO a slice of every bucket, else all of it.
std::vector<ShardSlice> owned_slices(const ParamLayout& layout, const Mesh& mesh,
                                     const Coordinates& at,
                                     int64_t bucket_elements = kBucketElements);
// The same of the weights arena: with stage 3 of all weights, else everything is where it is in the
// flat arenas.
std::vector<ShardSlice> weight_slices(const ParamLayout& layout, const Mesh& mesh,
                                      const Coordinates& at,
                                      int64_t bucket_elements = kBucketElements);

// Index of rank `at` among the ranks that hold the same (expert) parameters.
int64_t replica_rank(const Mesh& mesh, const Coordinates& at, bool expert = false);

}  // namespace tutti::spec
