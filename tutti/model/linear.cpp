#include "tutti/model/linear.h"

#include "tutti/model/tensor_parallel.h"

namespace tutti::model {
namespace {

// A rank of a row-parallel layer has the columns from here on of its input of `columns`.
int64_t first_input(const Linear& layer, int64_t columns) {
  return tensor_rank(layer.summed_over) * columns;
}

engine::Vector bias_here(const Linear& layer) {
  return tensor_rank(layer.summed_over) == 0 ? layer.bias : engine::Vector{};
}

// The adapters' input: x, or what dropout leaves of it.
engine::Matrix adapter_input(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                             const AdapterPass& pass) {
  if (pass.dropout == 0) return x;
  const Adapters& adapters = layer.adapters;
  const engine::Matrix out =
      engine::matrix(adapters.input.data, adapters.input.dtype, x.rows, x.cols);
  stream.ops().dropout(stream, {.x = x,
                                .probability = pass.dropout,
                                .key = adapters.dropout_key,
                                .first_row = pass.first_row,
                                .rows = pass.numbers,
                                .out = out,
                                .first_column = first_input(layer, x.cols)});
  return out;
}

// The columns of adapter `index` in what the adapters of a projection save.
engine::Matrix columns_of(const engine::Matrix& narrow, size_t index, int64_t rows, int64_t rank) {
  return narrow.slice_rows(0, rows).slice_cols(static_cast<int64_t>(index) * rank, rank);
}

void adapters_forward(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                      engine::Matrix y, const AdapterPass& pass) {
  const Adapters& adapters = layer.adapters;
  if (adapters.count == 0) return;
  const engine::Matrix input = adapter_input(stream, layer, x, pass);
  for (size_t i = 0; i < adapters.count; ++i) {
    const AdapterWeights& adapter = adapters.list[i];
    const int64_t rank = adapter.a.rows;
    const engine::Matrix narrow = columns_of(adapters.narrow, i, x.rows, rank);
    stream.ops().gemm(
        stream,
        {.a = input, .b = adapter.a, .c = narrow, .transpose_b = true, .alpha = adapters.scale});
    stream.ops().gemm(stream, {.a = narrow,
                               .b = adapter.b,
                               .c = y.slice_cols(adapter.first_row, adapter.b.rows),
                               .transpose_b = true,
                               .beta = 1});
  }
}

}  // namespace

void linear_forward(engine::Stream& stream, const Linear& layer, engine::Matrix x, engine::Matrix y,
                    const AdapterPass& pass) {
  stream.ops().gemm(
      stream, {.a = x, .b = layer.weight, .c = y, .transpose_b = true, .bias = bias_here(layer)});
  adapters_forward(stream, layer, x, y, pass);
}

void linear_forward_no_bias(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                            engine::Matrix y, const AdapterPass& pass) {
  stream.ops().gemm(stream, {.a = x, .b = layer.weight, .c = y, .transpose_b = true});
  adapters_forward(stream, layer, x, y, pass);
}

void linear_backward_input(engine::Stream& stream, const Linear& layer, engine::Matrix dy,
                           engine::Matrix dx, const AdapterPass& pass) {
  const Adapters& adapters = layer.adapters;
  for (size_t i = 0; i < adapters.count; ++i) {
    const AdapterWeights& adapter = adapters.list[i];
    stream.ops().gemm(stream, {.a = dy.slice_cols(adapter.first_row, adapter.b.rows),
                               .b = adapter.b,
                               .c = columns_of(adapters.d_narrow, i, dy.rows, adapter.a.rows),
                               .alpha = adapters.scale});
  }
  if (!dx) return;
  for (size_t i = 0; i < adapters.count; ++i) {
    const AdapterWeights& adapter = adapters.list[i];
    stream.ops().gemm(stream, {.a = columns_of(adapters.d_narrow, i, dy.rows, adapter.a.rows),
                               .b = adapter.a,
                               .c = dx,
                               .beta = i == 0 ? 0.0F : 1.0F});
  }
  // The mask is the adapters' alone, so their share is made first and the rest added to it.
  if (adapters.count > 0 && pass.dropout > 0) {
    stream.ops().dropout(stream, {.x = dx,
                                  .probability = pass.dropout,
                                  .key = adapters.dropout_key,
                                  .first_row = pass.first_row,
                                  .rows = pass.numbers,
                                  .first_column = first_input(layer, dx.cols)});
  }
  stream.ops().gemm(
      stream, {.a = dy, .b = layer.weight, .c = dx, .beta = adapters.count > 0 ? 1.0F : 0.0F});
}

void linear_backward_weight(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                            engine::Matrix dy, float beta, const AdapterPass& pass) {
  if (layer.d_weight) {
    stream.ops().gemm(stream,
                      {.a = dy, .b = x, .c = layer.d_weight, .transpose_a = true, .beta = beta});
  }
  if (layer.d_bias) {
    stream.ops().column_sum(
        stream, {.x = own_rows(layer.summed_over, dy), .beta = beta, .out = layer.d_bias});
  }
  const Adapters& adapters = layer.adapters;
  if (adapters.count == 0) return;
  const engine::Matrix input = adapter_input(stream, layer, x, pass);
  for (size_t i = 0; i < adapters.count; ++i) {
    const AdapterWeights& adapter = adapters.list[i];
    const int64_t rank = adapter.a.rows;
    stream.ops().gemm(stream, {.a = columns_of(adapters.d_narrow, i, dy.rows, rank),
                               .b = input,
                               .c = adapter.d_a,
                               .transpose_a = true,
                               .beta = beta});
    stream.ops().gemm(stream, {.a = dy.slice_cols(adapter.first_row, adapter.b.rows),
                               .b = columns_of(adapters.narrow, i, dy.rows, rank),
                               .c = adapter.d_b,
                               .transpose_a = true,
                               .beta = beta});
  }
}

}  // namespace tutti::model
