#include "tutti/parallel/sharded_adamw.h"

#include <algorithm>
#include <utility>

#include "tutti/parallel/range.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/program/profile.h"

namespace tutti::parallel {
namespace {

// Of a flat arena.
engine::Vector range(const model::Memory& memory, const char* arena, int64_t first, int64_t count) {
  return parallel::range(memory.vector(arena, "flat", 0, "flat"), first, count);
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
                           const Ranks& ranks, const model::Memory& memory,
                           const engine::CopyQueues* queues, int64_t bucket_elements)
    : config_(recipe.optimizer), rank_(ranks.home == nullptr ? 0 : ranks.home->rank()) {
  const spec::Mesh& mesh = recipe.parallel;
  const bool masters = spec::has_masters(recipe);
  const bool gradient_shards = mesh.zero >= 2 && spec::by_layer(mesh);
  const bool weight_shards = mesh.zero == 3 && spec::by_layer(mesh);
  const auto decay = static_cast<float>(recipe.optimizer.weight_decay);
  const std::vector<engine::AdamwSegment> segments =
      recipe.optimizer.stochastic_rounding
          ? optim::numbered_segments(layout, decay, recipe.train.seed)
          : optim::decay_segments(layout, decay);
  for (const spec::ShardSlice& owned :
       spec::owned_slices(layout, mesh, ranks.at, bucket_elements)) {
    const auto part = [&](const char* arena, bool shard) {
      return range(memory, arena, shard ? owned.shard_first : owned.first, owned.count);
    };
    OwnedSlice slice;
    slice.shard = owned;
    slice.state.gradient = part("gradients", gradient_shards);
    slice.state.master = masters ? part("master", true) : part("weights", weight_shards);
    slice.state.moment1 = part("moment1", true);
    slice.state.moment2 = part("moment2", true);
    if (masters) slice.state.weights = part("weights", weight_shards);
    slice.state.segments = optim::cut_segments(segments, owned.first, owned.count);
    slices_.push_back(std::move(slice));
  }
  if (recipe.offload.optimizer) {
    TUTTI_CHECK(queues != nullptr, "state on the host without queues to bring it over by");
    streamed_.emplace(slices_, memory, *queues);
  }
  int64_t trainable = weight_shards ? 0 : layout.trainable_elements;
  for (const OwnedSlice& slice : slices_) trainable += weight_shards ? slice.shard.count : 0;
  const int64_t weights = memory.vector("weights", "flat", 0, "flat").count;
  frozen_ = range(memory, "weights", trainable, weights - trainable);
  // On one rank the whole arena, whose padding holds zeros, is one sum.
  const std::vector<Range> counted =
      ranks.world == nullptr
          ? std::vector<Range>{{0, layout.trainable_elements}}
          : counted_ranges(layout, recipe.parallel, ranks.at, spec::tied_copy(recipe, ranks.at));
  for (const OwnedSlice& slice : slices_) {
    for (const Range& one : counted) {
      const int64_t first = std::max(one.first, slice.shard.first);
      const int64_t end = std::min(one.end, slice.shard.first + slice.shard.count);
      if (first >= end) continue;
      float* gradient = slice.state.gradient.as<float>() + (first - slice.shard.first);
      counted_.push_back(engine::vector(gradient, DType::f32, end - first));
    }
  }
}

void ShardedAdamw::squared_norm(engine::Stream& stream, double* parts) const {
  for (size_t i = 0; i < counted_.size(); ++i) {
    stream.ops().squared_norm(stream, {.x = counted_[i], .sum_of_squares = parts + i});
  }
}

void ShardedAdamw::update(engine::Stream& stream, int64_t slice,
                          const engine::UpdateScalars* scalars) {
  const auto index = static_cast<size_t>(slice);
  const auto update_part = [&](const optim::AdamwState& state) {
    optim::adamw_update(stream, state, config_, scalars, watch_ ? &sums_ : nullptr);
  };
  if (streamed_) {
    streamed_->update_slice(update_part);
  } else {
    update_part(slices_[index].state);
  }
}

void ShardedAdamw::check_state(engine::Stream& stream, const engine::UpdateScalars* scalars) {
  if (!watch_) return;
  stream.synchronize();
  const engine::AdamwSums sums = std::exchange(sums_, {});
  if (scalars->apply != 0) watch_->updated(sums);
}

void ShardedAdamw::fetch_ahead() {
  if (streamed_) streamed_->fetch_ahead();
}

void ShardedAdamw::forget_fetched() {
  if (streamed_) streamed_->forget();
}

void ShardedAdamw::state_changed(engine::Stream& stream) {
  forget_fetched();
  for (const OwnedSlice& slice : slices_) {
    if (!slice.state.weights) continue;
    stream.ops().convert(stream, {.x = slice.state.master, .out = slice.state.weights});
  }
  if (!watch_) return;
  stream.synchronize();
  watch_->trust();
}

void ShardedAdamw::watch_state() {
  std::vector<optim::AdamwState> owned;
  owned.reserve(slices_.size());
  for (const OwnedSlice& slice : slices_) owned.push_back(slice.state);
  watch_.emplace(rank_, std::move(owned), frozen_);
}

}  // namespace tutti::parallel
