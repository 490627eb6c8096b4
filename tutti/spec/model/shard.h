// Which elements of a parameter a rank holds: tensor parallel ranks split one dimension, expert
// parallel ranks the experts. A dimension that consists of parts (query, key and value rows; gate
// and up rows) is split part by part, so that every rank has a share of each. With more ranks than
// key/value heads these heads are held several times.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tutti/spec/mesh/mesh.h"

namespace tutti::spec {

struct Param;  // params.h

// `count` consecutive indices of the split dimension, in this rank's tensor and in the whole one.
struct ShardRange {
  int64_t local_first = 0;
  int64_t global_first = 0;
  int64_t count = 0;
  int64_t copies = 1;  // tensor parallel ranks that hold this range, one after another
  int64_t copy = 0;    // which of them this rank is
  bool operator==(const ShardRange&) const = default;
};

struct ParamShard {
  std::vector<int64_t> shape;      // of this rank's tensor, with padded rows
  int dim = 0;                     // that `ranges` speak of
  std::vector<ShardRange> ranges;  // ascending; padded rows are in none
  int64_t first_expert = 0;        // of dimension 0, where the parameter is of experts

  int64_t count() const;  // elements in the arena
};

// Tensor parallel ranks, one after another, that hold the same key/value heads.
int64_t tensor_copies(int64_t kv_heads, const Mesh& mesh);

// The whole parameter, as one rank alone holds it.
ParamShard whole_param(const Param& param);

// Of tensor parallel rank `tp_rank` and expert parallel rank `ep_rank`. Aborts where the mesh does
// not divide the parameter (validate() refuses such recipes).
ParamShard param_shard(const Param& param, const Mesh& mesh, int64_t tp_rank, int64_t ep_rank);

// `count` consecutive elements that are consecutive in the whole tensor too.
struct ShardRun {
  int64_t local_first = 0;
  int64_t global_first = 0;
  int64_t count = 0;
  int64_t copies = 1;
  int64_t copy = 0;
};

// Calls `visit` for every run, in ascending local order. Together they are all elements of the
// shard but the padding.
void visit_runs(const Param& param, const ParamShard& shard,
                const std::function<void(const ShardRun&)>& visit);

// A part of a whole tensor: a box of it, contiguous in this rank's tensor.
struct ShardBox {
  int64_t local_first = 0;      // its first element in this rank's tensor
  std::vector<int64_t> offset;  // its first index in the whole tensor
  std::vector<int64_t> shape;
  int64_t copy = 0;  // which of the ranks that hold it this one is, as ShardRange
};

// Cuts elements [first, first + count) of this rank's tensor into boxes, in ascending order;
// together they are all of them but the padding. A few, however many elements there are.
void visit_boxes(const Param& param, const ParamShard& shard, int64_t first, int64_t count,
                 const std::function<void(const ShardBox&)>& visit);

}  // namespace tutti::spec
