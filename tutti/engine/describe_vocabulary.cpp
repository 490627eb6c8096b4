// Embeddings and losses.
#include "tutti/base/check.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

// Checks sizes, and that a gradient that overlays its logits does not overwrite unread ones.
void check_loss(const char* op, const Matrix& logits, int64_t vocabulary, const Vector& targets,
                const Vector& loss, const Matrix& d) {
  const int64_t n = logits.rows;
  TUTTI_CHECK(targets.count == n && loss.count == n && (!d || d.rows == n),
              "{}: {} rows, {} targets, {} losses, {} gradients", op, n, targets.count, loss.count,
              d.rows);
  TUTTI_CHECK(vocabulary <= logits.cols && (!d || vocabulary <= d.cols),
              "{}: vocabulary {} in {} and {} columns", op, vocabulary, logits.cols, d.cols);
  if (d && d.data == logits.data) {
    const int64_t row_bytes = logits.ld * dtype_bytes(logits.dtype);
    TUTTI_CHECK(dtype_bytes(d.dtype) <= dtype_bytes(logits.dtype) &&
                    d.ld * dtype_bytes(d.dtype) == row_bytes,
                "{}: gradient {} with ld {} over logits {} with ld {}", op, dtype_name(d.dtype),
                d.ld, dtype_name(logits.dtype), logits.ld);
  }
}

}  // namespace

OpRecord describe(const EmbeddingForwardArgs& args) {
  const int64_t n = args.out.rows;
  const int64_t h = args.out.cols;
  TUTTI_CHECK(args.token_table.cols == h && (!args.position_table || args.position_table.cols == h),
              "embedding_forward: tables of width {} and {} to {}", args.token_table.cols,
              args.position_table.cols, h);
  TUTTI_CHECK(!args.position_table || args.position_table.dtype == args.token_table.dtype,
              "embedding_forward: tables of {} and {}", dtype_name(args.token_table.dtype),
              dtype_name(args.position_table.dtype));
  TUTTI_CHECK(args.out.dtype == DType::f32 ||
                  (args.out.dtype == args.token_table.dtype && !args.position_table),
              "embedding_forward: a table of {} and {} of positions to {}",
              dtype_name(args.token_table.dtype), args.position_table.rows,
              dtype_name(args.out.dtype));
  TUTTI_CHECK(args.tokens.count == n, "embedding_forward: {} tokens for {} rows", args.tokens.count,
              n);
  const int64_t tables = args.position_table ? 2 : 1;
  return {.op = "embedding_forward",
          .dims = {n, h},
          .bytes = real(tables * n * h * dtype_bytes(args.token_table.dtype) + args.out.bytes() +
                        args.tokens.bytes() + (args.position_table ? args.positions.bytes() : 0))};
}

OpRecord describe(const EmbeddingBackwardArgs& args) {
  const int64_t n = args.d_out.rows;
  const int64_t h = args.d_out.cols;
  const bool positions = static_cast<bool>(args.d_position_table);
  const bool lookup = static_cast<bool>(args.d_token_table);
  TUTTI_CHECK(
      (!lookup || args.d_token_table.cols == h) && (!positions || args.d_position_table.cols == h),
      "embedding_backward: tables of width {} and {} for {}", args.d_token_table.cols,
      args.d_position_table.cols, h);
  TUTTI_CHECK(!lookup || args.tokens.count == n, "embedding_backward: {} tokens for {} rows",
              args.tokens.count, n);
  if (positions && !args.positions) {
    TUTTI_CHECK(n == 0 || (args.sequence > 0 && args.sequence <= args.d_position_table.rows),
                "embedding_backward: sequence {} for {} positions", args.sequence,
                args.d_position_table.rows);
  }
  TUTTI_CHECK(!positions || !args.positions || args.positions.count == n,
              "embedding_backward: {} positions for {} rows", args.positions.count, n);
  const auto table_bytes = [&](const Matrix& sums, float beta) {
    return 2 * n * h * int64_t{4} + (beta == 0 ? sums.bytes() : 0);
  };
  return {
      .op = "embedding_backward",
      .dims = {n, h},
      .bytes = real(
          args.d_out.bytes() +
          (lookup ? table_bytes(args.d_token_table, args.token_beta) + args.tokens.bytes() : 0) +
          (positions
               ? table_bytes(args.d_position_table, args.position_beta) + args.positions.bytes()
               : 0))};
}

OpRecord describe(const AddPositionsArgs& args) {
  const int64_t n = args.out.rows;
  const int64_t h = args.out.cols;
  const Matrix& table = args.position_table;
  TUTTI_CHECK(args.x.rows == n && args.x.cols == h && (!table || table.cols == h),
              "add_positions: x [{}, {}] and a table of width {} to [{}, {}]", args.x.rows,
              args.x.cols, table.cols, n, h);
  TUTTI_CHECK(!table || table.dtype == args.x.dtype, "add_positions: x of {}, table of {}",
              dtype_name(args.x.dtype), dtype_name(table.dtype));
  TUTTI_CHECK(n == 0 || args.sequence > 0, "add_positions: sequence {}", args.sequence);
  return {.op = "add_positions",
          .dims = {n, h},
          .bytes = real((table ? 2 : 1) * args.x.bytes() + args.out.bytes() +
                        (table ? args.positions.bytes() : 0))};
}

OpRecord describe(const CrossEntropyArgs& args) {
  check_loss("cross_entropy", args.logits, args.vocabulary, args.targets, args.loss, args.d_logits);
  return {.op = "cross_entropy",
          .dims = {args.logits.rows, args.vocabulary},
          .bytes = real(args.logits.bytes() + args.targets.bytes() + args.loss.bytes() +
                        args.d_logits.bytes())};
}

OpRecord describe(const DistillCrossEntropyArgs& args) {
  const int64_t n = args.logits.rows;
  check_loss("distill_cross_entropy", args.logits, args.vocabulary, args.targets, args.loss,
             args.d_logits);
  const Matrix& t = args.teacher_logits;
  TUTTI_CHECK(t.rows == n && t.cols >= args.vocabulary && t.dtype == args.logits.dtype &&
                  t.data != args.logits.data,
              "distill_cross_entropy: teacher logits {} x {} {} for logits {} x {} {}", t.rows,
              t.cols, dtype_name(t.dtype), n, args.logits.cols, dtype_name(args.logits.dtype));
  TUTTI_CHECK(args.divergence.count == n, "distill_cross_entropy: {} divergences of {} rows",
              args.divergence.count, n);
  TUTTI_CHECK(args.temperature > 0 && args.weight >= 0 && args.weight <= 1,
              "distill_cross_entropy: temperature {}, weight {}", args.temperature, args.weight);
  return {.op = "distill_cross_entropy",
          .dims = {n, args.vocabulary},
          .bytes = real(args.logits.bytes() + t.bytes() + args.targets.bytes() + args.loss.bytes() +
                        args.divergence.bytes() + args.d_logits.bytes())};
}

OpRecord describe(const CrossEntropyShardArgs& args) {
  const int64_t n = args.logits.rows;
  TUTTI_CHECK(args.vocabulary >= 0 && args.vocabulary <= args.logits.cols && args.first_column >= 0,
              "cross_entropy_shard: columns {} to {} in {} columns", args.first_column,
              args.first_column + args.vocabulary, args.logits.cols);
  TUTTI_CHECK(args.targets.count == n && args.statistics.count == 2 * n,
              "cross_entropy_shard: {} rows, {} targets, {} statistics", n, args.targets.count,
              args.statistics.count);
  return {.op = "cross_entropy_shard",
          .dims = {n, args.logits.cols},
          .bytes = real(args.logits.bytes() + args.targets.bytes() + args.statistics.bytes())};
}

OpRecord describe(const CrossEntropyMergeArgs& args) {
  const int64_t n = args.logits.rows;
  check_loss("cross_entropy_merge", args.logits, args.vocabulary, args.targets, args.loss,
             args.d_logits);
  TUTTI_CHECK(n == 0 || (args.statistics.count > 0 && args.statistics.count % (2 * n) == 0),
              "cross_entropy_merge: {} statistics of {} rows", args.statistics.count, n);
  return {.op = "cross_entropy_merge",
          .dims = {n, args.logits.cols},
          .bytes = real(args.targets.bytes() + args.statistics.bytes() + args.loss.bytes() +
                        (args.d_logits ? args.logits.bytes() + args.d_logits.bytes() : 0))};
}

}  // namespace tutti::engine
