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

struct RowGroups;  // row_groups.h

// That of a product is in gemm_check.h, inline. `out` of a dropout may be missing. Of grouped
// products the dims, flops and bytes that only the offsets tell are left out: add_used_rows adds
// them. Attention's flops are those of all pairs; with `starts` fewer: see seen_pairs.
#define TUTTI_OP(name, Args) OpRecord describe(const Args& args);
#include "tutti/engine/ops.def"

// What of it the gradients of the weights are made from.
NormBackwardWeightArgs weight_args(const NormBackwardInputArgs& args);

void add_used_rows(OpRecord& record, const GroupedGemmArgs& args, int64_t used);
void add_used_rows(OpRecord& record, const GroupedGemmWeightArgs& args, int64_t used);
// How many experts the weights of a grouped product have.
int64_t expert_count(const GroupedGemmArgs& args);
int64_t expert_count(const GroupedGemmWeightArgs& args);
void add_used_rows(OpRecord& record, const GroupedBiasArgs& args, int64_t used);
void add_used_rows(OpRecord& record, const GroupedColumnSumArgs& args, int64_t used);
// Rows in use of groups whose boundaries the host can read. Aborts when these are impossible.
int64_t used_rows(const char* op, const RowGroups& groups);

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
