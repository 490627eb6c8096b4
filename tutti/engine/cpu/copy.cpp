// ops.h states the contract.
#include "tutti/engine/cpu/convert.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

float value(float x) { return x; }
float value(bf16 x) { return to_f32(x); }
void assign(float& to, float x) { to = x; }
void assign(bf16& to, float x) { to = to_bf16(x); }

template <typename X, typename Plus, typename Out>
void add_row(const X* x, const Plus* plus, Out* out, int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) assign(out[c], value(x[c]) + value(plus[c]));
}

template <typename X, typename Out>
void scale_row(const X* x, float scale, Out* out, int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) assign(out[c], scale * value(x[c]));
}

template <typename T>
void copy_row(const T* x, T* out, int64_t columns) {
  if (x != out) std::copy_n(x, columns, out);
}
void copy_row(const float* x, bf16* out, int64_t columns) { convert_elements(x, out, columns); }
void copy_row(const bf16* x, float* out, int64_t columns) { convert_elements(x, out, columns); }

// body(pointer to row r of the matrix)
template <typename Body>
void with_row(const Matrix& matrix, int64_t r, const Body& body) {
  if (matrix.dtype == DType::bf16) {
    body(matrix.row<bf16>(r));
  } else {
    body(matrix.row<float>(r));
  }
}

}  // namespace

void cpu_copy(Stream& stream, const CopyArgs& args) {
  const int64_t n = args.x.rows;
  const int64_t m = args.x.cols;
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  if (m > 0) {
    parallel_ranges(n, std::max<int64_t>(1, 4096 / m), [&](int64_t first, int64_t last, int) {
      for (int64_t r = first; r < last; ++r) {
        with_row(args.out, r, [&](auto* out) {
          with_row(args.x, r, [&](auto* x) {
            if (args.scale != 1) return scale_row(x, args.scale, out, m);
            if (!args.plus) return copy_row(x, out, m);
            with_row(args.plus, r, [&](auto* plus) { add_row(x, plus, out, m); });
          });
        });
      }
    });
  }
  record(stream, what, begin);
}

}  // namespace tutti::engine
