// Shards of parameters: the elements of a parameter that a rank holds. Tensor parallel ranks split
// one dimension, expert parallel ranks the experts. A dimension that consists of parts (query, key
// and value rows; gate and up rows) is split part by part, so that every rank has a share of each.
// If there are more ranks than key/value heads, several ranks hold the same head.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tutti/spec/mesh/mesh.h"

namespace tutti::spec {

struct Param;  // params.h

// `count` consecutive indices of the split dimension, in this rank's tensor and in the full tensor.
struct ShardRange {
  int64_t local_first = 0;
  int64_t global_first = 0;
  int64_t count = 0;
  int64_t copies = 1;  // consecutive tensor parallel ranks that hold this range
  int64_t copy = 0;    // which of them is this rank
  bool operator==(const ShardRange&) const = default;
};

struct ParamShard {
  std::vector<int64_t> shape;      // of this rank's tensor, with padded rows
  int dim = 0;                     // of `ranges`
  std::vector<ShardRange> ranges;  // ascending; without padded rows
  int64_t first_expert = 0;        // of dimension 0, for parameters of experts

  int64_t count() const;  // elements in the arena
};

// Consecutive tensor parallel ranks that hold the same key/value heads.
int64_t tensor_copies(int64_t kv_heads, const Mesh& mesh);

// The whole parameter, as a single rank holds it.
ParamShard whole_param(const Param& param);

// The shard of tensor parallel rank `tp_rank` and expert parallel rank `ep_rank`. Aborts if the
// mesh does not divide the parameter (validate() refuses such recipes).
ParamShard param_shard(const Param& param, const Mesh& mesh, int64_t tp_rank, int64_t ep_rank);

// `count` elements that are consecutive in this rank's tensor and in the full tensor.
struct ShardRun {
  int64_t local_first = 0;
  int64_t global_first = 0;
  int64_t count = 0;
  int64_t copies = 1;
  int64_t copy = 0;
};

// Calls `visit` for every run, in ascending local order. The runs cover all elements of the shard
// except padding.
void visit_runs(const Param& param, const ParamShard& shard,
                const std::function<void(const ShardRun&)>& visit);

// A box of the full tensor that is contiguous in this rank's tensor.
struct ShardBox {
  int64_t local_first = 0;      // its first element in this rank's tensor
  std::vector<int64_t> offset;  // its first index in the full tensor
  std::vector<int64_t> shape;
  int64_t copy = 0;  // which of the ranks that hold it is this one, as in ShardRange
};

// Cuts elements [first, first + count) of this rank's tensor into boxes, in ascending order; they
// cover all elements except padding. The number of boxes does not grow with the number of elements.
void visit_boxes(const Param& param, const ParamShard& shard, int64_t first, int64_t count,
                 const std::function<void(const ShardBox&)>& visit);

}  // namespace tutti::spec
