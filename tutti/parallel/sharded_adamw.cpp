#include "tutti/parallel/sharded_adamw.h"

#include <algorithm>

#include "tutti/spec/profile.h"

namespace tutti::parallel {
namespace {

engine::Vector range(const engine::Arena& arena, DType dtype, int64_t first, int64_t count) {
  const int64_t size = dtype_bytes(dtype);
  return engine::vector(arena.at(first * size, count * size), dtype, count);
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

// Ranges of the flat arenas that this rank counts in the gradient's norm, ascending.
struct Range {
  int64_t first = 0;
  int64_t end = 0;
};
std::vector<Range> counted_ranges(const spec::ParamLayout& layout) {
  std::vector<Range> out;
  for (const spec::PlacedParam& placed : layout.params) {
    if (!placed.param.trainable) break;
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
    : config_(recipe.optimizer),
      ranks_(ranks),
      sharded_(recipe.parallel.zero >= 1),
      buckets_(spec::buckets(layout, recipe.parallel, bucket_elements)) {
  const DType compute = spec::compute_type(recipe.precision);
  const bool mixed = compute != DType::f32;
  weights_ = range(memory.arena("weights"), compute, 0, layout.trainable_elements);
  const std::vector<engine::AdamwSegment> segments =
      optim::decay_segments(layout, static_cast<float>(recipe.optimizer.weight_decay));
  for (const spec::ShardSlice& place :
       spec::owned_slices(layout, recipe.parallel, ranks.at, bucket_elements)) {
    const auto flat = [&](const char* arena, DType dtype) {
      return range(memory.arena(arena), dtype, place.first, place.count);
    };
    const auto shard = [&](const char* arena) {
      return range(memory.arena(arena), DType::f32, place.shard_first, place.count);
    };
    OwnedSlice slice;
    slice.place = place;
    slice.state.gradient = flat("gradients", DType::f32);
    slice.state.master = mixed ? shard("master") : flat("weights", DType::f32);
    slice.state.moment1 = shard("moment1");
    slice.state.moment2 = shard("moment2");
    if (mixed) slice.state.weights = flat("weights", compute);
    slice.state.segments = cut(segments, place.first, place.count);
    slices_.push_back(std::move(slice));
  }
  // On one rank the whole arena, whose padding holds zeros, is one sum.
  const std::vector<Range> counted = ranks.world == nullptr
                                         ? std::vector<Range>{{0, layout.trainable_elements}}
                                         : counted_ranges(layout);
  for (const OwnedSlice& slice : slices_) {
    for (const Range& one : counted) {
      const int64_t first = std::max(one.first, slice.place.first);
      const int64_t end = std::min(one.end, slice.place.first + slice.place.count);
      if (first < end) {
        counted_.push_back(range(memory.arena("gradients"), DType::f32, first, end - first));
      }
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
  gather_weights(stream);
}

void ShardedAdamw::gather_weights(engine::Stream& stream) {
  if (!sharded_) return;
  const int64_t size = dtype_bytes(weights_.dtype);
  const auto part = [&](int64_t first, int64_t count) {
    return engine::vector(static_cast<char*>(weights_.data) + first * size, weights_.dtype, count);
  };
  for (const spec::Bucket& bucket : buckets_) {
    comm::Group* group = bucket.expert ? ranks_.expert_replicas : ranks_.replicas;
    if (group == nullptr) continue;
    tickets_.push_back(group->all_gather(
        stream, part(bucket.first + group->rank() * bucket.slice(), bucket.slice()),
        part(bucket.first, bucket.count)));
  }
}

void ShardedAdamw::wait_weights(engine::Stream& stream) {
  for (const comm::Ticket& ticket : tickets_) ticket.wait(stream);
  tickets_.clear();
}

void ShardedAdamw::masters_changed(engine::Stream& stream) {
  for (const OwnedSlice& slice : slices_) {
    if (!slice.state.weights) continue;
    stream.ops().convert(stream, {.x = slice.state.master, .out = slice.state.weights});
  }
  gather_weights(stream);
  wait_weights(stream);
}

}  // namespace tutti::parallel
