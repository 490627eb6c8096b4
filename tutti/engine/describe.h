// What an operation demands of its operands and what of it is recorded, the same on every backend:
// a backend's function begins with `const OpRecord what = describe(args)` and ends with
// `record(stream, what, begin)`.
//
// Each aborts when shapes, strides or types contradict each other or ops.h. Values that lie in the
// stream's memory (tokens, targets, offsets, ...) are not looked at: they may still be on their
// way. Times are left 0.
#pragma once

#include "tutti/base/real.h"
#include "tutti/engine/ops.h"
#include "tutti/engine/recorder.h"

namespace tutti::engine {

// describe.cpp
OpRecord describe(const NormForwardArgs& args);
OpRecord describe(const NormBackwardInputArgs& args);
OpRecord describe(const NormBackwardWeightArgs& args);
// What of it the gradients of the weights are made from.
NormBackwardWeightArgs weight_args(const NormBackwardInputArgs& args);
OpRecord describe(const ColumnSumArgs& args);
OpRecord describe(const ActivationForwardArgs& args);
OpRecord describe(const ActivationBackwardArgs& args);
OpRecord describe(const RopeArgs& args);
OpRecord describe(const DropoutArgs& args);  // `out` may be missing
OpRecord describe(const AdamwArgs& args);
OpRecord describe(const SquaredNormArgs& args);
OpRecord describe(const ConvertArgs& args);
OpRecord describe(const CopyArgs& args);
OpRecord describe(const RmsNormForwardArgs& args);
OpRecord describe(const RmsNormBackwardArgs& args);
OpRecord describe(const SoftcapArgs& args);

// describe_vocabulary.cpp
OpRecord describe(const EmbeddingForwardArgs& args);
OpRecord describe(const EmbeddingBackwardArgs& args);
OpRecord describe(const AddPositionsArgs& args);
OpRecord describe(const CrossEntropyArgs& args);
OpRecord describe(const DistillCrossEntropyArgs& args);
OpRecord describe(const CrossEntropyShardArgs& args);
OpRecord describe(const CrossEntropyMergeArgs& args);

// describe_moe.cpp
OpRecord describe(const RouteForwardArgs& args);
OpRecord describe(const RouteBackwardArgs& args);
OpRecord describe(const AssignRowsArgs& args);
OpRecord describe(const MergeCountsArgs& args);
OpRecord describe(const PermuteArgs& args);
OpRecord describe(const UnpermuteArgs& args);
OpRecord describe(const UpdateSelectionBiasArgs& args);
// Without the dims, flops and bytes that only the offsets tell: add_used_rows adds them.
OpRecord describe(const GroupedGemmArgs& args);
OpRecord describe(const GroupedGemmWeightArgs& args);
void add_used_rows(OpRecord& record, const GroupedGemmArgs& args, int64_t used);
void add_used_rows(OpRecord& record, const GroupedGemmWeightArgs& args, int64_t used);
// How many experts the weights of a grouped product have.
int64_t expert_count(const GroupedGemmArgs& args);
int64_t expert_count(const GroupedGemmWeightArgs& args);

// describe_attention.cpp
// flops are those of all pairs; with `starts` fewer: see seen_pairs.
OpRecord describe(const AttentionForwardArgs& args);
OpRecord describe(const AttentionBackwardArgs& args);
OpRecord describe(const AttentionBlockForwardArgs& args);
OpRecord describe(const AttentionBlockBackwardArgs& args);
OpRecord describe(const AttentionDecodeArgs& args);
// Twice the pairs of ops.h for starts that the host can read. Aborts when they are impossible.
double twice_pairs(const int32_t* starts, int64_t batch, int64_t sequence);
// scale, or 1/sqrt(D) for 0.
float attention_scale(float scale, int64_t head_dim);

// Which queries of a rank see which keys of another, besides the own block, where row t sees rows
// 0 .. t: queries [first_query, rows) all see keys [0, key_count).
struct SeenBlock {
  bool own = false;
  int64_t first_query = 0;
  int64_t key_count = 0;
};
SeenBlock seen_block(int64_t rows, int64_t blocks, int64_t query_block, int64_t key_block);
// The pairs of a block that starts, which the host can read, leave. Aborts when they are
// impossible.
double block_pairs(const int32_t* starts, int64_t batch, int64_t rows, const SeenBlock& seen);

}  // namespace tutti::engine
