#include "tutti/model/block.h"

namespace tutti::model {
namespace {

void drop(engine::Stream& stream, float probability, uint64_t key, const OwnRows& rows,
          engine::Matrix x) {
  if (probability == 0) return;
  stream.ops().dropout(stream, {.x = x,
                                .probability = probability,
                                .key = key,
                                .first_row = rows.first,
                                .rows = rows.numbers});
}

void multiply(engine::Stream& stream, float factor, engine::Matrix x) {
  if (factor != 1) stream.ops().copy(stream, {.x = x, .out = x, .scale = factor});
}

// The branch norm and multiplier before the addition, and their backward pass.
void end_branch(engine::Stream& stream, const BlockLayer& layer, const NormLayer& norm,
                const BranchNormSaved& saved, engine::Matrix branch) {
  if (norm.weights.weight) branch_norm_forward(stream, norm, branch, saved);
  multiply(stream, layer.residual_multiplier, branch);
}
void branch_backward(engine::Stream& stream, const BlockLayer& layer, const NormLayer& norm,
                     const BranchNormSaved& saved, float beta, engine::Matrix d_branch) {
  multiply(stream, layer.residual_multiplier, d_branch);
  if (norm.weights.weight) branch_norm_backward(stream, norm, d_branch, saved, beta);
}

// Amax of a branch's gradient; unknown if norm or multiplier change the gradient after it was
// stored.
engine::Magnitude after_branch(const BlockLayer& layer, const NormLayer& norm,
                               engine::Magnitude amax) {
  if (layer.dropout > 0 || layer.residual_multiplier != 1 || norm.weights.weight) {
    amax.known = false;
  }
  return amax;
}

}  // namespace

OwnRows own_row_numbers(const comm::Group* tp, const BatchShape& shape, int64_t first_row) {
  if (shape.numbers) return {first_row, own_rows(tp, shape.numbers)};
  return {first_row + first_own_row(tp, shape.rows()), {}};
}

void block_forward(engine::Stream& stream, const BlockLayer& layer, BatchShape shape,
                   int64_t first_row, engine::Matrix previous, const BlockSaved& saved,
                   const BlockWork& work, const BlockSteps& steps) {
  const AdapterPass pass = {layer.adapter_dropout, first_row, shape.numbers};
  const engine::Matrix branch = own_rows(layer.tp, work.branch);
  const OwnRows own = own_row_numbers(layer.tp, shape, first_row);
  if (steps.norm1) {
    norm_forward(stream, layer.norm1, previous, previous ? branch : engine::Matrix{}, saved.norm1);
  }
  const engine::Matrix attention_input =
      reads_input(layer.attention, steps.attention)
          ? gather_rows(stream, layer.tp, saved.norm1.y, work.branch)
          : engine::Matrix{};
  attention_forward(stream, layer.attention, shape, attention_input, saved.attention, work.branch,
                    pass, steps.attention);
  const bool adds = steps.attention.output;
  if (adds) {
    scatter_rows(stream, layer.tp, work.branch);
    end_branch(stream, layer, layer.attention_norm, saved.attention_branch, branch);
    drop(stream, layer.dropout, layer.attention_dropout_key, own, branch);
  }

  if (steps.norm2) {
    norm_forward(stream, layer.norm2, adds ? saved.norm1.residual : engine::Matrix{},
                 adds ? branch : engine::Matrix{}, saved.norm2);
  }
  const bool reads_all = layer.moe ? reads_all_rows(layer.moe, steps.moe) : steps.mlp.up;
  const engine::Matrix input =
      reads_all ? gather_rows(stream, layer.tp, saved.norm2.y, work.branch) : engine::Matrix{};
  if (layer.moe) {
    moe_forward(stream, layer.moe, shape, {saved.norm2.y, own, input}, saved.moe, work.branch,
                steps.moe);
  } else {
    mlp_forward(stream, layer.mlp, input, saved.mlp, work.branch, pass, steps.mlp);
  }
  const bool ends = layer.moe ? steps.moe.combine : steps.mlp.down;
  if (!ends) return;
  scatter_rows(stream, layer.tp, work.branch);
  end_branch(stream, layer, layer.mlp_norm, saved.mlp_branch, branch);
  drop(stream, layer.dropout, layer.mlp_dropout_key, own, branch);
}

void block_backward_input(engine::Stream& stream, const BlockLayer& layer, BatchShape shape,
                          int64_t first_row, const RoutingStep& routing, const BlockSaved& saved,
                          const BlockWork& work, std::optional<float> norm_beta) {
  comm::Group* tp = layer.tp;
  const AdapterPass pass = {layer.adapter_dropout, first_row, shape.numbers};
  const OwnRows own = own_row_numbers(layer.tp, shape, first_row);
  const engine::Matrix d_branch = own_rows(tp, work.d_branch);
  drop(stream, layer.dropout, layer.mlp_dropout_key, own, d_branch);
  branch_backward(stream, layer, layer.mlp_norm, saved.mlp_branch, work.norm_beta, d_branch);
  gather_rows(stream, tp, d_branch, work.d_branch);
  if (layer.moe) {
    moe_backward_input(stream, layer.moe, shape, routing, saved.moe, work.d_branch, work.moe,
                       work.d_norm2);
  } else {
    mlp_backward_input(stream, layer.mlp, saved.mlp, work.d_branch, work.mlp, work.d_norm2, pass,
                       after_branch(layer, layer.mlp_norm, work.d_branch_amax));
  }
  if (!work.d_norm2) return;
  scatter_rows(stream, tp, work.d_norm2);
  const engine::Matrix d_branch_attention = own_rows(tp, work.d_branch_attention);
  norm_backward_input(stream, layer.norm2, saved.norm2, own_rows(tp, work.d_norm2), true,
                      work.d_residual, d_branch_attention, norm_beta, work.d_branch_attention_amax);

  drop(stream, layer.dropout, layer.attention_dropout_key, own, d_branch_attention);
  branch_backward(stream, layer, layer.attention_norm, saved.attention_branch, work.norm_beta,
                  d_branch_attention);
  gather_rows(stream, tp, d_branch_attention, work.d_branch_attention);
  attention_backward_input(stream, layer.attention, shape, saved.attention, work.d_branch_attention,
                           work.attention, work.d_norm1, pass,
                           after_branch(layer, layer.attention_norm,
                                        engine::known_magnitude(work.d_branch_attention_amax)));
  if (!work.d_norm1) return;
  scatter_rows(stream, tp, work.d_norm1);
  norm_backward_input(stream, layer.norm1, saved.norm1, own_rows(tp, work.d_norm1), true,
                      work.d_residual, own_rows(tp, work.d_branch_next), norm_beta,
                      work.d_branch_next_amax);
}

void block_backward_weight(engine::Stream& stream, const BlockLayer& layer, BatchShape shape,
                           int64_t first_row, const BlockSaved& saved, const BlockWork& work,
                           float beta, bool norms) {
  comm::Group* tp = layer.tp;
  const AdapterPass pass = {layer.adapter_dropout, first_row, shape.numbers};
  // Recomputes the input of a projection if its weight gradients need it.
  const auto input_of = [&](const Linear& projection, engine::Matrix y) {
    return projection.trains() ? gather_rows(stream, tp, y, work.branch) : engine::Matrix{};
  };
  if (layer.moe) {
    const bool shares = layer.moe.config.shared_experts > 0;
    const engine::Matrix all =
        shares ? input_of(layer.moe.shared.up, saved.norm2.y) : engine::Matrix{};
    moe_backward_weight(stream, layer.moe, saved.norm2.y, all, saved.moe, work.d_branch, work.moe,
                        beta);
  } else {
    mlp_backward_weight(stream, layer.mlp, input_of(layer.mlp.up, saved.norm2.y), saved.mlp,
                        work.d_branch, work.mlp, beta, pass);
  }
  if (!work.d_norm2) return;
  if (norms) {
    norm_backward_weight(stream, layer.norm2, saved.norm2, own_rows(tp, work.d_norm2), beta);
  }
  const LatentLayer& latent = layer.attention.latent;
  attention_backward_weight(stream, layer.attention,
                            input_of(latent ? latent.kv_down : layer.attention.qkv, saved.norm1.y),
                            saved.attention, work.d_branch_attention, work.attention, beta, pass);
  if (norms) {
    norm_backward_weight(stream, layer.norm1, saved.norm1, own_rows(tp, work.d_norm1), beta);
  }
}

}  // namespace tutti::model
