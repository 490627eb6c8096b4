// Operations on a vocabulary that is divided among ranks (tensor parallel): each holds consecutive
// rows of the token table and of the head, and all rows of the micro-batch. Part of the operation
// table of ops.h, whose rules hold here too; letters as there.
#pragma once

#include <cstdint>

#include "tutti/engine/tensor.h"

namespace tutti::engine {

// out[r] = x[r] (+ position_table[(first_row + r) % sequence], or positions[r] where given): from
// the token rows that the ranks looked up together to the start of the residual stream.
// record "add_positions": dims (N, H); bytes: x, N*H of the table, N positions where given, out.
struct AddPositionsArgs {
  Matrix x;                    // [N, H] c
  int64_t sequence = 0;        // T
  Matrix position_table = {};  // [context, H] c, optional
  Vector positions = {};       // [N] i32, optional
  int64_t first_row = 0;       // row r counts as row first_row + r of the micro-batch
  Matrix out;                  // [N, H] f32
};

// What one rank knows of the cross-entropy of its columns: of each row r
//   statistics[2 r]     = logsumexp(logits[r, :V]), minus infinity without columns
//   statistics[2 r + 1] = logits[r, targets[r] - first_column], or 0 where that is another rank's
// record "cross_entropy_shard": dims (rows, columns of logits); bytes: logits, targets, statistics.
struct CrossEntropyShardArgs {
  Matrix logits;           // [n, >= V] f32 or c
  int64_t vocabulary = 0;  // V: columns here that are no padding; may be 0
  int64_t first_column = 0;
  int64_t all_columns = 0;  // of all ranks: every target is below
  Vector targets;           // [n] i32, columns of the whole; < 0: ignored
  Vector statistics;        // [2 n] f32
};

// The cross-entropy of all columns from the statistics of all `ways` ranks, one after another,
// merged in their order; every rank gets the same bits:
//   lse = log(sum over ranks of exp(statistics[2 r])), loss[r] = lse - sum of statistics[2 r + 1].
// With d_logits: gradient_scale * (exp(logits - lse) - onehot) of this rank's columns, zero in
// padded ones and in ignored rows; it may overlay logits as that of cross_entropy.
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
