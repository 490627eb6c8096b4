#include "tutti/model/linear.h"

#include "tutti/model/tensor_parallel.h"

namespace tutti::model {
namespace {

// The columns of its input of `columns` that a rank of a row-parallel layer holds, from here on.
int64_t first_input(const Linear& layer, int64_t columns) {
  return tensor_rank(layer.summed_over) * columns;
}

engine::Vector bias_here(const Linear& layer) {
  return tensor_rank(layer.summed_over) == 0 ? layer.bias : engine::Vector{};
}

// The adapters' input: x after dropout.
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

// The columns of adapter `index` in the saved products of a projection's adapters.
engine::Matrix columns_of(const engine::Matrix& low_rank, size_t index, int64_t rows,
                          int64_t rank) {
  return low_rank.slice_rows(0, rows).slice_cols(static_cast<int64_t>(index) * rank, rank);
}

void adapters_forward(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                      engine::Matrix y, const AdapterPass& pass) {
  const Adapters& adapters = layer.adapters;
  if (adapters.count == 0) return;
  const engine::Matrix input = adapter_input(stream, layer, x, pass);
  for (size_t i = 0; i < adapters.count; ++i) {
    const AdapterWeights& adapter = adapters.list[i];
    const int64_t rank = adapter.a.rows;
    const engine::Matrix kept = columns_of(adapters.low_rank, i, x.rows, rank);
    stream.ops().gemm(
        stream,
        {.a = input, .b = adapter.a, .c = kept, .transpose_b = true, .alpha = adapters.scale});
    stream.ops().gemm(stream, {.a = kept,
                               .b = adapter.b,
                               .c = y.slice_cols(adapter.first_row, adapter.b.rows),
                               .transpose_b = true,
                               .beta = 1});
  }
}

engine::NarrowMatrix narrow_matrix(NarrowKind kind, int64_t rows, int64_t columns,
                                   const engine::Vector& buffer) {
  const engine::NarrowMatrix out = {kind, rows, columns, buffer.data};
  TUTTI_CHECK(out.layout().bytes <= buffer.count, "{} bytes of {} [{}, {}] in {}",
              out.layout().bytes, narrow_format(kind).name, rows, columns, buffer.count);
  return out;
}

// Quantizes an operand of a narrow product into a buffer that all layers share.
engine::NarrowMatrix quantize(engine::Stream& stream, engine::QuantizeArgs args, NarrowKind kind,
                              const engine::Vector& buffer) {
  args.out = narrow_matrix(kind, args.transpose ? args.x.cols : args.x.rows,
                           args.transpose ? args.x.rows : args.x.cols, buffer);
  stream.ops().quantize(stream, args);
  return args.out;
}

// The buffer of dy transposed, which backward_input fills for backward_weight; empty without one.
engine::NarrowMatrix turned_gradient(const NarrowProducts& narrow, const engine::Matrix& dy) {
  if (!narrow.turned) return {};
  return narrow_matrix(narrow.gradient, dy.cols, dy.rows, narrow.turned);
}

// The weight, or its transpose, from the layer's buffer; else quantized for this product.
engine::NarrowMatrix weight_operand(engine::Stream& stream, const Linear& layer, bool transpose) {
  const NarrowProducts& narrow = layer.narrow;
  const engine::Matrix& weight = layer.weight;
  if (!narrow.weight) {
    return quantize(stream, {.x = weight, .transpose = transpose}, narrow.operand, narrow.right);
  }
  if (!transpose) return narrow_matrix(narrow.operand, weight.rows, weight.cols, narrow.weight);
  return narrow_matrix(narrow.operand, weight.cols, weight.rows, narrow.weight_turned);
}

engine::NarrowMatrix quantize_gradient(engine::Stream& stream, const NarrowProducts& narrow,
                                       engine::Matrix dy, bool transpose, const AdapterPass& pass,
                                       const engine::Magnitude& amax = {}) {
  return quantize(stream,
                  {.x = dy,
                   .transpose = transpose,
                   .transposed = transpose ? engine::NarrowMatrix{} : turned_gradient(narrow, dy),
                   .stochastic = narrow.stochastic,
                   .key = narrow.key,
                   .first_row = pass.first_row,
                   .rows = pass.numbers,
                   .amax = amax},
                  narrow.gradient, narrow.left);
}

// y = x W^T + bias
void product_forward(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                     engine::Matrix y, engine::Vector bias, const engine::Magnitude& amax) {
  const NarrowProducts& narrow = layer.narrow;
  if (layer.packed) {
    stream.ops().decode_gemm(
        stream, {.a = x, .packed = layer.packed, .c = y, .bias = bias, .alpha = layer.alpha});
    return;
  }
  if (layer.decodes && x.rows <= engine::kFewRows) {
    stream.ops().decode_gemm(
        stream, {.a = x, .weight = layer.weight, .c = y, .bias = bias, .alpha = layer.alpha});
    return;
  }
  if (!narrow) {
    stream.ops().gemm(stream, {.a = x,
                               .b = layer.weight,
                               .c = y,
                               .transpose_b = true,
                               .bias = bias,
                               .alpha = layer.alpha});
    return;
  }
  const engine::NarrowMatrix left =
      quantize(stream, {.x = x, .amax = amax}, narrow.operand, narrow.left);
  const engine::NarrowMatrix right = weight_operand(stream, layer, false);
  stream.ops().narrow_gemm(stream,
                           {.a = left, .b = right, .c = y, .bias = bias, .fast_sums = true});
}

// dx = dy W + beta dx
void product_input(engine::Stream& stream, const Linear& layer, engine::Matrix dy,
                   engine::Matrix dx, float beta, const AdapterPass& pass,
                   const engine::Magnitude& amax) {
  const NarrowProducts& narrow = layer.narrow;
  if (!narrow) {
    stream.ops().gemm(stream,
                      {.a = dy, .b = layer.weight, .c = dx, .beta = beta, .alpha = layer.alpha});
    return;
  }
  const engine::NarrowMatrix left = quantize_gradient(stream, narrow, dy, false, pass, amax);
  const engine::NarrowMatrix right = weight_operand(stream, layer, true);
  stream.ops().narrow_gemm(stream,
                           {.a = left, .b = right, .c = dx, .beta = beta, .fast_sums = true});
}

// dW = dy^T x + beta dW
void product_weight(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                    engine::Matrix dy, float beta, const AdapterPass& pass,
                    const engine::Magnitude& amax) {
  const NarrowProducts& narrow = layer.narrow;
  if (!narrow) {
    stream.ops().gemm(stream, {.a = dy,
                               .b = x,
                               .c = layer.d_weight,
                               .transpose_a = true,
                               .beta = beta,
                               .alpha = layer.alpha});
    return;
  }
  const engine::NarrowMatrix left = narrow.turned
                                        ? turned_gradient(narrow, dy)
                                        : quantize_gradient(stream, narrow, dy, true, pass);
  const engine::NarrowMatrix right =
      quantize(stream, {.x = x, .transpose = true, .amax = amax}, narrow.operand, narrow.right);
  stream.ops().narrow_gemm(stream, {.a = left, .b = right, .c = layer.d_weight, .beta = beta});
}

}  // namespace

void quantize_weight(engine::Stream& stream, const Linear& layer) {
  const engine::Matrix& weight = layer.weight;
  const NarrowProducts& narrow = layer.narrow;
  quantize(
      stream,
      {.x = weight,
       .transposed = narrow_matrix(narrow.operand, weight.cols, weight.rows, narrow.weight_turned)},
      narrow.operand, narrow.weight);
}

void linear_forward(engine::Stream& stream, const Linear& layer, engine::Matrix x, engine::Matrix y,
                    const AdapterPass& pass, const engine::Magnitude& amax) {
  product_forward(stream, layer, x, y, bias_here(layer), amax);
  adapters_forward(stream, layer, x, y, pass);
}

void linear_forward_no_bias(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                            engine::Matrix y, const AdapterPass& pass,
                            const engine::Magnitude& amax) {
  product_forward(stream, layer, x, y, {}, amax);
  adapters_forward(stream, layer, x, y, pass);
}

void linear_backward_input(engine::Stream& stream, const Linear& layer, engine::Matrix dy,
                           engine::Matrix dx, const AdapterPass& pass,
                           const engine::Magnitude& amax) {
  const Adapters& adapters = layer.adapters;
  for (size_t i = 0; i < adapters.count; ++i) {
    const AdapterWeights& adapter = adapters.list[i];
    stream.ops().gemm(stream, {.a = dy.slice_cols(adapter.first_row, adapter.b.rows),
                               .b = adapter.b,
                               .c = columns_of(adapters.d_low_rank, i, dy.rows, adapter.a.rows),
                               .alpha = adapters.scale});
  }
  if (!dx) return;
  for (size_t i = 0; i < adapters.count; ++i) {
    const AdapterWeights& adapter = adapters.list[i];
    stream.ops().gemm(stream, {.a = columns_of(adapters.d_low_rank, i, dy.rows, adapter.a.rows),
                               .b = adapter.a,
                               .c = dx,
                               .beta = i == 0 ? 0.0F : 1.0F});
  }
  // The mask applies to the adapters only, so their share is computed first and the rest added.
  if (adapters.count > 0 && pass.dropout > 0) {
    stream.ops().dropout(stream, {.x = dx,
                                  .probability = pass.dropout,
                                  .key = adapters.dropout_key,
                                  .first_row = pass.first_row,
                                  .rows = pass.numbers,
                                  .first_column = first_input(layer, dx.cols)});
  }
  product_input(stream, layer, dy, dx, adapters.count > 0 ? 1.0F : 0.0F, pass, amax);
}

void linear_backward_weight(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                            engine::Matrix dy, float beta, const AdapterPass& pass,
                            const engine::Magnitude& amax) {
  if (layer.d_weight) product_weight(stream, layer, x, dy, beta, pass, amax);
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
    stream.ops().gemm(stream, {.a = columns_of(adapters.d_low_rank, i, dy.rows, rank),
                               .b = input,
                               .c = adapter.d_a,
                               .transpose_a = true,
                               .beta = beta});
    stream.ops().gemm(stream, {.a = dy.slice_cols(adapter.first_row, adapter.b.rows),
                               .b = columns_of(adapters.low_rank, i, dy.rows, rank),
                               .c = adapter.d_b,
                               .transpose_a = true,
                               .beta = beta});
  }
}

}  // namespace tutti::model
