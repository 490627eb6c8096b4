// Rows of the tables, gathered forward and added up backward. Backward, threads split the columns:
// each adds its columns of all rows in order, so equal tokens need no locks and the result does not
// depend on the number of threads.
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/embedding.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

// out = token (+ position, unless null).
template <typename T>
HWY_INLINE void gather(const T* token, const T* position, float* out, int64_t count) {
  if (position != nullptr) {
    for_lanes(count, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
      store(hn::Add(load(token + j, block), load(position + j, block)), out + j, block);
    });
  } else {
    for_lanes(count, [&](int64_t j, auto block, auto /*slot*/)
                         TUTTI_LANES_BODY { store(load(token + j, block), out + j, block); });
  }
}

void gather_f32(const float* token, const float* position, float* out, int64_t count) {
  gather(token, position, out, count);
}
void gather_bf16(const bf16* token, const bf16* position, float* out, int64_t count) {
  gather(token, position, out, count);
}

void add_row(const float* x, float* sum, int64_t count) {
  for_lanes(count, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
    store(hn::Add(load(sum + j, block), load(x + j, block)), sum + j, block);
  });
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(gather_f32);
HWY_EXPORT(gather_bf16);
HWY_EXPORT(add_row);

namespace {

void check_tokens(const char* op, const Vector& tokens, int64_t rows, int64_t vocabulary) {
  TUTTI_CHECK(tokens.count == rows, "{}: {} tokens for {} rows", op, tokens.count, rows);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = tokens.as<int32_t>()[r];
    TUTTI_CHECK(token >= 0 && token < vocabulary, "{}: token {} of row {} is not below {}", op,
                token, r, vocabulary);
  }
}

template <typename T, typename Function>
void forward(const EmbeddingForwardArgs& args, Function function) {
  const auto* tokens = args.tokens.as<int32_t>();
  parallel_ranges(args.out.rows, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      const T* position = nullptr;
      if (args.position_table) {
        const int64_t index = args.positions ? args.positions.as<int32_t>()[r]
                                             : args.first_position + r % args.sequence;
        TUTTI_CHECK(index >= 0 && index < args.position_table.rows,
                    "embedding_forward: position {} of row {} is not below {}", index, r,
                    args.position_table.rows);
        position = args.position_table.row<T>(index);
      }
      function(args.token_table.row<T>(tokens[r]), position, args.out.row<float>(r), args.out.cols);
    }
  });
}

// The row of the position table that row r belongs to.
int64_t position_of(const EmbeddingBackwardArgs& args, int64_t r) {
  return args.positions ? args.positions.as<int32_t>()[r] : r % args.sequence;
}

void check_positions(const EmbeddingBackwardArgs& args) {
  const int64_t n = args.d_out.rows;
  const int64_t known = args.d_position_table.rows;
  if (!args.positions) {
    TUTTI_CHECK(n == 0 || (args.sequence > 0 && args.sequence <= known),
                "embedding_backward: sequence {} for {} positions", args.sequence, known);
    return;
  }
  TUTTI_CHECK(args.positions.count == n, "embedding_backward: {} positions for {} rows",
              args.positions.count, n);
  for (int64_t r = 0; r < n; ++r) {
    const int64_t position = position_of(args, r);
    TUTTI_CHECK(position >= 0 && position < known,
                "embedding_backward: position {} of row {} is not below {}", position, r, known);
  }
}

void clear_columns(const Matrix& table, int64_t first, int64_t last) {
  for (int64_t r = 0; r < table.rows; ++r) {
    std::fill(table.row<float>(r) + first, table.row<float>(r) + last, 0.0F);
  }
}

}  // namespace

void cpu_embedding_forward(Stream& stream, const EmbeddingForwardArgs& args) {
  const int64_t n = args.out.rows;
  const int64_t h = args.out.cols;
  TUTTI_CHECK(args.token_table.cols == h && (!args.position_table || args.position_table.cols == h),
              "embedding_forward: tables of width {} and {} to {}", args.token_table.cols,
              args.position_table.cols, h);
  TUTTI_CHECK(!args.position_table || args.position_table.dtype == args.token_table.dtype,
              "embedding_forward: tables of {} and {}", dtype_name(args.token_table.dtype),
              dtype_name(args.position_table.dtype));
  check_tokens("embedding_forward", args.tokens, n, args.token_table.rows);
  const double begin = begin_op(stream);
  if (args.token_table.dtype == DType::bf16) {
    forward<bf16>(args, HWY_DYNAMIC_DISPATCH(gather_bf16));
  } else {
    forward<float>(args, HWY_DYNAMIC_DISPATCH(gather_f32));
  }
  const int64_t tables = args.position_table ? 2 : 1;
  record(
      stream, "embedding_forward", {n, h}, 0,
      static_cast<double>(tables * n * h * dtype_bytes(args.token_table.dtype) + args.out.bytes() +
                          args.tokens.bytes() + (args.position_table ? args.positions.bytes() : 0)),
      begin);
}

void cpu_embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args) {
  const int64_t n = args.d_out.rows;
  const int64_t h = args.d_out.cols;
  const bool positions = static_cast<bool>(args.d_position_table);
  TUTTI_CHECK(args.d_token_table.cols == h && (!positions || args.d_position_table.cols == h),
              "embedding_backward: tables of width {} and {} for {}", args.d_token_table.cols,
              args.d_position_table.cols, h);
  if (positions) check_positions(args);
  check_tokens("embedding_backward", args.tokens, n, args.d_token_table.rows);
  constexpr int64_t kGrain = 16;
  const double begin = begin_op(stream);
  const auto* tokens = args.tokens.as<int32_t>();
  const auto function = HWY_DYNAMIC_DISPATCH(add_row);
  parallel_ranges(h, kGrain, [&](int64_t first, int64_t last, int) {
    if (args.token_beta == 0) clear_columns(args.d_token_table, first, last);
    if (positions && args.position_beta == 0) clear_columns(args.d_position_table, first, last);
    for (int64_t r = 0; r < n; ++r) {
      const float* x = args.d_out.row<float>(r) + first;
      function(x, args.d_token_table.row<float>(tokens[r]) + first, last - first);
      if (positions) {
        function(x, args.d_position_table.row<float>(position_of(args, r)) + first, last - first);
      }
    }
  });
  const auto table_bytes = [&](const Matrix& table, float beta) {
    return 2 * n * h * int64_t{4} + (beta == 0 ? table.bytes() : 0);
  };
  record(stream, "embedding_backward", {n, h}, 0,
         static_cast<double>(args.d_out.bytes() + args.tokens.bytes() +
                             table_bytes(args.d_token_table, args.token_beta) +
                             (positions ? table_bytes(args.d_position_table, args.position_beta) +
                                              args.positions.bytes()
                                        : 0)),
         begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
