// Operations for vocabulary parallelism (within the tensor parallel group): each rank holds
// consecutive rows of the token table and of the head, and all rows of the micro-batch. Part of the
// table in ops.h, whose rules and shape letters apply here.
#pragma once

#include <cstdint>

#include "tutti/engine/tensor.h"

namespace tutti::engine {

// out[r] = x[r] (+ position_table[(first_row + r) % sequence], or positions[r] if given): from the
// reduced token embeddings of all ranks to the start of the residual stream.
// record "add_positions": dims (N, H); bytes: x, N*H of the table, N positions if given, out.
struct AddPositionsArgs {
  Matrix x;                    // [N, H] c
  int64_t sequence = 0;        // T
  Matrix position_table = {};  // [context, H] c, optional
  Vector positions = {};       // [N] i32, optional
  int64_t first_row = 0;       // row r counts as row first_row + r of the micro-batch
  Matrix out;                  // [N, H] f32
};

// One rank's part of the cross-entropy, over its columns: for each row r
//   statistics[2 r]     = logsumexp(logits[r, :V]), minus infinity without columns
//   statistics[2 r + 1] = logits[r, targets[r] - first_column], or 0 if another rank has that
//   column
// record "cross_entropy_shard": dims (rows, columns of logits); bytes: logits, targets, statistics.
struct CrossEntropyShardArgs {
  Matrix logits;           // [n, >= V] f32 or c
  int64_t vocabulary = 0;  // V: columns of this rank without padding; may be 0
  int64_t first_column = 0;
  int64_t all_columns = 0;  // of all ranks: every target is below it
  Vector targets;           // [n] i32, columns of the whole vocabulary; < 0: ignored
  Vector statistics;        // [2 n] f32
};

// The cross-entropy over all columns from the statistics of all `ways` ranks, concatenated and
// merged in rank order, so that every rank gets the same bits:
//   lse = log(sum over ranks of exp(statistics[2 r])), loss[r] = lse - sum of statistics[2 r + 1].
// With d_logits: gradient_scale * (exp(logits - lse) - onehot) of this rank's columns, zero in
// padding columns and ignored rows; it may overlay logits as in cross_entropy.
// record "cross_entropy_merge": dims (rows, columns of logits); bytes: targets, statistics, loss,
// and with d_logits both these and logits.
struct CrossEntropyMergeArgs {
  Matrix logits;  // as cross_entropy_shard
  int64_t vocabulary = 0;
  int64_t first_column = 0;
  Vector targets;
  Vector statistics;  // [ways * 2 n] f32
  float gradient_scale = 1;
  Vector loss;           // [n] f32
  Matrix d_logits = {};  // [n, >= V] c, optional
  float softcap = 0;     // as cross_entropy
};

}  // namespace tutti::engine
