// The checks of an operation's operands, and its record, which are the same on every backend: a
// backend's function begins with `const OpRecord what = describe(args)` and ends with
// `record(stream, what, begin)`.
//
// Each aborts if shapes, strides or types are inconsistent or contradict ops.h. It does not read
// values in the stream's memory (tokens, targets, offsets, ...): work that writes them may still be
// enqueued. Times are left 0.
#pragma once

#include "tutti/base/real.h"
#include "tutti/engine/ops.h"
#include "tutti/engine/recorder.h"

namespace tutti::engine {

struct RowGroups;  // row_groups.h

// describe(GemmArgs) is inline in gemm_check.h. `out` of dropout may be empty. Grouped products
// lack the dims, flops and bytes that depend on the offsets: add_used_rows adds them. Attention's
// flops count all pairs; with `starts` there are fewer: see twice_pairs and block_pairs.
#define TUTTI_OP(name, Args) OpRecord describe(const Args& args);
#include "tutti/engine/ops.def"

// The part of the arguments that computes the gradients of the weights.
NormBackwardWeightArgs weight_args(const NormBackwardInputArgs& args);

void add_used_rows(OpRecord& record, const GroupedGemmArgs& args, int64_t used);
void add_used_rows(OpRecord& record, const GroupedGemmWeightArgs& args, int64_t used);
// Number of experts in the weights of a grouped product.
int64_t expert_count(const GroupedGemmArgs& args);
int64_t expert_count(const GroupedGemmWeightArgs& args);
void add_used_rows(OpRecord& record, const GroupedBiasArgs& args, int64_t used);
void add_used_rows(OpRecord& record, const GroupedColumnSumArgs& args, int64_t used);
// Rows in use, for groups whose boundaries the host can read. Aborts if these are invalid.
int64_t used_rows(const char* op, const RowGroups& groups);

// Columns of a value: value_dim, or those of a key if it is 0 or absent.
template <typename Args>
int64_t value_width(const Args& args) {
  if constexpr (requires { args.value_dim; }) {
    if (args.value_dim > 0) return args.value_dim;
  }
  return args.head_dim;
}

// Twice the pairs of attention_ops.h, for starts that the host can read. Aborts if they are
// invalid.
double twice_pairs(const int32_t* starts, int64_t batch, int64_t sequence);
// scale, or 1/sqrt(D) for 0.
float attention_scale(float scale, int64_t head_dim);

// Which queries of a rank attend to which keys of another: queries [first_query, rows) to all keys
// [0, key_count). In the rank's own block row t attends to rows 0 .. t.
struct SeenBlock {
  bool own = false;
  int64_t first_query = 0;
  int64_t key_count = 0;
};
SeenBlock seen_block(int64_t rows, int64_t blocks, int64_t query_block, int64_t key_block);
// The pairs of a block that remain under `starts`, which the host can read. Aborts if they are
// invalid.
double block_pairs(const int32_t* starts, int64_t batch, int64_t rows, const SeenBlock& seen);

}  // namespace tutti::engine
