#include "tutti/model/served_adapter.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/engine/decode_ops.h"
#include "tutti/spec/recipe/lora.h"

namespace tutti::model {
namespace {

int64_t aligned_bytes(int64_t bytes) {
  return (bytes + engine::kArenaAlignment - 1) / engine::kArenaAlignment * engine::kArenaAlignment;
}

void store_values(const std::vector<float>& values, const engine::Matrix& to) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (to.dtype == DType::f32) {
      to.as<float>()[i] = values[i];
    } else {
      to.as<bf16>()[i] = to_bf16(values[i]);
    }
  }
}

template <typename T>
void add_columns(const engine::Matrix& x, const engine::Matrix& y, int64_t first) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* from = x.row<float>(r);
    T* to = y.row<T>(r) + first;
    for (int64_t c = 0; c < x.cols; ++c) {
      if constexpr (sizeof(T) == sizeof(float)) {
        to[c] += from[c];
      } else {
        to[c] = to_bf16(to_f32(to[c]) + from[c]);
      }
    }
  }
}

}  // namespace

ServedAdapter::ServedAdapter(const spec::ModelConfig& model, DType compute,
                             const std::vector<spec::LowRankTerm>& terms) {
  int64_t bytes = 0;
  for (const spec::LowRankTerm& term : terms) {
    TUTTI_CHECK(term.layer >= 0 && term.layer < model.layers &&
                    term.inputs == spec::projection_inputs(model, term.projection) &&
                    term.first_row >= 0 &&
                    term.first_row + term.rows <= spec::projection_outputs(model, term.projection),
                "adapter of layer {}: rows {}+{} of {} inputs", term.layer, term.first_row,
                term.rows, term.inputs);
    TUTTI_CHECK(static_cast<int64_t>(term.a.size()) == term.rank * term.inputs &&
                    static_cast<int64_t>(term.b.size()) == term.rows * term.rank,
                "adapter of layer {}: {} and {} elements of rank {}", term.layer, term.a.size(),
                term.b.size(), term.rank);
    bytes += aligned_bytes(term.rank * term.inputs * dtype_bytes(compute)) +
             aligned_bytes(term.rows * term.rank * dtype_bytes(compute));
  }
  arena_ = std::make_unique<engine::Arena>("adapter", std::max<int64_t>(bytes, 1));
  terms_.resize(static_cast<size_t>(model.layers) * kProjections);
  int64_t offset = 0;
  const auto take = [&](int64_t rows, int64_t columns) {
    const int64_t size = rows * columns * dtype_bytes(compute);
    void* data = arena_->at(offset, size);
    offset += aligned_bytes(size);
    return engine::matrix(data, compute, rows, columns);
  };
  for (const spec::LowRankTerm& term : terms) {
    Term one;
    one.a = take(term.rank, term.inputs);
    one.b = take(term.rows, term.rank);
    one.first_row = term.first_row;
    one.scale = static_cast<float>(term.scale);
    store_values(term.a, one.a);
    store_values(term.b, one.b);
    largest_rank_ = std::max(largest_rank_, term.rank);
    terms_[static_cast<size_t>(term.layer) * kProjections + static_cast<size_t>(term.projection)]
        .push_back(one);
  }
}

std::span<const ServedAdapter::Term> ServedAdapter::terms(int64_t layer,
                                                          spec::Projection projection) const {
  return terms_[static_cast<size_t>(layer) * kProjections + static_cast<size_t>(projection)];
}

void adapter_forward(engine::Stream& stream, std::span<const ServedAdapter::Term> terms,
                     const engine::Matrix& x, const engine::Matrix& y,
                     const AdapterBuffers& buffers) {
  for (const ServedAdapter::Term& term : terms) {
    const int64_t rank = term.a.rows;
    for (int64_t first = 0; first < x.rows; first += engine::kFewRows) {
      const int64_t count = std::min(engine::kFewRows, x.rows - first);
      const engine::Matrix low_rank =
          engine::matrix(buffers.low_rank.data, buffers.low_rank.dtype, count, rank);
      const engine::Matrix out =
          engine::matrix(buffers.out.data, buffers.out.dtype, count, term.b.rows);
      stream.ops().decode_gemm(
          stream,
          {.a = x.slice_rows(first, count), .weight = term.a, .c = low_rank, .alpha = term.scale});
      stream.ops().decode_gemm(stream, {.a = low_rank, .weight = term.b, .c = out});
      const engine::Matrix to = y.slice_rows(first, count);
      if (y.dtype == DType::f32) {
        add_columns<float>(out, to, term.first_row);
      } else {
        add_columns<bf16>(out, to, term.first_row);
      }
    }
  }
}

}  // namespace tutti::model
