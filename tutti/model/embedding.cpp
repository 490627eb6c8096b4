#include "tutti/model/embedding.h"

#include "tutti/model/tensor_parallel.h"

namespace tutti::model {

namespace {

void scale_rows(engine::Stream& stream, float factor, engine::Matrix x) {
  if (factor != 1) stream.ops().copy(stream, {.x = x, .out = x, .scale = factor});
}

// Of a packed table, which only inference on the CPU has: few rows, written by the host.
void unpack_rows(const Embedding& layer, engine::Vector tokens, const RowPositions& rows,
                 engine::Matrix out) {
  const engine::PackedMatrix& table = layer.packed;
  const PackedLayout layout = table.layout();
  const auto* codes = static_cast<const uint8_t*>(table.data);
  const auto* scales = reinterpret_cast<const bf16*>(codes + layout.scales_offset);
  for (int64_t r = 0; r < tokens.count; ++r) {
    const int64_t token = tokens.as<int32_t>()[r];
    TUTTI_CHECK(token >= 0 && token < table.rows, "embedding: token {} of {}", token, table.rows);
    float* to = out.row<float>(r);
    unpack_row(table.kind, codes + token * layout.row_bytes, scales + token * layout.groups,
               table.columns, to);
    if (!layer.position) continue;
    const int64_t at =
        rows.positions ? rows.positions.as<int32_t>()[r] : rows.first + r % rows.sequence;
    for (int64_t c = 0; c < out.cols; ++c) {
      to[c] += layer.position.dtype == DType::bf16 ? to_f32(layer.position.row<bf16>(at)[c])
                                                   : layer.position.row<float>(at)[c];
    }
  }
}

void look_up(engine::Stream& stream, const Embedding& layer, engine::Vector tokens,
             const RowPositions& rows, engine::Matrix out, engine::Matrix workspace) {
  if (layer.packed) {
    unpack_rows(layer, tokens, rows, out);
    return;
  }
  if (layer.tp == nullptr) {
    stream.ops().embedding_forward(stream, {.tokens = tokens,
                                            .sequence = rows.sequence,
                                            .token_table = layer.token,
                                            .position_table = layer.position,
                                            .positions = rows.positions,
                                            .first_position = rows.first,
                                            .out = out});
    return;
  }
  stream.ops().embedding_forward(stream, {.tokens = tokens,
                                          .sequence = rows.sequence,
                                          .token_table = layer.token,
                                          .out = workspace,
                                          .first_token = layer.first_token,
                                          .vocabulary = layer.vocabulary});
  scatter_rows(stream, layer.tp, workspace);
  stream.ops().add_positions(stream, {.x = own_rows(layer.tp, workspace),
                                      .sequence = rows.sequence,
                                      .position_table = layer.position,
                                      .positions = own_rows(layer.tp, rows.positions),
                                      .first_row = first_own_row(layer.tp, tokens.count),
                                      .out = out});
}

}  // namespace

void embedding_forward(engine::Stream& stream, const Embedding& layer, engine::Vector tokens,
                       const RowPositions& rows, engine::Matrix out, engine::Matrix workspace) {
  look_up(stream, layer, tokens, rows, out, workspace);
  scale_rows(stream, layer.multiplier, out);
}

void embedding_backward_weight(engine::Stream& stream, const Embedding& layer,
                               engine::Vector tokens, const RowPositions& rows,
                               engine::Matrix d_out, float token_beta, float position_beta,
                               engine::Matrix workspace) {
  scale_rows(stream, layer.multiplier, d_out);
  engine::EmbeddingBackwardArgs args = {.tokens = tokens,
                                        .sequence = rows.sequence,
                                        .positions = rows.positions,
                                        .d_out = d_out,
                                        .token_beta = token_beta,
                                        .position_beta = position_beta,
                                        .d_token_table = layer.d_token,
                                        .d_position_table = layer.d_position,
                                        .first_token = layer.first_token,
                                        .vocabulary = layer.vocabulary};
  if (layer.tp == nullptr) {
    stream.ops().embedding_backward(stream, args);
    return;
  }
  if (layer.d_position) {
    engine::EmbeddingBackwardArgs own = args;
    own.tokens = {};
    own.d_token_table = {};
    own.positions = own_rows(layer.tp, rows.positions);
    own.first_row = first_own_row(layer.tp, tokens.count);
    stream.ops().embedding_backward(stream, own);
  }
  engine::Matrix own = d_out;
  if (workspace.dtype != d_out.dtype) {
    own = own_rows(layer.tp, workspace);
    stream.ops().convert(stream,
                         {.x = engine::vector(d_out.data, d_out.dtype, d_out.rows * d_out.cols),
                          .out = engine::vector(own.data, own.dtype, own.rows * own.cols)});
  }
  args.positions = {};
  args.d_position_table = {};
  args.d_out = gather_rows(stream, layer.tp, own, workspace);
  stream.ops().embedding_backward(stream, args);
}

}  // namespace tutti::model
