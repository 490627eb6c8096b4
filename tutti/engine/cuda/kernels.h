// The functions behind cuda_ops(): one per entry of OpTable, contracts in ops.h. Each is defined in
// the file named after its operation.
#pragma once

#include "tutti/engine/ops.h"
#include "tutti/engine/stream.h"

namespace tutti::engine {

void cuda_gemm(Stream& stream, const GemmArgs& args);
void cuda_norm_forward(Stream& stream, const NormForwardArgs& args);
void cuda_norm_backward_input(Stream& stream, const NormBackwardInputArgs& args);
void cuda_norm_backward_weight(Stream& stream, const NormBackwardWeightArgs& args);
void cuda_column_sum(Stream& stream, const ColumnSumArgs& args);
void cuda_activation_forward(Stream& stream, const ActivationForwardArgs& args);
void cuda_activation_backward(Stream& stream, const ActivationBackwardArgs& args);
void cuda_rope(Stream& stream, const RopeArgs& args);
void cuda_attention_forward(Stream& stream, const AttentionForwardArgs& args);
void cuda_attention_backward(Stream& stream, const AttentionBackwardArgs& args);
void cuda_attention_block_forward(Stream& stream, const AttentionBlockForwardArgs& args);
void cuda_attention_block_backward(Stream& stream, const AttentionBlockBackwardArgs& args);
void cuda_attention_decode(Stream& stream, const AttentionDecodeArgs& args);
void cuda_embedding_forward(Stream& stream, const EmbeddingForwardArgs& args);
void cuda_embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args);
void cuda_cross_entropy(Stream& stream, const CrossEntropyArgs& args);
void cuda_distill_cross_entropy(Stream& stream, const DistillCrossEntropyArgs& args);
void cuda_dropout(Stream& stream, const DropoutArgs& args);
void cuda_adamw(Stream& stream, const AdamwArgs& args);
void cuda_squared_norm(Stream& stream, const SquaredNormArgs& args);
void cuda_sum(Stream& stream, const SumArgs& args);
void cuda_add_rows(Stream& stream, const AddRowsArgs& args);
void cuda_prepare_update(Stream& stream, const PrepareUpdateArgs& args);
void cuda_find_nonfinite(Stream& stream, const FindNonfiniteArgs& args);
void cuda_convert(Stream& stream, const ConvertArgs& args);
void cuda_copy(Stream& stream, const CopyArgs& args);
void cuda_route_forward(Stream& stream, const RouteForwardArgs& args);
void cuda_route_backward(Stream& stream, const RouteBackwardArgs& args);
void cuda_assign_rows(Stream& stream, const AssignRowsArgs& args);
void cuda_merge_counts(Stream& stream, const MergeCountsArgs& args);
void cuda_permute(Stream& stream, const PermuteArgs& args);
void cuda_unpermute(Stream& stream, const UnpermuteArgs& args);
void cuda_grouped_gemm(Stream& stream, const GroupedGemmArgs& args);
void cuda_grouped_gemm_weight(Stream& stream, const GroupedGemmWeightArgs& args);
void cuda_update_selection_bias(Stream& stream, const UpdateSelectionBiasArgs& args);
void cuda_add_positions(Stream& stream, const AddPositionsArgs& args);
void cuda_cross_entropy_shard(Stream& stream, const CrossEntropyShardArgs& args);
void cuda_cross_entropy_merge(Stream& stream, const CrossEntropyMergeArgs& args);
void cuda_quantize(Stream& stream, const QuantizeArgs& args);
void cuda_narrow_gemm(Stream& stream, const NarrowGemmArgs& args);

}  // namespace tutti::engine
