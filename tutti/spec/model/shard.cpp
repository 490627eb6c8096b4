#include "tutti/spec/model/shard.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/spec/model/params.h"

namespace tutti::spec {
namespace {

// Indices [first, first + size) of the split dimension, split independently of the others.
struct Part {
  int64_t first = 0;
  int64_t size = 0;
  int64_t pieces = 1;  // distinct pieces; fewer than ranks for key/value heads that
};

std::vector<Part> parts_of(const Param& param, int64_t size, int64_t ways) {
  std::vector<Part> parts;
  int64_t first = 0;
  const auto add = [&](int64_t total, int64_t count, int64_t pieces) {
    for (int64_t i = 0; i < count; ++i, first += total / count) {
      parts.push_back({first, total / count, pieces});
    }
  };
  add(size - param.kv_rows, param.kv_rows < size ? param.parts : 0, ways);
  add(param.kv_rows, param.kv_rows > 0 ? param.kv_parts : 0, std::min(ways, param.kv_heads));
  return parts;
}

// Whether `next` continues `range` in both tensors.
bool continues(const ShardRange& range, const ShardRange& next) {
  return range.local_first + range.count == next.local_first &&
         range.global_first + range.count == next.global_first && range.copies == next.copies &&
         range.copy == next.copy;
}

int64_t product(const std::vector<int64_t>& shape, size_t begin, size_t end) {
  int64_t out = 1;
  for (size_t i = begin; i < end; ++i) out *= shape[i];
  return out;
}

// Cuts elements [first, end) of a row-major tensor of `shape` into boxes, given as offset and
// shape. Never merges indices of the first `outer` dimensions.
using Indices = std::vector<int64_t>;
void cut_range(const Indices& shape, size_t dim, size_t outer, int64_t first, int64_t end,
               Indices& offset, Indices& size,
               const std::function<void(const Indices&, const Indices&)>& visit) {
  const int64_t inner = product(shape, dim + 1, shape.size());
  const auto rows = [&](int64_t from, int64_t to) {
    offset[dim] = from;
    size[dim] = to - from;
    for (size_t i = dim + 1; i < shape.size(); ++i) {
      offset[i] = 0;
      size[i] = shape[i];
    }
    visit(offset, size);
  };
  while (first < end) {
    const int64_t row = first / inner;
    const int64_t whole_until = end / inner;
    if (dim >= outer && first % inner == 0 && row < whole_until) {
      rows(row, whole_until);
      first = whole_until * inner;
      continue;
    }
    offset[dim] = row;
    size[dim] = 1;
    cut_range(shape, dim + 1, outer, first % inner, std::min(inner, first % inner + end - first),
              offset, size, visit);
    first = std::min((row + 1) * inner, end);
  }
}

}  // namespace

int64_t ParamShard::count() const { return product(shape, 0, shape.size()); }

int64_t tensor_copies(int64_t kv_heads, const Mesh& mesh) {
  return mesh.tp > kv_heads ? mesh.tp / kv_heads : 1;
}

ParamShard whole_param(const Param& param) { return param_shard(param, Mesh{}, 0, 0); }

ParamShard param_shard(const Param& param, const Mesh& mesh, int64_t tp_rank, int64_t ep_rank) {
  ParamShard shard;
  shard.shape = param.shape;
  shard.shape[0] = param.padded_rows;
  if (param.expert) {
    TUTTI_CHECK(shard.shape[0] % mesh.ep == 0, "{}: {} experts over ep {}", param.name,
                shard.shape[0], mesh.ep);
    shard.shape[0] /= mesh.ep;
    shard.first_expert = ep_rank * shard.shape[0];
  }
  if (param.shard_dim < 0) {
    shard.dim = param.expert ? 1 : 0;
    const int64_t size = param.shape[static_cast<size_t>(shard.dim)];
    shard.ranges = {{0, 0, size, mesh.tp, tp_rank}};
    return shard;
  }
  shard.dim = param.shard_dim;
  int64_t& local_size = shard.shape[static_cast<size_t>(shard.dim)];
  const int64_t logical = param.shape[static_cast<size_t>(shard.dim)];
  int64_t local = 0;
  for (const Part& part : parts_of(param, local_size, mesh.tp)) {
    TUTTI_CHECK(part.size % part.pieces == 0 && mesh.tp % part.pieces == 0,
                "{}: {} of dimension {} over tp {}", param.name, part.size, shard.dim, mesh.tp);
    const int64_t copies = mesh.tp / part.pieces;
    const int64_t size = part.size / part.pieces;
    const int64_t global = part.first + tp_rank / copies * size;
    // Vocabulary padding: rows beyond the logical ones.
    const int64_t count = std::clamp<int64_t>(logical - global, 0, size);
    const ShardRange range = {local, global, count, copies, tp_rank % copies};
    local += size;
    if (count == 0) continue;
    if (!shard.ranges.empty() && continues(shard.ranges.back(), range)) {
      shard.ranges.back().count += count;
    } else {
      shard.ranges.push_back(range);
    }
  }
  local_size = local;
  return shard;
}

void visit_runs(const Param& param, const ParamShard& shard,
                const std::function<void(const ShardRun&)>& visit) {
  const auto dim = static_cast<size_t>(shard.dim);
  const int64_t inner = product(param.shape, dim + 1, param.shape.size());
  const int64_t outer = product(shard.shape, 0, dim);
  const int64_t local_stride = shard.shape[dim] * inner;
  const int64_t global_stride = param.shape[dim] * inner;
  TUTTI_CHECK(!param.expert || dim > 0, "{}: experts are split over ep only", param.name);
  const int64_t first_outer = dim > 0 ? shard.first_expert * product(param.shape, 1, dim) : 0;
  for (int64_t i = 0; i < outer; ++i) {
    for (const ShardRange& range : shard.ranges) {
      visit({i * local_stride + range.local_first * inner,
             (first_outer + i) * global_stride + range.global_first * inner, range.count * inner,
             range.copies, range.copy});
    }
  }
}

void visit_boxes(const Param& param, const ParamShard& shard, int64_t first, int64_t count,
                 const std::function<void(const ShardBox&)>& visit) {
  const auto dim = static_cast<size_t>(shard.dim);
  const size_t dims = shard.shape.size();
  const bool one_range = shard.ranges.size() == 1 && shard.ranges.front().count == shard.shape[dim];
  Indices offset(dims);
  Indices size(dims);
  const auto visit_cut = [&](const Indices& at, const Indices& cut) {
    for (const ShardRange& range : shard.ranges) {
      const int64_t begin = std::max(at[dim], range.local_first);
      const int64_t end = std::min(at[dim] + cut[dim], range.local_first + range.count);
      if (begin >= end) continue;
      ShardBox box = {0, at, cut, 0};
      box.offset[dim] = begin;
      box.shape[dim] = end - begin;
      box.copy = range.copy;
      for (size_t i = 0; i < dims; ++i) {
        box.local_first = box.local_first * shard.shape[i] + box.offset[i];
      }
      box.offset[dim] += range.global_first - range.local_first;
      if (param.expert) box.offset[0] += shard.first_expert;
      visit(box);
    }
  };
  cut_range(shard.shape, 0, one_range ? 0 : dim, first, first + count, offset, size, visit_cut);
}

}  // namespace tutti::spec
