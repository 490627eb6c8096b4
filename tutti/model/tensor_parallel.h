// Rows and sums among tensor parallel ranks, with sequence parallelism (Korthikanti et al. 2022):
// inside a pair of projections each rank has its columns of all rows; between the pairs it has all
// columns of its own rows, an equal block of consecutive ones. Rows are gathered before the first
// projection; the second leaves partial sums, which are added up and scattered.
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

// Which rows of the run a rank holds between projections: numbers[r] after `first`, or r after it.
struct OwnRows {
  int64_t first = 0;
  engine::Vector numbers = {};  // i32
};

// This rank's block of the rows of `whole`, which has room for those of all ranks.
engine::Matrix own_rows(const comm::Group* tp, engine::Matrix whole);
engine::Vector own_rows(const comm::Group* tp, engine::Vector whole);
// The first of them, of `rows` in all.
int64_t first_own_row(const comm::Group* tp, int64_t rows);

// whole = the blocks of all ranks; `own` is this rank's, and may lie in its place in `whole`.
// Returns where all rows are: in `whole`, or alone in `own`, which is not copied.
engine::Matrix gather_rows(engine::Stream& stream, comm::Group* tp, engine::Matrix own,
                           engine::Matrix whole);

// own_rows(whole) = these rows of the sum of all ranks' `whole`; the other rows are undefined then.
void scatter_rows(engine::Stream& stream, comm::Group* tp, engine::Matrix whole);

}  // namespace tutti::model
