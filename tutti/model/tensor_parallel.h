// Rows and sums of tensor parallel ranks, with sequence parallelism (Korthikanti et al. 2022):
// inside a pair of projections each rank has its columns of all rows; between pairs it has all
// columns of its own rows, an equal block of consecutive rows. Rows are all-gathered before the
// first projection; the partial sums of the second are reduce-scattered.
//
// Without a group (one rank) a block is all rows and nothing is exchanged.
#pragma once

#include <cstdint>

#include "tutti/comm/group.h"
#include "tutti/engine/stream.h"
#include "tutti/engine/tensor.h"

namespace tutti::model {

inline int tensor_rank(const comm::Group* tp) { return tp == nullptr ? 0 : tp->rank(); }
inline int tensor_ranks(const comm::Group* tp) { return tp == nullptr ? 1 : tp->size(); }

// The rows of the run that a rank holds between projections: first + numbers[r], or first + r.
struct OwnRows {
  int64_t first = 0;
  engine::Vector numbers = {};  // i32
};

// This rank's block of rows of `whole`, which holds the rows of all ranks.
engine::Matrix own_rows(const comm::Group* tp, engine::Matrix whole);
engine::Vector own_rows(const comm::Group* tp, engine::Vector whole);
// The first row of this block, of `rows` in all.
int64_t first_own_row(const comm::Group* tp, int64_t rows);

// whole = the blocks of all ranks; `own` is this rank's, and may already be in `whole`. Returns the
// matrix with all rows: `whole`, or for a single rank `own`, which is not copied.
engine::Matrix gather_rows(engine::Stream& stream, comm::Group* tp, engine::Matrix own,
                           engine::Matrix whole);

// own_rows(whole) = these rows of the sum of all ranks' `whole`; its other rows are then undefined.
void scatter_rows(engine::Stream& stream, comm::Group* tp, engine::Matrix whole);

}  // namespace tutti::model
