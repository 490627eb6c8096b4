#include "tutti/parallel/sharded_adamw.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/spec/profile.h"
#include "tutti/spec/zero_layers.h"

namespace tutti::parallel {
namespace {

// Of a flat arena.
engine::Vector range(const model::Memory& memory, const char* arena, int64_t first, int64_t count) {
  const engine::Vector all = memory.vector(arena, "flat", 0, "flat");
  TUTTI_CHECK(first >= 0 && first + count <= all.count, "elements {}+{} of {}", first, count,
              all.count);
  char* data = static_cast<char*>(all.data) + first * dtype_bytes(all.dtype);
  return engine::vector(data, all.dtype, count);
}

// The part of `segments` in [first, first + count), counted from `first`.
std::vector<engine::AdamwSegment> cut(const std::vector<engine::AdamwSegment>& segments,
                                      int64_t first, int64_t count) {
  std::vector<engine::AdamwSegment> out;
  for (const engine::AdamwSegment& segment : segments) {
    const int64_t begin = std::max(segment.first, first);
    const int64_t end = std::min(segment.first + segment.count, first + count);
    if (begin < end) out.push_back({begin - first, end - begin, segment.weight_decay});
  }
  return out;
}

// Ranges of the flat arenas that this rank counts in the gradient's norm, ascending: of what
// several ranks hold, one of them counts it.
struct Range {
  int64_t first = 0;
  int64_t end = 0;
};
// `copy`: a parameter that another stage counts.
std::vector<Range> counted_ranges(const spec::ParamLayout& layout, const spec::Mesh& mesh,
                                  const spec::Coordinates& at, const std::string& copy) {
  std::vector<Range> out;
  for (const spec::PlacedParam& placed : layout.params) {
    if (!placed.param.trainable) break;
    if (placed.name == copy) continue;
    const bool expert = placed.param.expert && mesh.ep > 1;
    if (mesh.zero == 0 && spec::replica_rank(mesh, at, expert) > 0) continue;
    spec::visit_runs(placed.param, placed.shard, [&](const spec::ShardRun& run) {
      if (run.copy > 0) return;
      const int64_t first = placed.element_offset + run.local_first;
      if (!out.empty() && out.back().end == first) {
        out.back().end += run.count;
      } else {
        out.push_back({first, first + run.count});
      }
    });
  }
  return out;
}

}  // namespace

ShardedAdamw::ShardedAdamw(const spec::Recipe& recipe, const spec::ParamLayout& layout,
                           const Ranks& ranks, const model::Memory& memory, int64_t bucket_elements)
    : config_(recipe.optimizer) {
  const spec::Mesh& mesh = recipe.parallel;
  const bool mixed = spec::compute_type(recipe.precision) != DType::f32;
  const bool gradient_shards = mesh.zero >= 2 && spec::by_layer(mesh);
  const bool weight_shards = mesh.zero == 3 && spec::by_layer(mesh);
  const std::vector<engine::AdamwSegment> segments =
      optim::decay_segments(layout, static_cast<float>(recipe.optimizer.weight_decay));
  for (const spec::ShardSlice& place :
       spec::owned_slices(layout, mesh, ranks.at, bucket_elements)) {
    const auto part = [&](const char* arena, bool shard) {
      return range(memory, arena, shard ? place.shard_first : place.first, place.count);
    };
    OwnedSlice slice;
    slice.place = place;
    slice.state.gradient = part("gradients", gradient_shards);
    slice.state.master = mixed ? part("master", true) : part("weights", weight_shards);
    slice.state.moment1 = part("moment1", true);
    slice.state.moment2 = part("moment2", true);
    if (mixed) slice.state.weights = part("weights", weight_shards);
    slice.state.segments = cut(segments, place.first, place.count);
    slices_.push_back(std::move(slice));
  }
  // On one rank the whole arena, whose padding holds zeros, is one sum.
  const std::vector<Range> counted =
      ranks.world == nullptr
          ? std::vector<Range>{{0, layout.trainable_elements}}
          : counted_ranges(layout, recipe.parallel, ranks.at, spec::tied_copy(recipe, ranks.at));
  for (const OwnedSlice& slice : slices_) {
    for (const Range& one : counted) {
      const int64_t first = std::max(one.first, slice.place.first);
      const int64_t end = std::min(one.end, slice.place.first + slice.place.count);
      if (first >= end) continue;
      float* gradient = slice.state.gradient.as<float>() + (first - slice.place.first);
      counted_.push_back(engine::vector(gradient, DType::f32, end - first));
    }
  }
}

double ShardedAdamw::squared_norm(engine::Stream& stream) const {
  double sum = 0;
  for (const engine::Vector& gradients : counted_) {
    double part = 0;
    stream.ops().squared_norm(stream, {.x = gradients, .sum_of_squares = &part});
    sum += part;
  }
  return sum;
}

void ShardedAdamw::update(engine::Stream& stream, double learning_rate, double clip, int64_t step) {
  for (const OwnedSlice& slice : slices_) {
    optim::adamw_update(stream, slice.state, config_, learning_rate, clip, step);
  }
}

void ShardedAdamw::masters_changed(engine::Stream& stream) {
  for (const OwnedSlice& slice : slices_) {
    if (!slice.state.weights) continue;
    stream.ops().convert(stream, {.x = slice.state.master, .out = slice.state.weights});
  }
}

}  // namespace tutti::parallel
