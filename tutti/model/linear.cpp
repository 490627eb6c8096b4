#include "tutti/model/linear.h"

namespace tutti::model {

void linear_forward(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                    engine::Matrix y) {
  stream.ops().gemm(stream,
                    {.a = x, .b = layer.weight, .c = y, .transpose_b = true, .bias = layer.bias});
}

void linear_forward_no_bias(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                            engine::Matrix y) {
  stream.ops().gemm(stream, {.a = x, .b = layer.weight, .c = y, .transpose_b = true});
}

void linear_backward_input(engine::Stream& stream, const Linear& layer, engine::Matrix dy,
                           engine::Matrix dx) {
  stream.ops().gemm(stream, {.a = dy, .b = layer.weight, .c = dx});
}

void linear_backward_weight(engine::Stream& stream, const Linear& layer, engine::Matrix x,
                            engine::Matrix dy, float beta) {
  stream.ops().gemm(stream,
                    {.a = dy, .b = x, .c = layer.d_weight, .transpose_a = true, .beta = beta});
  if (layer.d_bias) stream.ops().column_sum(stream, {.x = dy, .beta = beta, .out = layer.d_bias});
}

}  // namespace tutti::model
