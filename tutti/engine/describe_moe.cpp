// Mixture of experts.
#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/engine/describe.h"
#include "tutti/engine/row_groups.h"

namespace tutti::engine {
namespace {

void check_router(const char* op, const Matrix& probabilities, const Matrix& experts,
                  const Matrix& weights, const Vector& lse) {
  const int64_t n = probabilities.rows;
  TUTTI_CHECK(probabilities.dtype == DType::f32 && weights.dtype == DType::f32 &&
                  experts.dtype == DType::i32 && lse.dtype == DType::f32,
              "{}: probabilities {}, weights {}, experts {}", op, dtype_name(probabilities.dtype),
              dtype_name(weights.dtype), dtype_name(experts.dtype));
  TUTTI_CHECK(experts.rows == n && weights.rows == n && lse.count == n &&
                  weights.cols == experts.cols && experts.cols <= probabilities.cols,
              "{}: {} rows of {} experts, choices [{}, {}], weights [{}, {}], lse {}", op, n,
              probabilities.cols, experts.rows, experts.cols, weights.rows, weights.cols,
              lse.count);
}

// Checks that tokens [N, H], copies [R, H], positions and weights are consistent.
void check_copies(const char* op, const Matrix& tokens, const Matrix& copies,
                  const Matrix& positions, const Matrix& weights) {
  TUTTI_CHECK(
      tokens.dtype == copies.dtype && tokens.cols == copies.cols && positions.rows == tokens.rows,
      "{}: {} [{}, {}] and {} [{}, {}] with positions of {} rows", op, dtype_name(tokens.dtype),
      tokens.rows, tokens.cols, dtype_name(copies.dtype), copies.rows, copies.cols, positions.rows);
  TUTTI_CHECK(!weights || (weights.rows == positions.rows && weights.cols == positions.cols),
              "{}: weights [{}, {}] for positions [{}, {}]", op, weights.rows, weights.cols,
              positions.rows, positions.cols);
}

// Checks common to all grouped products; the weights of an expert have `height` rows.
void check_groups(const char* op, const Matrix& x, const Matrix& y, const Matrix& weights,
                  int64_t height, int64_t experts, int64_t boundaries, const RowGroups& groups) {
  TUTTI_CHECK(experts > 0 && experts * height == weights.rows && groups.count() > 0 &&
                  groups.each % experts == 0 && x.rows == y.rows,
              "{}: {} groups, weights [{}, {}] of {} rows each, rows {} and {}", op, groups.count(),
              weights.rows, weights.cols, height, x.rows, y.rows);
  TUTTI_CHECK(
      boundaries == groups.count() + groups.pieces && x.rows == groups.pieces * groups.piece_rows,
      "{}: {} rows in {} pieces of {}, {} boundaries of {} groups", op, x.rows, groups.pieces,
      groups.piece_rows, boundaries, groups.count());
}

// Checks biases [E*n] of the experts of the groups of x.
void check_biases(const char* op, const Matrix& x, const Vector& biases, int64_t boundaries,
                  const RowGroups& groups) {
  const int64_t experts = x.cols > 0 ? biases.count / x.cols : 0;
  TUTTI_CHECK(experts > 0 && experts * x.cols == biases.count && groups.count() > 0 &&
                  groups.each % experts == 0,
              "{}: {} groups of rows of {}, {} elements of biases", op, groups.count(), x.cols,
              biases.count);
  TUTTI_CHECK(
      boundaries == groups.count() + groups.pieces && x.rows == groups.pieces * groups.piece_rows,
      "{}: {} rows in {} pieces of {}, {} boundaries of {} groups", op, x.rows, groups.pieces,
      groups.piece_rows, boundaries, groups.count());
}

int64_t block_height(const GroupedGemmArgs& args) {
  return args.transpose_b ? args.c.cols : args.a.cols;
}

}  // namespace

OpRecord describe(const RouteForwardArgs& args) {
  constexpr const char* kOp = "route_forward";
  check_router(kOp, args.probabilities, args.experts, args.weights, args.lse);
  TUTTI_CHECK(args.logits.rows == args.probabilities.rows &&
                  args.logits.cols == args.probabilities.cols &&
                  (!args.bias || args.bias.count == args.logits.cols),
              "{}: logits [{}, {}], probabilities [{}, {}], bias {}", kOp, args.logits.rows,
              args.logits.cols, args.probabilities.rows, args.probabilities.cols, args.bias.count);
  const RouterGroups& groups = args.groups;
  TUTTI_CHECK(
      groups.count == 1 || (groups.count > 1 && groups.count <= kMostRouterGroups &&
                            args.logits.cols % groups.count == 0 && groups.chosen > 0 &&
                            groups.chosen <= groups.count && groups.best > 0 &&
                            args.experts.cols <= groups.chosen * (args.logits.cols / groups.count)),
      "{}: {} of {} experts in {} of {} groups, marked by {}", kOp, args.experts.cols,
      args.logits.cols, groups.chosen, groups.count, groups.best);
  return {.op = kOp,
          .dims = {args.logits.rows, args.logits.cols, args.experts.cols},
          .bytes = real(args.logits.bytes() + args.bias.bytes() + args.probabilities.bytes() +
                        args.lse.bytes() + args.experts.bytes() + args.weights.bytes())};
}

OpRecord describe(const RouteBackwardArgs& args) {
  constexpr const char* kOp = "route_backward";
  check_router(kOp, args.probabilities, args.experts, args.weights, args.lse);
  const int64_t rows = args.probabilities.rows;
  const int64_t experts = args.probabilities.cols;
  const int64_t sequences = args.counts.rows;
  TUTTI_CHECK(args.d_weights.rows == rows && args.d_weights.cols == args.weights.cols &&
                  args.d_logits.rows == rows && args.d_logits.cols == experts,
              "{}: d_weights [{}, {}], d_logits [{}, {}] for {} rows of {} experts", kOp,
              args.d_weights.rows, args.d_weights.cols, args.d_logits.rows, args.d_logits.cols,
              rows, experts);
  const int64_t tokens =
      args.rows_each > 0 ? args.rows_each : rows / std::max<int64_t>(sequences, 1);
  const bool block =
      args.rows_each > 0 && args.first_row >= 0 && args.first_row + rows <= sequences * tokens;
  TUTTI_CHECK((block || rows == sequences * tokens) && args.counts.cols == experts &&
                  args.positions.rows == rows && args.positions.cols == args.experts.cols &&
                  args.load.count == experts && args.sums.count == 3,
              "{}: counts [{}, {}], positions [{}, {}], {} loads, {} sums for {} rows, from {} on, "
              "of {} experts",
              kOp, sequences, args.counts.cols, args.positions.rows, args.positions.cols,
              args.load.count, args.sums.count, rows, args.first_row, experts);
  TUTTI_CHECK(args.scores == RouterScores::softmax || args.z_scale == 0,
              "{}: sigmoid scores with a z loss of {}", kOp, args.z_scale);
  TUTTI_CHECK(args.beta == 0 || args.beta == 1, "{}: beta {} is neither 0 nor 1", kOp, args.beta);
  const int64_t sides = args.beta == 0 ? 1 : 2;
  return {.op = kOp,
          .dims = {rows, experts, args.experts.cols},
          .bytes = real(args.probabilities.bytes() + args.lse.bytes() + args.experts.bytes() +
                        args.weights.bytes() + args.d_weights.bytes() + args.counts.bytes() +
                        args.positions.bytes() + args.d_logits.bytes() +
                        sides * (args.load.bytes() + args.sums.bytes()))};
}

OpRecord describe(const AssignRowsArgs& args) {
  const int64_t n = args.experts.rows;
  const int64_t k = args.experts.cols;
  const int64_t sequences = args.counts.rows;
  const int64_t experts = args.counts.cols;
  const int64_t pieces = args.piece_rows > 0 ? args.rows / args.piece_rows : 1;
  TUTTI_CHECK(pieces > 0 && experts % pieces == 0 &&
                  (args.piece_rows == 0 || args.rows == pieces * args.piece_rows),
              "assign_rows: {} rows in {} pieces of {} for {} experts", args.rows, pieces,
              args.piece_rows, experts);
  TUTTI_CHECK(args.sequence > 0 && sequences * args.sequence == n &&
                  args.offsets.count == experts + pieces && args.positions.rows == n &&
                  args.positions.cols == k,
              "assign_rows: {} choices of {} rows in sequences of {}, counts [{}, {}], {} offsets, "
              "positions [{}, {}]",
              k, n, args.sequence, sequences, experts, args.offsets.count, args.positions.rows,
              args.positions.cols);
  TUTTI_CHECK(!args.before || (args.before.rows == sequences && args.before.cols == experts),
              "assign_rows: choices before [{}, {}] of {} sequences", args.before.rows,
              args.before.cols, sequences);
  return {.op = "assign_rows",
          .dims = {n, experts, k},
          .bytes = real(args.experts.bytes() + args.before.bytes() + args.counts.bytes() +
                        args.offsets.bytes() + args.positions.bytes())};
}

OpRecord describe(const MergeCountsArgs& args) {
  const int64_t sequences = args.totals.rows;
  const int64_t experts = args.totals.cols;
  const int64_t blocks = args.blocks;
  TUTTI_CHECK(blocks > 0 && args.block >= 0 && args.block < blocks &&
                  args.counts.rows == blocks * 2 * sequences && args.counts.cols == experts &&
                  args.before.rows == 2 * sequences && args.before.cols == experts,
              "merge_counts: [{}, {}] of {} blocks, totals [{}, {}], before [{}, {}]",
              args.counts.rows, args.counts.cols, blocks, sequences, experts, args.before.rows,
              args.before.cols);
  return {.op = "merge_counts",
          .dims = {sequences, experts, blocks},
          .bytes = real(args.counts.bytes() + args.totals.bytes() + args.before.bytes())};
}

OpRecord describe(const PermuteArgs& args) {
  check_copies("permute", args.x, args.out, args.positions, args.weights);
  TUTTI_CHECK(
      !args.partner || (args.partner.rows == args.out.rows && args.partner.cols == args.x.cols &&
                        args.partner.dtype == args.x.dtype && args.dots.rows == args.x.rows &&
                        args.dots.cols == args.positions.cols),
      "permute: partner {} [{}, {}], dots [{}, {}]", dtype_name(args.partner.dtype),
      args.partner.rows, args.partner.cols, args.dots.rows, args.dots.cols);
  return {.op = "permute",
          .dims = {args.out.rows, args.x.cols},
          .bytes = real(args.x.bytes() + args.positions.bytes() + args.weights.bytes() +
                        args.out.bytes() + args.partner.bytes() + args.dots.bytes())};
}

OpRecord describe(const UnpermuteArgs& args) {
  check_copies("unpermute", args.out, args.rows, args.positions, args.weights);
  return {.op = "unpermute",
          .dims = {args.rows.rows, args.out.cols},
          .bytes = real(args.rows.bytes() + args.positions.bytes() + args.weights.bytes() +
                        (args.accumulate ? 2 : 1) * args.out.bytes())};
}

OpRecord describe(const UpdateSelectionBiasArgs& args) {
  const int64_t experts = args.load.count;
  const int64_t count = args.bias.count;
  TUTTI_CHECK(args.first >= 0 && args.first + count <= experts &&
                  (!args.weights || args.weights.count == count),
              "update_selection_bias: {} loads, biases {}+{}, {} weights", experts, args.first,
              count, args.weights.count);
  return {.op = "update_selection_bias",
          .dims = {count},
          .bytes = real(args.load.bytes() + 2 * args.bias.bytes() + args.weights.bytes())};
}

int64_t expert_count(const GroupedGemmArgs& args) {
  const int64_t height = block_height(args);
  return height == 0 ? row_groups(args, args.a.rows).each : args.b.rows / height;
}
int64_t expert_count(const GroupedGemmWeightArgs& args) {
  const int64_t height = args.dy.cols;
  return height == 0 ? row_groups(args, args.x.rows).each : args.d_weight.rows / height;
}

OpRecord describe(const GroupedGemmArgs& args) {
  constexpr const char* kOp = "grouped_gemm";
  const int64_t k = args.a.cols;
  const int64_t n = args.c.cols;
  const int64_t height = block_height(args);
  const int64_t experts = expert_count(args);
  check_groups(kOp, args.a, args.c, args.b, height, experts, args.offsets.count,
               row_groups(args, args.a.rows));
  TUTTI_CHECK((args.transpose_b ? height : args.b.cols) == n &&
                  (args.transpose_b ? args.b.cols : height) == k && args.a.dtype == args.b.dtype &&
                  args.a.dtype == args.c.dtype,
              "{}: {} [.., {}] x {} [{}, {}]{} -> {} [.., {}]", kOp, dtype_name(args.a.dtype), k,
              dtype_name(args.b.dtype), height, args.b.cols, args.transpose_b ? "^T" : "",
              dtype_name(args.c.dtype), n);
  return {.op = kOp, .dims = {experts, 0, n, k}, .bytes = real(args.b.bytes())};
}

OpRecord describe(const GroupedGemmWeightArgs& args) {
  constexpr const char* kOp = "grouped_gemm_weight";
  const int64_t m = args.dy.cols;
  const int64_t n = args.x.cols;
  const int64_t experts = expert_count(args);
  const RowGroups groups = row_groups(args, args.x.rows);
  check_groups(kOp, args.dy, args.x, args.d_weight, m, experts, args.offsets.count, groups);
  TUTTI_CHECK(
      args.d_weight.cols == n && args.dy.dtype == args.x.dtype && args.d_weight.dtype == DType::f32,
      "{}: {} [.., {}], {} [.., {}] -> {} [{}, {}] of {} groups", kOp, dtype_name(args.dy.dtype), m,
      dtype_name(args.x.dtype), n, dtype_name(args.d_weight.dtype), args.d_weight.rows,
      args.d_weight.cols, groups.count());
  TUTTI_CHECK(args.beta == 0 || args.beta == 1, "{}: beta {} is neither 0 nor 1", kOp, args.beta);
  return {.op = kOp,
          .dims = {experts, 0, m, n},
          .bytes = (args.beta == 0 ? 1 : 2) * real(args.d_weight.bytes())};
}

namespace {

void add_rows(OpRecord& record, int64_t used, int64_t columns, int64_t depth, DType dtype) {
  record.dims[1] = used;
  record.flops += 2 * real(used) * real(columns) * real(depth);
  record.bytes += real(used * (columns + depth)) * real(dtype_bytes(dtype));
}

}  // namespace

void add_used_rows(OpRecord& record, const GroupedGemmArgs& args, int64_t used) {
  add_rows(record, used, args.c.cols, args.a.cols, args.a.dtype);
}
void add_used_rows(OpRecord& record, const GroupedGemmWeightArgs& args, int64_t used) {
  add_rows(record, used, args.dy.cols, args.x.cols, args.x.dtype);
}

OpRecord describe(const GroupedBiasArgs& args) {
  constexpr const char* kOp = "grouped_bias";
  check_biases(kOp, args.x, args.bias, args.offsets.count, row_groups(args, args.x.rows));
  TUTTI_CHECK(args.bias.dtype == args.x.dtype, "{}: x is {}, bias {}", kOp,
              dtype_name(args.x.dtype), dtype_name(args.bias.dtype));
  return {.op = kOp,
          .dims = {args.bias.count / args.x.cols, 0, args.x.cols},
          .bytes = real(args.bias.bytes())};
}

OpRecord describe(const GroupedColumnSumArgs& args) {
  constexpr const char* kOp = "grouped_column_sum";
  check_biases(kOp, args.dy, args.d_bias, args.offsets.count, row_groups(args, args.dy.rows));
  TUTTI_CHECK(args.d_bias.dtype == DType::f32 && (args.beta == 0 || args.beta == 1),
              "{}: d_bias is {}, beta {}", kOp, dtype_name(args.d_bias.dtype), args.beta);
  return {.op = kOp,
          .dims = {args.d_bias.count / args.dy.cols, 0, args.dy.cols},
          .bytes = (args.beta == 0 ? 1 : 2) * real(args.d_bias.bytes())};
}

void add_used_rows(OpRecord& record, const GroupedBiasArgs& args, int64_t used) {
  record.dims[1] = used;
  record.bytes += 2 * real(used * args.x.cols) * real(dtype_bytes(args.x.dtype));
}
void add_used_rows(OpRecord& record, const GroupedColumnSumArgs& args, int64_t used) {
  record.dims[1] = used;
  record.bytes += real(used * args.dy.cols) * real(dtype_bytes(args.dy.dtype));
}

int64_t used_rows(const char* op, const RowGroups& groups) {
  int64_t used = 0;
  for (int64_t piece = 0; piece < groups.pieces; ++piece) {
    const int32_t* at = groups.offsets + piece * (groups.each + 1);
    TUTTI_CHECK(at[0] == 0 && groups.used(piece) <= groups.piece_rows, "{}: rows {} to {} of {}",
                op, at[0], groups.used(piece), groups.piece_rows);
    for (int64_t e = 0; e < groups.each; ++e) {
      TUTTI_CHECK(at[e] <= at[e + 1], "{}: group {} from {} to {}", op, e, at[e], at[e + 1]);
    }
    used += groups.used(piece);
  }
  return used;
}

}  // namespace tutti::engine
