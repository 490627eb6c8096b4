#include "tutti/train/step/routing.h"

#include <algorithm>

#include "tutti/parallel/range.h"
#include "tutti/train/step/step_scalars.h"

namespace tutti::train {
namespace {

int64_t routed_layers(const spec::ModelConfig& model) {
  return model.layers - model.moe.first_dense_layers;
}

// Of every routed layer of this rank its load and sums; empty where there is none.
engine::Matrix counters(const model::Memory& memory) {
  if (!memory.map().has("routing")) return {};
  return memory.matrix("routing", "step", 0, "layers");
}

// The numbers of these layers in the model, chunk by chunk.
std::vector<int64_t> routed_here(const spec::Recipe& recipe, const spec::Coordinates& at) {
  const spec::Mesh& mesh = recipe.parallel;
  std::vector<int64_t> layers;
  for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
    const spec::LayerRange range =
        spec::stage_layers(mesh, recipe.model.layers, chunk * mesh.pp + at.pp);
    for (int64_t i = range.first; i < range.first + range.count; ++i) {
      if (spec::is_routed(recipe.model, i)) layers.push_back(i);
    }
  }
  return layers;
}

// From these counters, on the host.
telemetry::Routing routing_of(const spec::Recipe& recipe, const engine::Matrix& counted) {
  const spec::MixtureOfExperts& moe = recipe.model.moe;
  const auto layers = static_cast<double>(routed_layers(recipe.model));
  const auto sequences = static_cast<double>(recipe.batch.global);
  const double tokens = sequences * static_cast<double>(recipe.batch.sequence);
  const double choices = tokens * static_cast<double>(moe.top_k);
  telemetry::Routing out;
  for (int64_t layer = 0; layer < counted.rows; ++layer) {
    const float* load = counted.row<float>(layer);
    const float* sums = load + moe.experts;
    out.balance_loss += static_cast<double>(sums[0]) / sequences / layers;
    out.z_loss += static_cast<double>(sums[1]) / tokens / layers;
    out.dropped_share += static_cast<double>(sums[2]) / choices / layers;
    const auto highest = static_cast<double>(*std::max_element(load, load + moe.experts));
    const double ratio = highest / (choices / static_cast<double>(moe.experts));
    out.load_max_over_mean = std::max(out.load_max_over_mean, ratio);
  }
  return out;
}

}  // namespace

void sum_routing(engine::Stream& stream, const parallel::Ranks& ranks,
                 const model::Memory& memory) {
  if (!counters(memory)) return;
  const engine::Vector all = memory.vector("routing", "step", 0, "layers");
  for (comm::Group* group : {ranks.layers.tp, ranks.replicas}) {
    if (group != nullptr) group->all_reduce(stream, all, all).wait(stream);
  }
}

telemetry::Routing routing_of_step(engine::Stream& stream, const spec::Recipe& recipe,
                                   const model::Memory& memory) {
  engine::Matrix mine = counters(memory);
  std::vector<float> here;
  if (mine && stream.memory() == engine::ArenaKind::device) {
    here.resize(static_cast<size_t>(mine.rows * mine.cols));
    stream.transfer(here.data(), mine.data, mine.bytes());
    mine.data = here.data();
  }
  stream.synchronize();
  return routing_of(recipe, mine);
}

FetchedRouting::FetchedRouting(const engine::Stream& stream, const model::Memory& memory)
    : there_(counters(memory)), stream_(engine::make_cpu_stream(1)) {
  if (!there_) return;
  arena_.emplace("routing of the host", kStepsUnderWay * there_.bytes(), host_side(stream));
  here_ = engine::matrix(arena_->data(), DType::f32, kStepsUnderWay * there_.rows, there_.cols);
}

engine::Matrix FetchedRouting::at(int64_t step_slot) const {
  return here_.slice_rows(step_slot * there_.rows, there_.rows);
}

void FetchedRouting::fetch(engine::Stream& stream, int64_t step_slot) const {
  if (there_) stream.transfer(at(step_slot).data, there_.data, there_.bytes());
}

telemetry::Routing FetchedRouting::result(const spec::Recipe& recipe, const parallel::Ranks& ranks,
                                          int64_t step_slot) const {
  telemetry::Routing routing = routing_of(recipe, there_ ? at(step_slot) : engine::Matrix{});
  join_stages(*stream_, ranks, routing);
  return routing;
}

void join_stages(engine::Stream& stream, const parallel::Ranks& ranks,
                 telemetry::Routing& routing) {
  if (ranks.pipeline == nullptr) return;
  // Numbers of the host, which the group of all ranks carries: of each stage one rank counts.
  float sums[] = {static_cast<float>(routing.balance_loss), static_cast<float>(routing.z_loss),
                  static_cast<float>(routing.dropped_share)};
  if (ranks.at.dp > 0 || ranks.at.tp > 0 || ranks.at.cp > 0) std::fill_n(sums, 3, 0.0F);
  auto highest = static_cast<float>(routing.load_max_over_mean);
  const engine::Vector added = engine::vector(sums, DType::f32, 3);
  const engine::Vector compared = engine::vector(&highest, DType::f32, 1);
  ranks.world->all_reduce(stream, added, added);
  ranks.world->all_reduce(stream, compared, compared, comm::Reduce::max).wait(stream);
  stream.synchronize();
  routing = {sums[0], sums[1], highest, sums[2]};
}

std::vector<SelectionBias> bind_selection_biases(const spec::Recipe& recipe,
                                                 const spec::Coordinates& at,
                                                 const spec::ParamLayout& layout,
                                                 const model::Memory& memory,
                                                 const std::vector<parallel::OwnedSlice>& slices) {
  std::vector<SelectionBias> out;
  const spec::ModelConfig& model = recipe.model;
  if (!model.moe.router_bias) return out;
  const std::vector<int64_t> layers = routed_here(recipe, at);
  for (size_t i = 0; i < layers.size(); ++i) {
    const spec::PlacedParam& placed =
        layout.find(fmt::format("blocks.{}.moe.router.bias", layers[i]));
    const engine::Vector load = engine::vector(counters(memory).row<float>(static_cast<int64_t>(i)),
                                               DType::f32, model.moe.experts);
    for (const parallel::OwnedSlice& slice : slices) {
      const int64_t first = std::max(placed.element_offset, slice.shard.first);
      const int64_t end = std::min(placed.element_offset + model.moe.experts,
                                   slice.shard.first + slice.shard.count);
      if (first >= end) continue;
      out.push_back({load, first - placed.element_offset,
                     parallel::range(slice.state.master, first - slice.shard.first, end - first),
                     parallel::range(slice.state.weights, first - slice.shard.first, end - first)});
    }
  }
  return out;
}

void update_selection_biases(engine::Stream& stream, const std::vector<SelectionBias>& biases,
                             double rate, const engine::UpdateScalars* scalars) {
  for (const SelectionBias& layer : biases) {
    stream.ops().update_selection_bias(stream, {.load = layer.load,
                                                .first = layer.first,
                                                .bias = layer.bias,
                                                .weights = layer.weights,
                                                .rate = static_cast<float>(rate),
                                                .scalars = scalars});
  }
}

}  // namespace tutti::train
