#include "tutti/model/inference_weights.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/spec/model/packed_params.h"

namespace tutti::model {
namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + engine::kArenaAlignment - 1) / engine::kArenaAlignment * engine::kArenaAlignment;
}

}  // namespace

InferenceWeights::InferenceWeights(const spec::ModelConfig& model, spec::ParamLayout layout,
                                   DType compute, std::optional<PackKind> pack)
    : layout_(std::move(layout)), compute_(compute), pack_(pack) {
  int64_t bytes = 0;
  for (const spec::PlacedParam& placed : layout_.params) {
    Slot slot;
    slot.offset = bytes;
    const std::vector<int64_t>& shape = placed.param.shape;
    const std::optional<PackKind> kind =
        pack_ ? spec::pack_kind_of(model, placed.name, shape, *pack_) : std::nullopt;
    if (kind) {
      engine::PackedMatrix one;
      one.kind = *kind;
      one.columns = shape.back();
      const int64_t rows = placed.shard.count() / one.columns;
      const int64_t experts = shape.size() > 2 ? shape.front() : 1;
      one.rows = rows / experts;
      bytes += aligned(experts * packed_bytes(one));
      slot.packed = one;
    } else {
      bytes += aligned(placed.shard.count() * dtype_bytes(compute_));
    }
    slots_.push_back(slot);
  }
  arena_ = std::make_unique<engine::Arena>("weights", bytes);
  for (Slot& slot : slots_) {
    if (slot.packed) slot.packed->data = at(slot);
  }
}

const InferenceWeights::Slot& InferenceWeights::slot(const spec::PlacedParam& placed) const {
  const auto same = [&](const spec::PlacedParam& other) {
    return other.element_offset == placed.element_offset && other.name == placed.name;
  };
  const auto found = std::find_if(layout_.params.begin(), layout_.params.end(), same);
  TUTTI_CHECK(found != layout_.params.end(), "weights: no parameter '{}'", placed.name);
  return slots_[static_cast<size_t>(found - layout_.params.begin())];
}

// Rows [first, first + count) of `columns` elements.
void InferenceWeights::set_rows(const Slot& to, int64_t first, int64_t count, int64_t columns,
                                const float* values) {
  if (!to.packed) {
    if (compute_ == DType::f32) {
      std::copy_n(values, count * columns, static_cast<float*>(at(to)) + first * columns);
      return;
    }
    bf16* out = static_cast<bf16*>(at(to)) + first * columns;
    for (int64_t i = 0; i < count * columns; ++i) out[i] = to_bf16(values[i]);
    return;
  }
  const PackedLayout layout = to.packed->layout();
  for (int64_t row = first; row < first + count; ++row, values += columns) {
    const engine::PackedMatrix one = packed_expert(*to.packed, row / to.packed->rows);
    const int64_t r = row % to.packed->rows;
    auto* codes = static_cast<uint8_t*>(one.data);
    auto* scales = reinterpret_cast<bf16*>(codes + layout.scales_offset);
    pack_row(one.kind, values, columns, codes + r * layout.row_bytes, scales + r * layout.groups);
  }
}

void InferenceWeights::set(const spec::PlacedParam& placed, int64_t first, int64_t count,
                           const float* values) {
  const int64_t columns = placed.param.shape.back();
  TUTTI_CHECK(first >= 0 && count >= 0 && first + count <= placed.param.count() &&
                  first % columns == 0 && count % columns == 0,
              "{}: elements {}+{} of {} in rows of {}", placed.name, first, count,
              placed.param.count(), columns);
  const Slot& to = slot(placed);
  const int64_t rows = count / columns;
  constexpr int64_t kElementsOfThread = int64_t{1} << 18;
  const int64_t most = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t threads = std::clamp<int64_t>(count / kElementsOfThread, 1, most);
  const auto part = [&](int64_t index) {
    const int64_t begin = rows * index / threads;
    const int64_t end = rows * (index + 1) / threads;
    set_rows(to, first / columns + begin, end - begin, columns, values + begin * columns);
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads; ++i) others.emplace_back(part, i);
  part(0);
  for (std::thread& other : others) other.join();
}

Parameters InferenceWeights::parameters() const {
  return Parameters(
      layout_, [this](const spec::PlacedParam& placed) { return at(slot(placed)); }, compute_,
      [](const spec::PlacedParam&) -> void* { return nullptr; },
      [this](const spec::PlacedParam& placed) {
        return slot(placed).packed.value_or(engine::PackedMatrix{});
      });
}

}  // namespace tutti::model
