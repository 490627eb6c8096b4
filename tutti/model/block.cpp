#include "tutti/model/block.h"

namespace tutti::model {
namespace {

void drop(engine::Stream& stream, float probability, uint64_t key, int64_t first_row,
          engine::Matrix x) {
  if (probability == 0) return;
  stream.ops().dropout(stream,
                       {.x = x, .probability = probability, .key = key, .first_row = first_row});
}

}  // namespace

void block_forward(engine::Stream& stream, const BlockLayer& layer, BatchShape shape,
                   int64_t first_row, engine::Matrix previous, const BlockSaved& saved,
                   const BlockWork& work, const BlockSteps& steps) {
  const AdapterPass pass = {layer.adapter_dropout, first_row};
  if (steps.norm1) {
    const engine::Matrix branch = previous ? work.branch : engine::Matrix{};
    norm_forward(stream, layer.norm1, previous, branch, saved.norm1);
  }
  attention_forward(stream, layer.attention, shape, saved.norm1.y, saved.attention, work.branch,
                    pass, steps.attention);
  const bool adds = steps.attention.output;
  if (adds) drop(stream, layer.dropout, layer.attention_dropout_key, first_row, work.branch);

  if (steps.norm2) {
    norm_forward(stream, layer.norm2, adds ? saved.norm1.residual : engine::Matrix{},
                 adds ? work.branch : engine::Matrix{}, saved.norm2);
  }
  if (layer.moe) {
    moe_forward(stream, layer.moe, shape, saved.norm2.y, saved.moe, work.branch, steps.moe);
  } else {
    mlp_forward(stream, layer.mlp, saved.norm2.y, saved.mlp, work.branch, pass, steps.mlp);
  }
  const bool ends = layer.moe ? steps.moe.combine : steps.mlp.down;
  if (ends) drop(stream, layer.dropout, layer.mlp_dropout_key, first_row, work.branch);
}

void block_backward_input(engine::Stream& stream, const BlockLayer& layer, BatchShape shape,
                          int64_t first_row, const RoutingStep& routing, const BlockSaved& saved,
                          const BlockWork& work) {
  const AdapterPass pass = {layer.adapter_dropout, first_row};
  drop(stream, layer.dropout, layer.mlp_dropout_key, first_row, work.d_branch);
  if (layer.moe) {
    moe_backward_input(stream, layer.moe, shape, routing, saved.moe, work.d_branch, work.moe,
                       work.d_norm2);
  } else {
    mlp_backward_input(stream, layer.mlp, saved.mlp, work.d_branch, work.mlp, work.d_norm2, pass);
  }
  if (!work.d_norm2) return;
  norm_backward_input(stream, layer.norm2, saved.norm2, work.d_norm2, true, work.d_residual,
                      work.d_branch_attention);

  drop(stream, layer.dropout, layer.attention_dropout_key, first_row, work.d_branch_attention);
  attention_backward_input(stream, layer.attention, shape, saved.attention, work.d_branch_attention,
                           work.attention, work.d_norm1, pass);
  if (!work.d_norm1) return;
  norm_backward_input(stream, layer.norm1, saved.norm1, work.d_norm1, true, work.d_residual,
                      work.d_branch_next);
}

void block_backward_weight(engine::Stream& stream, const BlockLayer& layer, int64_t first_row,
                           const BlockSaved& saved, const BlockWork& work, float beta) {
  const AdapterPass pass = {layer.adapter_dropout, first_row};
  if (layer.moe) {
    moe_backward_weight(stream, layer.moe, saved.norm2.y, saved.moe, work.d_branch, work.moe, beta);
  } else {
    mlp_backward_weight(stream, layer.mlp, saved.norm2.y, saved.mlp, work.d_branch, work.mlp, beta,
                        pass);
  }
  if (!work.d_norm2) return;
  norm_backward_weight(stream, layer.norm2, saved.norm2, work.d_norm2, beta);
  attention_backward_weight(stream, layer.attention, saved.norm1.y, saved.attention,
                            work.d_branch_attention, work.attention, beta, pass);
  norm_backward_weight(stream, layer.norm1, saved.norm1, work.d_norm1, beta);
}

}  // namespace tutti::model
