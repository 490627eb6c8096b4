// The functions behind cpu_ops(): one per entry of OpTable, contracts in ops.h. Each is defined in
// the file named after its operation.
#pragma once

#include "tutti/engine/ops.h"
#include "tutti/engine/stream.h"

namespace tutti::engine {

void cpu_gemm(Stream& stream, const GemmArgs& args);
void cpu_norm_forward(Stream& stream, const NormForwardArgs& args);
void cpu_norm_backward_input(Stream& stream, const NormBackwardInputArgs& args);
void cpu_norm_backward_weight(Stream& stream, const NormBackwardWeightArgs& args);
void cpu_column_sum(Stream& stream, const ColumnSumArgs& args);
void cpu_activation_forward(Stream& stream, const ActivationForwardArgs& args);
void cpu_activation_backward(Stream& stream, const ActivationBackwardArgs& args);
void cpu_rope(Stream& stream, const RopeArgs& args);
void cpu_attention_forward(Stream& stream, const AttentionForwardArgs& args);
void cpu_attention_backward(Stream& stream, const AttentionBackwardArgs& args);
void cpu_attention_block_forward(Stream& stream, const AttentionBlockForwardArgs& args);
void cpu_attention_block_backward(Stream& stream, const AttentionBlockBackwardArgs& args);
void cpu_attention_decode(Stream& stream, const AttentionDecodeArgs& args);
void cpu_embedding_forward(Stream& stream, const EmbeddingForwardArgs& args);
void cpu_embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args);
void cpu_cross_entropy(Stream& stream, const CrossEntropyArgs& args);
void cpu_distill_cross_entropy(Stream& stream, const DistillCrossEntropyArgs& args);
void cpu_dropout(Stream& stream, const DropoutArgs& args);
void cpu_adamw(Stream& stream, const AdamwArgs& args);
void cpu_squared_norm(Stream& stream, const SquaredNormArgs& args);
void cpu_sum(Stream& stream, const SumArgs& args);
void cpu_add_rows(Stream& stream, const AddRowsArgs& args);
void cpu_prepare_update(Stream& stream, const PrepareUpdateArgs& args);
void cpu_find_nonfinite(Stream& stream, const FindNonfiniteArgs& args);
void cpu_convert(Stream& stream, const ConvertArgs& args);
void cpu_copy(Stream& stream, const CopyArgs& args);
void cpu_route_forward(Stream& stream, const RouteForwardArgs& args);
void cpu_route_backward(Stream& stream, const RouteBackwardArgs& args);
void cpu_assign_rows(Stream& stream, const AssignRowsArgs& args);
void cpu_merge_counts(Stream& stream, const MergeCountsArgs& args);
void cpu_permute(Stream& stream, const PermuteArgs& args);
void cpu_unpermute(Stream& stream, const UnpermuteArgs& args);
void cpu_grouped_gemm(Stream& stream, const GroupedGemmArgs& args);
void cpu_grouped_gemm_weight(Stream& stream, const GroupedGemmWeightArgs& args);
void cpu_update_selection_bias(Stream& stream, const UpdateSelectionBiasArgs& args);
void cpu_add_positions(Stream& stream, const AddPositionsArgs& args);
void cpu_cross_entropy_shard(Stream& stream, const CrossEntropyShardArgs& args);
void cpu_cross_entropy_merge(Stream& stream, const CrossEntropyMergeArgs& args);
void cpu_quantize(Stream& stream, const QuantizeArgs& args);
void cpu_narrow_gemm(Stream& stream, const NarrowGemmArgs& args);
void cpu_rms_norm_forward(Stream& stream, const RmsNormForwardArgs& args);
void cpu_rms_norm_backward(Stream& stream, const RmsNormBackwardArgs& args);
void cpu_softcap(Stream& stream, const SoftcapArgs& args);

}  // namespace tutti::engine
