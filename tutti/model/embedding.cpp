#include "tutti/model/embedding.h"

namespace tutti::model {

void embedding_forward(engine::Stream& stream, const Embedding& layer, engine::Vector tokens,
                       const RowPositions& rows, engine::Matrix out) {
  stream.ops().embedding_forward(stream, {.tokens = tokens,
                                          .sequence = rows.sequence,
                                          .token_table = layer.token,
                                          .position_table = layer.position,
                                          .positions = rows.positions,
                                          .first_position = rows.first,
                                          .out = out});
}

void embedding_backward_weight(engine::Stream& stream, const Embedding& layer,
                               engine::Vector tokens, const RowPositions& rows,
                               engine::Matrix d_out, float token_beta, float position_beta) {
  stream.ops().embedding_backward(stream, {.tokens = tokens,
                                           .sequence = rows.sequence,
                                           .positions = rows.positions,
                                           .d_out = d_out,
                                           .token_beta = token_beta,
                                           .position_beta = position_beta,
                                           .d_token_table = layer.d_token,
                                           .d_position_table = layer.d_position});
}

}  // namespace tutti::model
