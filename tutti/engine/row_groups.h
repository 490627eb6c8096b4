// Layout of the groups of rows of a grouped product (moe_ops.h): in pieces of equally many rows, or
// one after the other, which is one piece. Functions for the host and for kernels.
#pragma once

#include <cstdint>

#include "tutti/engine/moe_ops.h"

namespace tutti::engine {

struct RowGroups {
  const int32_t* offsets = nullptr;  // [pieces * (each + 1)], starting at 0 in each piece
  int64_t pieces = 1;
  int64_t each = 0;  // groups of a piece
  int64_t piece_rows = 0;

  constexpr int64_t count() const { return pieces * each; }
  constexpr int64_t begin(int64_t group) const { return first(group) + offsets[at(group)]; }
  constexpr int64_t end(int64_t group) const { return first(group) + offsets[at(group) + 1]; }
  // Rows of all groups of piece `piece`.
  constexpr int64_t used(int64_t piece) const { return offsets[(piece + 1) * (each + 1) - 1]; }

 private:
  constexpr int64_t first(int64_t group) const { return group / each * piece_rows; }
  constexpr int64_t at(int64_t group) const { return group + group / each; }
};

// Args: GroupedGemmArgs or GroupedGemmWeightArgs, whose operands have `rows` rows. Boundaries are
// read from `offsets`, by default from args.offsets.
template <typename Args>
RowGroups row_groups(const Args& args, int64_t rows, const int32_t* offsets = nullptr) {
  RowGroups out;
  out.offsets = offsets != nullptr ? offsets : args.offsets.template as<int32_t>();
  out.pieces = args.piece_rows > 0 ? rows / args.piece_rows : 1;
  out.each = out.pieces > 0 ? args.offsets.count / out.pieces - 1 : 0;
  out.piece_rows = args.piece_rows > 0 ? args.piece_rows : rows;
  return out;
}

}  // namespace tutti::engine
