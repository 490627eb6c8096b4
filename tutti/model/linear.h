// y = x W^T + b, with or without adapters. Shapes: x [N, in], y [N, out]; beta 0 overwrites a
// gradient, 1 accumulates.
//
// Each adapter (spec/recipe/lora.h) adds scale * dropout(x) A^T B^T to its columns of y. Forward
// stores scale * dropout(x) A^T in the layer's `low_rank`, backward_input stores its gradient in
// `d_low_rank`, and backward_weight reads both. Weights without gradient views are frozen.
//
// With `narrow` the three products of x, W and dy (not the adapters') read operands below 16 bits,
// each quantized right before its product (engine/narrow_ops.h), with two exceptions. If there is a
// buffer NarrowProducts::turned, dy is quantized once for both products that read it;
// backward_weight must then follow backward_input before another layer that shares the buffer. If
// there is a buffer NarrowProducts::weight, the weight is quantized once for all products until it
// changes. Quantized operands depend on the tensor alone, so that repeating or delaying a product
// changes nothing. Products for y and dx may use the device's fast accumulation, those for weight
// gradients accumulate in f32. `amax` below belongs to x or dy, which is read once if it is known
// (engine::Magnitude); other products ignore it.
//
// With tensor parallelism a column-parallel layer has some of the outputs and a row-parallel layer
// some of the inputs; x and dy have all rows of the micro-batch. Partial results are to be summed
// over ranks: y of a row-parallel layer, dx of a column-parallel one, and the gradients of
// replicated parameters (row-parallel: bias and B; column-parallel: A).
#pragma once

#include "tutti/engine/stream.h"
#include "tutti/model/parameters.h"

namespace tutti::model {

// Dropout of the adapters' input, and the rows of the run in one pass.
struct AdapterPass {
  float dropout = 0;
  int64_t first_row = 0;  // global number of the micro-batch's first row, which keys the masks and
                          // stochastic rounding
  engine::Vector numbers = {};  // BatchShape::numbers
};

void linear_forward(engine::Stream& stream, const Linear& layer, engine::Matrix x, engine::Matrix y,
                    const AdapterPass& pass = {}, const engine::Magnitude& amax = {});
// dx = dy W, plus the adapters' share; without dx only what the adapters' weight gradients need.
void linear_backward_input(engine::Stream& stream, const Linear& layer, engine::Matrix dy,
                           engine::Matrix dx, const AdapterPass& pass = {},
                           const engine::Magnitude& amax = {});
// dW = beta dW + dy^T x;  db = beta db + column sums of dy; likewise A and B of adapters
void linear_backward_weight(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                            engine::Matrix dy, float beta, const AdapterPass& pass = {},
                            const engine::Magnitude& amax = {});

// Quantizes the weight for products below 16 bits into the layer's buffers.
void quantize_weight(engine::Stream& stream, const Linear& layer);

// Forward without the bias, if the next operation adds it.
void linear_forward_no_bias(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                            engine::Matrix y, const AdapterPass& pass = {},
                            const engine::Magnitude& amax = {});

}  // namespace tutti::model
