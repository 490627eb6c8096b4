#include "tutti/train/routing.h"

#include <algorithm>

namespace tutti::train {
namespace {

int64_t routed_layers(const spec::ModelConfig& model) {
  return model.layers - model.moe.first_dense_layers;
}

engine::Vector slice(const engine::Vector& flat, int64_t first, int64_t count) {
  if (!flat) return {};
  char* data = static_cast<char*>(flat.data) + first * dtype_bytes(flat.dtype);
  return engine::vector(data, flat.dtype, count);
}

// Of every routed layer its load and sums.
engine::Matrix counters(const model::Memory& memory) {
  return memory.matrix("routing", "step", 0, "layers");
}

}  // namespace

void sum_routing(engine::Stream& stream, const parallel::Ranks& ranks,
                 const model::Memory& memory) {
  if (ranks.replicas == nullptr) return;
  const engine::Vector all = memory.vector("routing", "step", 0, "layers");
  ranks.replicas->all_reduce(stream, all, all).wait(stream);
  stream.synchronize();
}

telemetry::Routing routing_of_step(const spec::Recipe& recipe, const model::Memory& memory) {
  const spec::MixtureOfExperts& moe = recipe.model.moe;
  const auto layers = static_cast<double>(routed_layers(recipe.model));
  const auto sequences = static_cast<double>(recipe.batch.global);
  const double tokens = sequences * static_cast<double>(recipe.batch.sequence);
  const double choices = tokens * static_cast<double>(moe.top_k);
  telemetry::Routing out;
  for (int64_t layer = 0; layer < routed_layers(recipe.model); ++layer) {
    const float* load = counters(memory).row<float>(layer);
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

std::vector<SelectionBias> bind_selection_biases(const spec::ModelConfig& model,
                                                 const spec::ParamLayout& layout,
                                                 const model::Memory& memory,
                                                 const std::vector<parallel::OwnedSlice>& slices) {
  std::vector<SelectionBias> out;
  if (!model.moe.router_bias) return out;
  for (int64_t layer = 0; layer < routed_layers(model); ++layer) {
    const spec::PlacedParam& placed =
        layout.find(fmt::format("blocks.{}.moe.router.bias", model.moe.first_dense_layers + layer));
    const engine::Vector load =
        engine::vector(counters(memory).row<float>(layer), DType::f32, model.moe.experts);
    for (const parallel::OwnedSlice& slice : slices) {
      const int64_t first = std::max(placed.element_offset, slice.place.first);
      const int64_t end = std::min(placed.element_offset + model.moe.experts,
                                   slice.place.first + slice.place.count);
      if (first >= end) continue;
      out.push_back({load, first - placed.element_offset,
                     train::slice(slice.state.master, first - slice.place.first, end - first),
                     train::slice(slice.state.weights, first - slice.place.first, end - first)});
    }
  }
  return out;
}

void update_selection_biases(engine::Stream& stream, const std::vector<SelectionBias>& biases,
                             double rate) {
  for (const SelectionBias& layer : biases) {
    stream.ops().update_selection_bias(stream, {.load = layer.load,
                                                .first = layer.first,
                                                .bias = layer.bias,
                                                .weights = layer.weights,
                                                .rate = static_cast<float>(rate)});
  }
}

}  // namespace tutti::train
