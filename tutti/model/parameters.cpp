#include "tutti/model/parameters.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tutti/base/check.h"

namespace tutti::model {
namespace {

engine::Vector flatten(const engine::Matrix& view) {
  return engine::vector(view.data, view.dtype, view.rows * view.cols);
}

ParamAddress flat_address(void* base, DType dtype) {
  return [base, dtype](const spec::PlacedParam& placed) -> void* {
    if (base == nullptr) return nullptr;
    return static_cast<char*>(base) + placed.element_offset * dtype_bytes(dtype);
  };
}

engine::Matrix shaped(const spec::PlacedParam& placed, void* data, DType dtype) {
  const int64_t cols = placed.shard.shape.size() < 2 ? 1 : placed.shard.shape.back();
  return engine::matrix(data, dtype, placed.shard.count() / cols, cols);
}

engine::Matrix view(const spec::PlacedParam& placed, void* data, DType dtype) {
  return data == nullptr ? engine::Matrix{} : shaped(placed, data, dtype);
}

}  // namespace

Parameters::Parameters(const spec::ParamLayout& layout, void* weights, DType compute,
                       float* gradients)
    : Parameters(layout, flat_address(weights, compute), compute,
                 flat_address(gradients, DType::f32)) {}

Parameters::Parameters(const spec::ParamLayout& layout, ParamAddress weights, DType compute,
                       ParamAddress gradients, PackedAddress packed)
    : layout_(layout),
      weights_(std::move(weights)),
      compute_(compute),
      gradients_(std::move(gradients)),
      packed_(std::move(packed)) {}

const spec::PlacedParam* Parameters::find(std::string_view name) const {
  const auto at = std::find_if(layout_.params.begin(), layout_.params.end(),
                               [&](const auto& placed) { return placed.name == name; });
  return at == layout_.params.end() ? nullptr : &*at;
}

const spec::PlacedParam& Parameters::get(std::string_view name) const {
  const spec::PlacedParam* placed = find(name);
  TUTTI_CHECK(placed != nullptr, "the model has no parameter '{}'", name);
  return *placed;
}

bool Parameters::has(std::string_view name) const { return find(name) != nullptr; }

engine::Matrix Parameters::weight(std::string_view name) const {
  const spec::PlacedParam& placed = get(name);
  if (packed_ && packed_(placed)) return shaped(placed, nullptr, compute_);
  return view(placed, weights_(placed), compute_);
}

engine::PackedMatrix Parameters::packed(std::string_view name) const {
  return packed_ ? packed_(get(name)) : engine::PackedMatrix{};
}

engine::Matrix Parameters::gradient(std::string_view name) const {
  const spec::PlacedParam& placed = get(name);
  return placed.param.trainable ? view(placed, gradients_(placed), DType::f32) : engine::Matrix{};
}

Linear Parameters::linear(std::string_view name) const {
  const std::string weight_name = std::string(name) + ".weight";
  const std::string bias_name = std::string(name) + ".bias";
  Linear out;
  out.weight = weight(weight_name);
  out.packed = packed(weight_name);
  out.d_weight = gradient(weight_name);
  if (has(bias_name)) {
    out.bias = flatten(weight(bias_name));
    out.d_bias = flatten(gradient(bias_name));
  }
  return out;
}

Adapters Parameters::adapters(const std::string& prefix, const spec::ModelConfig& model,
                              spec::Projection projection) const {
  Adapters out;
  if (!lora().enabled()) return out;
  out.scale = static_cast<float>(lora().scale());
  for (const spec::Adapter& adapter : spec::adapters(model, lora())) {
    if (adapter.projection != projection) continue;
    const std::string a = prefix + adapter.name + ".lora_a.weight";
    const std::string b = prefix + adapter.name + ".lora_b.weight";
    TUTTI_CHECK(out.count < out.list.size(), "{}: too many adapters", a);
    out.list[out.count++] = {weight(a), weight(b), gradient(a), gradient(b),
                             first_output(prefix, model, adapter)};
  }
  return out;
}

// Outputs are split part by part, so an adapter starts where its part starts on this rank.
int64_t Parameters::first_output(const std::string& prefix, const spec::ModelConfig& model,
                                 const spec::Adapter& adapter) const {
  const spec::ParamShard& rows =
      get(prefix + spec::projection_name(model, adapter.projection) + ".weight").shard;
  const spec::ParamShard& own = get(prefix + adapter.name + ".lora_b.weight").shard;
  if (rows.dim != 0) return adapter.first_row;  // row-parallel: this rank has all outputs
  const int64_t first = adapter.first_row + own.ranges.front().global_first;
  for (const spec::ShardRange& range : rows.ranges) {
    if (first >= range.global_first && first < range.global_first + range.count) {
      return range.local_first + first - range.global_first;
    }
  }
  check_failed(__FILE__, __LINE__, "outputs are here",
               fmt::format("{}{}: output {} is another rank's", prefix, adapter.name, first));
}

NormWeights Parameters::norm(std::string_view name) const {
  const Linear views = linear(name);
  return {flatten(views.weight), views.bias, flatten(views.d_weight), views.d_bias};
}

}  // namespace tutti::model
