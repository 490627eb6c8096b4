#include "tutti/engine/cpu/kernels.h"

namespace tutti::engine {

const OpTable& cpu_ops() {
  static const OpTable table = [] {
    OpTable t;
    t.backend = "cpu";
    t.gemm = cpu_gemm;
    t.norm_forward = cpu_norm_forward;
    t.norm_backward_input = cpu_norm_backward_input;
    t.norm_backward_weight = cpu_norm_backward_weight;
    t.column_sum = cpu_column_sum;
    t.activation_forward = cpu_activation_forward;
    t.activation_backward = cpu_activation_backward;
    t.rope = cpu_rope;
    t.attention_forward = cpu_attention_forward;
    t.attention_backward = cpu_attention_backward;
    t.attention_block_forward = cpu_attention_block_forward;
    t.attention_block_backward = cpu_attention_block_backward;
    t.attention_decode = cpu_attention_decode;
    t.embedding_forward = cpu_embedding_forward;
    t.embedding_backward = cpu_embedding_backward;
    t.cross_entropy = cpu_cross_entropy;
    t.distill_cross_entropy = cpu_distill_cross_entropy;
    t.dropout = cpu_dropout;
    t.adamw = cpu_adamw;
    t.squared_norm = cpu_squared_norm;
    t.sum = cpu_sum;
    t.add_rows = cpu_add_rows;
    t.prepare_update = cpu_prepare_update;
    t.find_nonfinite = cpu_find_nonfinite;
    t.convert = cpu_convert;
    t.copy = cpu_copy;
    t.route_forward = cpu_route_forward;
    t.route_backward = cpu_route_backward;
    t.assign_rows = cpu_assign_rows;
    t.merge_counts = cpu_merge_counts;
    t.permute = cpu_permute;
    t.unpermute = cpu_unpermute;
    t.grouped_gemm = cpu_grouped_gemm;
    t.grouped_gemm_weight = cpu_grouped_gemm_weight;
    t.update_selection_bias = cpu_update_selection_bias;
    t.add_positions = cpu_add_positions;
    t.cross_entropy_shard = cpu_cross_entropy_shard;
    t.cross_entropy_merge = cpu_cross_entropy_merge;
    t.quantize = cpu_quantize;
    t.narrow_gemm = cpu_narrow_gemm;
    t.rms_norm_forward = cpu_rms_norm_forward;
    t.rms_norm_backward = cpu_rms_norm_backward;
    t.softcap = cpu_softcap;
    check_complete(t);
    return t;
  }();
  return table;
}

}  // namespace tutti::engine
