#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/stream.h"

namespace tutti::engine {

const OpTable& cuda_ops() {
  static const OpTable table = [] {
    OpTable t;
    t.backend = "cuda";
    t.gemm = cuda_gemm;
    t.norm_forward = cuda_norm_forward;
    t.norm_backward_input = cuda_norm_backward_input;
    t.norm_backward_weight = cuda_norm_backward_weight;
    t.column_sum = cuda_column_sum;
    t.activation_forward = cuda_activation_forward;
    t.activation_backward = cuda_activation_backward;
    t.rope = cuda_rope;
    t.attention_forward = cuda_attention_forward;
    t.attention_backward = cuda_attention_backward;
    t.attention_block_forward = cuda_attention_block_forward;
    t.attention_block_backward = cuda_attention_block_backward;
    t.attention_decode = cuda_attention_decode;
    t.embedding_forward = cuda_embedding_forward;
    t.embedding_backward = cuda_embedding_backward;
    t.cross_entropy = cuda_cross_entropy;
    t.distill_cross_entropy = cuda_distill_cross_entropy;
    t.dropout = cuda_dropout;
    t.adamw = cuda_adamw;
    t.squared_norm = cuda_squared_norm;
    t.sum = cuda_sum;
    t.add_rows = cuda_add_rows;
    t.prepare_update = cuda_prepare_update;
    t.find_nonfinite = cuda_find_nonfinite;
    t.convert = cuda_convert;
    t.copy = cuda_copy;
    t.route_forward = cuda_route_forward;
    t.route_backward = cuda_route_backward;
    t.assign_rows = cuda_assign_rows;
    t.merge_counts = cuda_merge_counts;
    t.permute = cuda_permute;
    t.unpermute = cuda_unpermute;
    t.grouped_gemm = cuda_grouped_gemm;
    t.grouped_gemm_weight = cuda_grouped_gemm_weight;
    t.update_selection_bias = cuda_update_selection_bias;
    t.add_positions = cuda_add_positions;
    t.cross_entropy_shard = cuda_cross_entropy_shard;
    t.cross_entropy_merge = cuda_cross_entropy_merge;
    t.quantize = cuda_quantize;
    t.narrow_gemm = cuda_narrow_gemm;
    check_complete(t);
    return t;
  }();
  return table;
}

}  // namespace tutti::engine
