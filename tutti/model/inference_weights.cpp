#include "tutti/model/inference_weights.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/spec/model/packed_params.h"

namespace tutti::model {
namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + engine::kArenaAlignment - 1) / engine::kArenaAlignment * engine::kArenaAlignment;
}

// Calls body(begin, end) for parts of `rows` rows, of several threads where there are many.
void in_parts(int64_t rows, int64_t columns, const std::function<void(int64_t, int64_t)>& body) {
  constexpr int64_t kElementsOfThread = int64_t{1} << 18;
  const int64_t most = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t threads = std::clamp<int64_t>(rows * columns / kElementsOfThread, 1, most);
  const auto part = [&](int64_t index) {
    body(rows * index / threads, rows * (index + 1) / threads);
  };
  std::vector<std::thread> others;
  others.reserve(static_cast<size_t>(threads - 1));
  for (int64_t i = 1; i < threads; ++i) others.emplace_back(part, i);
  part(0);
  for (std::thread& other : others) other.join();
}

// Row `row` of all experts of a parameter.
struct PackedRow {
  uint8_t* codes = nullptr;
  bf16* scales = nullptr;
};
PackedRow packed_row(const engine::PackedMatrix& first, int64_t row) {
  const PackedLayout layout = first.layout();
  const engine::PackedMatrix one = packed_expert(first, row / first.rows);
  const int64_t r = row % first.rows;
  auto* codes = static_cast<uint8_t*>(one.data);
  auto* scales = reinterpret_cast<bf16*>(codes + layout.scales_offset);
  return {codes + r * layout.row_bytes, scales + r * layout.groups};
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
  for (int64_t row = first; row < first + count; ++row, values += columns) {
    const PackedRow to_row = packed_row(*to.packed, row);
    pack_row(to.packed->kind, values, columns, to_row.codes, to_row.scales);
  }
}

std::optional<PackKind> InferenceWeights::packed_kind(const spec::PlacedParam& placed) const {
  const Slot& at = slot(placed);
  if (!at.packed) return {};
  return at.packed->kind;
}

void InferenceWeights::set_packed(const spec::PlacedParam& placed, int64_t first_row, int64_t rows,
                                  const int8_t* numbers, const bf16* scales) {
  const Slot& to = slot(placed);
  TUTTI_CHECK(to.packed.has_value(), "{} is not packed", placed.name);
  const int64_t columns = to.packed->columns;
  TUTTI_CHECK(first_row >= 0 && rows >= 0 && columns % kPackGroup == 0 &&
                  (first_row + rows) * columns <= placed.param.count(),
              "{}: rows {}+{} of {} columns", placed.name, first_row, rows, columns);
  const int64_t groups = to.packed->layout().groups;
  in_parts(rows, columns, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const PackedRow to_row = packed_row(*to.packed, first_row + row);
      set_codes(to.packed->kind, numbers + row * columns, columns, to_row.codes);
      std::copy_n(scales + row * groups, groups, to_row.scales);
    }
  });
}

void InferenceWeights::set(const spec::PlacedParam& placed, int64_t first, int64_t count,
                           const float* values) {
  const int64_t columns = placed.param.shape.back();
  TUTTI_CHECK(first >= 0 && count >= 0 && first + count <= placed.param.count() &&
                  first % columns == 0 && count % columns == 0,
              "{}: elements {}+{} of {} in rows of {}", placed.name, first, count,
              placed.param.count(), columns);
  const Slot& to = slot(placed);
  in_parts(count / columns, columns, [&](int64_t begin, int64_t end) {
    set_rows(to, first / columns + begin, end - begin, columns, values + begin * columns);
  });
}

Parameters InferenceWeights::parameters() const {
  return Parameters(
      layout_, [this](const spec::PlacedParam& placed) { return at(slot(placed)); }, compute_,
      [](const spec::PlacedParam&) -> void* { return nullptr; },
      [this](const spec::PlacedParam& placed) {
        return slot(placed).packed.value_or(engine::PackedMatrix{});
      });
}

void round_to_packed(const spec::ModelConfig& model, const spec::ParamLayout& layout, PackKind pack,
                     float* flat) {
  for (const spec::PlacedParam& placed : layout.params) {
    const std::vector<int64_t>& shape = placed.param.shape;
    const std::optional<PackKind> kind = spec::pack_kind_of(model, placed.name, shape, pack);
    if (!kind) continue;
    const int64_t columns = shape.back();
    const PackedLayout row_layout = packed_layout(*kind, 1, columns);
    float* values = flat + placed.element_offset;
    in_parts(placed.param.count() / columns, columns, [&](int64_t begin, int64_t end) {
      std::vector<uint8_t> codes(static_cast<size_t>(row_layout.row_bytes));
      std::vector<bf16> scales(static_cast<size_t>(row_layout.groups));
      for (int64_t row = begin; row < end; ++row) {
        float* at = values + row * columns;
        pack_row(*kind, at, columns, codes.data(), scales.data());
        unpack_row(*kind, codes.data(), scales.data(), columns, at);
      }
    });
  }
}

}  // namespace tutti::model
