#include "tutti/optim/adamw.h"

#include <algorithm>

#include "tutti/base/rng.h"

namespace tutti::optim {

std::vector<engine::AdamwSegment> decay_segments(const spec::ParamLayout& layout,
                                                 float weight_decay) {
  std::vector<engine::AdamwSegment> segments;
  for (size_t i = 0; i < layout.params.size(); ++i) {
    const spec::PlacedParam& placed = layout.params[i];
    if (!placed.param.trainable) break;
    // Padding behind a tensor holds zeros with zero gradients, so any decay keeps them.
    const int64_t end =
        i + 1 < layout.params.size() ? layout.params[i + 1].element_offset : layout.elements;
    const float decay = placed.param.decay ? weight_decay : 0;
    if (!segments.empty() && segments.back().weight_decay == decay) {
      segments.back().count = end - segments.back().first;
    } else {
      segments.push_back({placed.element_offset, end - placed.element_offset, decay});
    }
  }
  return segments;
}

namespace {

// Whether `run` continues as the runs of `segment` do: as long as these and as far from the last.
bool continues(const engine::AdamwSegment& segment, const spec::ShardRun& run, int64_t last) {
  const engine::AdamwSegment::Numbers& numbers = segment.numbers;
  if (run.count != numbers.width) return false;
  return segment.count == numbers.width || run.global_first - last == numbers.stride;
}

// Those of one tensor, of elements of the flat arenas.
void append_tensor(const spec::PlacedParam& placed, float decay, uint64_t key,
                   std::vector<engine::AdamwSegment>& out) {
  int64_t last = 0;    // number of the last run's first element
  bool begun = false;  // out.back() is of this tensor and ends where the next run begins
  int64_t end = placed.element_offset;
  spec::visit_runs(placed.param, placed.shard, [&](const spec::ShardRun& run) {
    const int64_t first = placed.element_offset + run.local_first;
    if (run.count == 0) return;
    if (first > end) {
      out.push_back({end, first - end, decay});  // padding
      begun = false;
    }
    if (begun && continues(out.back(), run, last)) {
      out.back().numbers.stride = run.global_first - last;
      out.back().count += run.count;
    } else {
      out.push_back({first, run.count, decay, {key, run.global_first, run.count, run.count, 0}});
    }
    begun = true;
    last = run.global_first;
    end = first + run.count;
  });
}

}  // namespace

std::vector<engine::AdamwSegment> numbered_segments(const spec::ParamLayout& layout,
                                                    float weight_decay, uint64_t seed) {
  std::vector<engine::AdamwSegment> out;
  const auto pad = [&](int64_t until) {
    const int64_t end = out.empty() ? 0 : out.back().first + out.back().count;
    if (end < until) out.push_back({end, until - end, 0});
  };
  for (const spec::PlacedParam& placed : layout.params) {
    if (!placed.param.trainable) break;
    pad(placed.element_offset);
    append_tensor(placed, placed.param.decay ? weight_decay : 0,
                  stream_key(seed, "adamw.rounding", placed.name), out);
  }
  pad(layout.trainable_elements);
  return out;
}

std::vector<engine::AdamwSegment> cut_segments(const std::vector<engine::AdamwSegment>& segments,
                                               int64_t first, int64_t count) {
  std::vector<engine::AdamwSegment> out;
  for (engine::AdamwSegment segment : segments) {
    const int64_t begin = std::max(segment.first, first);
    const int64_t end = std::min(segment.first + segment.count, first + count);
    if (begin >= end) continue;
    segment.numbers.phase += begin - segment.first;
    segment.first = begin - first;
    segment.count = end - begin;
    out.push_back(segment);
  }
  return out;
}

void adamw_update(engine::Stream& stream, const AdamwState& state,
                  const spec::OptimizerConfig& config, const engine::UpdateScalars* scalars,
                  engine::AdamwSums* sums) {
  stream.ops().adamw(stream, {.gradient = state.gradient,
                              .master = state.master,
                              .m = state.moment1,
                              .v = state.moment2,
                              .weights = state.weights,
                              .segments = state.segments,
                              .beta1 = static_cast<float>(config.beta1),
                              .beta2 = static_cast<float>(config.beta2),
                              .epsilon = static_cast<float>(config.epsilon),
                              .stochastic = config.stochastic_rounding,
                              .scalars = scalars,
                              .sums = sums});
}

}  // namespace tutti::optim
