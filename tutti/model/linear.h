// y = x W^T + b. Shapes: x [N, in], y [N, out]; beta 0 overwrites a gradient, 1 adds to it.
#pragma once

#include "tutti/engine/stream.h"
#include "tutti/model/parameters.h"

namespace tutti::model {

void linear_forward(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                    engine::Matrix y);
// dx = dy W
void linear_backward_input(engine::Stream& stream, const Linear& layer, engine::Matrix dy,
                           engine::Matrix dx);
// dW = beta dW + dy^T x;  db = beta db + column sums of dy
void linear_backward_weight(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                            engine::Matrix dy, float beta);

// The same without the bias, where the next operation adds it.
void linear_forward_no_bias(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                            engine::Matrix y);

}  // namespace tutti::model
