// y = x W^T + b, with or without adapters. Shapes: x [N, in], y [N, out]; beta 0 overwrites a
// gradient, 1 adds to it.
//
// With adapters (spec/recipe/lora.h) each adds scale * dropout(x) A^T B^T to its columns of y.
// Forward keeps scale * dropout(x) A^T in the layer's `low_rank` memory, backward_input leaves its
// gradient in `d_low_rank`, and backward_weight uses both. Weights without gradient views are
// frozen.
//
// With `narrow` the three products of x, W and dy (not the adapters') read operands below 16 bits,
// each quantized right before (engine/narrow_ops.h); with a place for it (NarrowProducts::turned)
// dy once for both products that read it, and then backward_weight follows backward_input before
// another layer that shares the place; with places for it (NarrowProducts::weight) the weight once
// for all products until it changes. What a product reads of a tensor is a function of the tensor
// alone, so that repeating or delaying one changes nothing. Products of y and dx may add up as fast
// as the device can, those of weight gradients add up in f32. `amax` below is of x or dy, which is
// read once where it is known (engine::Magnitude); other products do not look at it.
//
// Under tensor parallelism a column-parallel layer has some of the outputs and a row-parallel one
// some of the inputs; x and dy have all rows of the micro-batch. What comes out partial is a sum
// over ranks: y of a row-parallel layer, dx of a column-parallel one, and the gradients of what
// several ranks hold (row-parallel: bias and B; column-parallel: A).
#pragma once

#include "tutti/engine/stream.h"
#include "tutti/model/parameters.h"

namespace tutti::model {

// What one pass does with the adapters' input, and which rows of the run it has.
struct AdapterPass {
  float dropout = 0;
  int64_t first_row = 0;  // global number of the micro-batch's first row, which keys the masks and
                          // stochastic rounding
  engine::Vector numbers = {};  // BatchShape::numbers
};

void linear_forward(engine::Stream& stream, const Linear& layer, engine::Matrix x, engine::Matrix y,
                    const AdapterPass& pass = {}, const engine::Magnitude& amax = {});
// dx = dy W, with the adapters' share; without dx only what the adapters' weight gradients need.
void linear_backward_input(engine::Stream& stream, const Linear& layer, engine::Matrix dy,
                           engine::Matrix dx, const AdapterPass& pass = {},
                           const engine::Magnitude& amax = {});
// dW = beta dW + dy^T x;  db = beta db + column sums of dy; A and B of adapters likewise
void linear_backward_weight(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                            engine::Matrix dy, float beta, const AdapterPass& pass = {},
                            const engine::Magnitude& amax = {});

// The weight as products below 16 bits read it, into the layer's places for it.
void quantize_weight(engine::Stream& stream, const Linear& layer);

// Forward without the bias, where the next operation adds it.
void linear_forward_no_bias(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                            engine::Matrix y, const AdapterPass& pass = {},
                            const engine::Magnitude& amax = {});

}  // namespace tutti::model
