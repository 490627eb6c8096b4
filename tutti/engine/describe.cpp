#include "tutti/engine/describe.h"

#include <utility>

#include "tutti/base/check.h"

namespace tutti::engine {
namespace {

double bytes_if(bool present, int64_t bytes) { return present ? real(bytes) : 0; }

void check_matrix(const char* op, const Matrix& m, const char* name, int64_t n, int64_t h) {
  TUTTI_CHECK(m.rows == n && m.cols == h, "{}: {} is [{}, {}], expected [{}, {}]", op, name, m.rows,
              m.cols, n, h);
}
void check_matrix(const char* op, const Matrix& m, const char* name, DType dtype, int64_t n,
                  int64_t cols) {
  TUTTI_CHECK(m.rows == n && m.cols == cols && m.dtype == dtype,
              "{}: {} is {} [{}, {}], expected {} [{}, {}]", op, name, dtype_name(m.dtype), m.rows,
              m.cols, dtype_name(dtype), n, cols);
}
void check_count(const char* op, const Vector& v, const char* name, int64_t count) {
  TUTTI_CHECK(v.count == count, "{}: {} has {} elements, expected {}", op, name, v.count, count);
}
void check_beta(const char* op, float beta) {
  TUTTI_CHECK(beta == 0 || beta == 1, "{}: beta {} is neither 0 nor 1", op, beta);
}

// Columns of x, bias and dx of an activation for F columns of y.
int64_t input_columns(Activation kind, int64_t f) { return kind == Activation::gelu ? f : 2 * f; }

void check_amax(const char* op, const Vector& amax, const Matrix& of) {
  TUTTI_CHECK(!amax || (amax.dtype == DType::f32 && amax.count == 1 && of),
              "{}: amax of {} {} for {} columns", op, amax.count, dtype_name(amax.dtype), of.cols);
}

double norm_sums_bytes(const NormBackwardWeightArgs& args) {
  const double sums =
      real(args.d_weight.bytes()) + bytes_if(static_cast<bool>(args.d_bias), args.d_bias.bytes());
  return sums * (args.beta == 0 ? 1 : 2);
}

}  // namespace

OpRecord describe(const NormForwardArgs& args) {
  constexpr const char* kOp = "norm_forward";
  const int64_t n = args.y.rows;
  const int64_t h = args.y.cols;
  const bool layer = args.kind == NormKind::layer;
  check_matrix(kOp, args.residual_in, "residual_in", n, h);
  check_count(kOp, args.weight, "weight", h);
  if (args.branch) {
    check_matrix(kOp, args.branch, "branch", n, h);
    check_matrix(kOp, args.residual_out, "residual_out", n, h);
    TUTTI_CHECK(args.branch.dtype == args.y.dtype, "{}: branch is {}, y {}", kOp,
                dtype_name(args.branch.dtype), dtype_name(args.y.dtype));
  }
  TUTTI_CHECK(layer || !args.bias, "{}: RMSNorm has no bias", kOp);
  if (args.bias) check_count(kOp, args.bias, "bias", h);
  if (args.mean && layer) check_count(kOp, args.mean, "mean", n);
  if (args.rstd) check_count(kOp, args.rstd, "rstd", n);
  check_amax(kOp, args.amax, args.y);
  const double bytes =
      real(args.residual_in.bytes() + args.weight.bytes() + args.y.bytes()) +
      bytes_if(static_cast<bool>(args.branch), args.branch.bytes() + args.residual_out.bytes()) +
      bytes_if(static_cast<bool>(args.bias), args.bias.bytes()) +
      bytes_if(args.mean && layer, args.mean.bytes()) +
      bytes_if(static_cast<bool>(args.rstd), args.rstd.bytes());
  return {.op = kOp, .dims = {n, h}, .bytes = bytes};
}

NormBackwardWeightArgs weight_args(const NormBackwardInputArgs& args) {
  return {.kind = args.kind,
          .dy = args.dy,
          .residual = args.residual,
          .mean = args.mean,
          .rstd = args.rstd,
          .beta = args.beta,
          .d_weight = args.d_weight,
          .d_bias = args.d_bias};
}

OpRecord describe(const NormBackwardInputArgs& args) {
  constexpr const char* kOp = "norm_backward_input";
  const int64_t n = args.dy.rows;
  const int64_t h = args.dy.cols;
  const bool layer = args.kind == NormKind::layer;
  check_matrix(kOp, args.residual, "residual", n, h);
  check_matrix(kOp, args.d_residual, "d_residual", n, h);
  check_count(kOp, args.weight, "weight", h);
  check_count(kOp, args.rstd, "rstd", n);
  if (layer) check_count(kOp, args.mean, "mean", n);
  if (args.d_branch) {
    check_matrix(kOp, args.d_branch, "d_branch", n, h);
    TUTTI_CHECK(args.d_branch.dtype == args.dy.dtype, "{}: d_branch is {}, dy {}", kOp,
                dtype_name(args.d_branch.dtype), dtype_name(args.dy.dtype));
  }
  check_amax(kOp, args.amax, args.d_branch);
  TUTTI_CHECK(args.d_weight || !args.d_bias, "{}: d_bias without d_weight", kOp);
  double bytes = real(args.dy.bytes() + args.residual.bytes() + args.weight.bytes() +
                      args.rstd.bytes() + args.d_residual.bytes() * (args.accumulate ? 2 : 1)) +
                 bytes_if(layer, args.mean.bytes()) +
                 bytes_if(static_cast<bool>(args.d_branch), args.d_branch.bytes());
  if (args.d_weight) {
    const NormBackwardWeightArgs weight = weight_args(args);
    describe(weight);
    bytes += norm_sums_bytes(weight);
  }
  return {.op = kOp, .dims = {n, h}, .bytes = bytes};
}

OpRecord describe(const NormBackwardWeightArgs& args) {
  constexpr const char* kOp = "norm_backward_weight";
  const int64_t n = args.dy.rows;
  const int64_t h = args.dy.cols;
  const bool layer = args.kind == NormKind::layer;
  check_matrix(kOp, args.residual, "residual", n, h);
  check_count(kOp, args.rstd, "rstd", n);
  check_count(kOp, args.d_weight, "d_weight", h);
  if (layer) check_count(kOp, args.mean, "mean", n);
  if (args.d_bias) check_count(kOp, args.d_bias, "d_bias", h);
  check_beta(kOp, args.beta);
  const double bytes = real(args.dy.bytes() + args.residual.bytes() + args.rstd.bytes()) +
                       bytes_if(layer, args.mean.bytes()) + norm_sums_bytes(args);
  return {.op = kOp, .dims = {n, h}, .bytes = bytes};
}

OpRecord describe(const ColumnSumArgs& args) {
  TUTTI_CHECK(args.x.cols == args.out.count, "column_sum: {} columns to {} sums", args.x.cols,
              args.out.count);
  check_beta("column_sum", args.beta);
  return {.op = "column_sum",
          .dims = {args.x.rows, args.x.cols},
          .bytes = real(args.x.bytes() + (args.beta == 0 ? 1 : 2) * args.out.bytes())};
}

OpRecord describe(const ActivationForwardArgs& args) {
  constexpr const char* kOp = "activation_forward";
  const int64_t n = args.y.rows;
  const int64_t f = args.y.cols;
  check_matrix(kOp, args.x, "x", args.y.dtype, n, input_columns(args.kind, f));
  check_amax(kOp, args.amax, args.y);
  if (args.bias) check_count(kOp, args.bias, "bias", args.x.cols);
  return {.op = kOp,
          .dims = {n, f},
          .bytes = real(args.x.bytes() + args.y.bytes() + args.bias.bytes())};
}

OpRecord describe(const ActivationBackwardArgs& args) {
  constexpr const char* kOp = "activation_backward";
  const int64_t n = args.dy.rows;
  const int64_t f = args.dy.cols;
  check_matrix(kOp, args.x, "x", args.dy.dtype, n, input_columns(args.kind, f));
  check_matrix(kOp, args.dx, "dx", args.dy.dtype, n, input_columns(args.kind, f));
  check_amax(kOp, args.amax, args.dx);
  if (args.bias) check_count(kOp, args.bias, "bias", args.x.cols);
  return {.op = kOp,
          .dims = {n, f},
          .bytes = real(args.x.bytes() + args.dy.bytes() + args.dx.bytes() + args.bias.bytes())};
}

OpRecord describe(const RopeArgs& args) {
  const int64_t n = args.x.rows;
  TUTTI_CHECK(args.heads * args.head_dim <= args.x.cols, "rope: {} heads of {} in {} columns",
              args.heads, args.head_dim, args.x.cols);
  const int64_t rotated = args.rotated > 0 ? args.rotated : args.head_dim;
  TUTTI_CHECK(rotated % 2 == 0 && rotated <= args.head_dim, "rope: {} columns of head size {}",
              rotated, args.head_dim);
  const int64_t elements = n * args.heads * rotated;
  TUTTI_CHECK(elements == 0 || args.inverse_frequency.count == rotated / 2,
              "rope: {} frequencies for {} columns", args.inverse_frequency.count, rotated);
  TUTTI_CHECK(elements == 0 || (args.positions ? args.positions.count == n : args.sequence > 0),
              "rope: {} positions for {} rows, sequence {}", args.positions.count, n,
              args.sequence);
  return {.op = "rope",
          .dims = {n, args.heads, args.head_dim},
          .bytes = 2 * real(elements * dtype_bytes(args.x.dtype)) +
                   real(args.inverse_frequency.bytes()) +
                   bytes_if(static_cast<bool>(args.positions), args.positions.bytes())};
}

OpRecord describe(const DropoutArgs& args) {
  const int64_t n = args.x.rows;
  const int64_t m = args.x.cols;
  const Matrix& out = args.out ? args.out : args.x;
  TUTTI_CHECK(out.rows == n && out.cols == m && out.dtype == args.x.dtype,
              "dropout: x [{}, {}] {}, out [{}, {}] {}", n, m, dtype_name(args.x.dtype), out.rows,
              out.cols, dtype_name(out.dtype));
  TUTTI_CHECK(!args.rows || args.rows.count == n, "dropout: {} row numbers for {} rows",
              args.rows.count, n);
  TUTTI_CHECK(args.probability >= 0 && args.probability < 1,
              "dropout: probability {} is not in [0, 1)", args.probability);
  return {.op = "dropout", .dims = {n, m}, .bytes = real(2 * args.x.bytes() + args.rows.bytes())};
}

OpRecord describe(const AdamwArgs& args) {
  const int64_t count = args.master.count;
  TUTTI_CHECK(args.gradient.count == count && args.m.count == count && args.v.count == count &&
                  (!args.weights || args.weights.count == count),
              "adamw: {} gradients, {} parameters, {} and {} moments, {} weights",
              args.gradient.count, count, args.m.count, args.v.count, args.weights.count);
  TUTTI_CHECK(args.step >= 1, "adamw: step {} is less than 1", args.step);
  const bool narrow = args.master.dtype == DType::bf16;
  TUTTI_CHECK(narrow || args.master.dtype == DType::f32, "adamw: unsupported master type {}",
              dtype_name(args.master.dtype));
  TUTTI_CHECK(!narrow || !args.weights, "adamw: bf16 masters with bf16 weights");
  TUTTI_CHECK(narrow || !args.stochastic, "adamw: stochastic rounding needs bf16 masters");
  int64_t covered = 0;
  for (const AdamwSegment& segment : args.segments) {
    TUTTI_CHECK(segment.first == covered && segment.count >= 0, "adamw: segment {}+{} after {}",
                segment.first, segment.count, covered);
    covered += segment.count;
  }
  TUTTI_CHECK(covered == count, "adamw: segments cover {} of {} parameters", covered, count);
  return {.op = "adamw",
          .dims = {count},
          .bytes = real(args.gradient.bytes() + 2 * args.master.bytes() + 2 * args.m.bytes() +
                        2 * args.v.bytes() + args.weights.bytes())};
}

OpRecord describe(const SquaredNormArgs& args) {
  return {.op = "squared_norm",
          .dims = {args.x.count},
          .flops = 2 * real(args.x.count),
          .bytes = real(args.x.bytes()) + sizeof(double)};
}

OpRecord describe(const ConvertArgs& args) {
  TUTTI_CHECK(args.x.count == args.out.count, "convert: {} elements to {}", args.x.count,
              args.out.count);
  return {
      .op = "convert", .dims = {args.x.count}, .bytes = real(args.x.bytes() + args.out.bytes())};
}

OpRecord describe(const CopyArgs& args) {
  const int64_t n = args.x.rows;
  const int64_t m = args.x.cols;
  TUTTI_CHECK(args.out.rows == n && args.out.cols == m &&
                  (!args.plus || (args.plus.rows == n && args.plus.cols == m)),
              "copy: [{}, {}] plus [{}, {}] to [{}, {}]", n, m, args.plus.rows, args.plus.cols,
              args.out.rows, args.out.cols);
  TUTTI_CHECK(!args.plus || args.scale == 1, "copy: scale {} with plus, expected 1", args.scale);
  return {.op = "copy",
          .dims = {n, m},
          .bytes = real(args.x.bytes() + args.plus.bytes() + args.out.bytes())};
}

OpRecord describe(const RmsNormForwardArgs& args) {
  constexpr const char* kOp = "rms_norm_forward";
  const int64_t n = args.x.rows;
  const int64_t width = args.weight.count;
  check_matrix(kOp, args.y, "y", args.x.dtype, n, args.groups * width);
  check_matrix(kOp, args.x, "x", args.x.dtype, n, args.groups * width);
  if (args.rstd) check_matrix(kOp, args.rstd, "rstd", DType::f32, n, args.groups);
  return {.op = kOp,
          .dims = {n, args.groups, width},
          .bytes = real(args.x.bytes() + args.y.bytes() + args.weight.bytes() + args.rstd.bytes())};
}

OpRecord describe(const RmsNormBackwardArgs& args) {
  constexpr const char* kOp = "rms_norm_backward";
  const int64_t n = args.dy.rows;
  const int64_t width = args.weight.count;
  for (const auto& [name, matrix] :
       {std::pair("dy", args.dy), std::pair("x", args.x), std::pair("dx", args.dx)}) {
    check_matrix(kOp, matrix, name, args.dy.dtype, n, args.groups * width);
  }
  check_matrix(kOp, args.rstd, "rstd", DType::f32, n, args.groups);
  if (args.d_weight) check_count(kOp, args.d_weight, "d_weight", width);
  return {.op = kOp,
          .dims = {n, args.groups, width},
          .bytes = real(args.dy.bytes() + args.x.bytes() + args.dx.bytes() + args.weight.bytes() +
                        args.rstd.bytes()) +
                   (args.beta == 0 ? 1 : 2) * real(args.d_weight.bytes())};
}

OpRecord describe(const SoftcapArgs& args) {
  TUTTI_CHECK(args.cap > 0, "softcap: cap {} is not positive", args.cap);
  return {.op = "softcap", .dims = {args.x.rows, args.x.cols}, .bytes = 2 * real(args.x.bytes())};
}

}  // namespace tutti::engine
