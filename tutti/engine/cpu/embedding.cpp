// Gathers rows of the tables in the forward pass, and accumulates them in the backward pass. There,
// threads split the columns: each adds its columns of all rows in order, so that repeated tokens
// need no locks and the result does not depend on the number of threads.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/embedding.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

// out = token (+ position if not null).
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

template <typename T>
HWY_INLINE void add_row(const T* x, float* sum, int64_t count) {
  for_lanes(count, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
    store(hn::Add(load(sum + j, block), load(x + j, block)), sum + j, block);
  });
}

void add_row_f32(const float* x, float* sum, int64_t count) { add_row(x, sum, count); }
void add_row_bf16(const bf16* x, float* sum, int64_t count) { add_row(x, sum, count); }

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(gather_f32);
HWY_EXPORT(gather_bf16);
HWY_EXPORT(add_row_f32);
HWY_EXPORT(add_row_bf16);

namespace {

// The rows of the token table that this rank holds.
struct TokenRows {
  int64_t first = 0;
  int64_t count = 0;
  bool have(int64_t token) const { return token >= first && token < first + count; }
};

TokenRows check_tokens(const char* op, const Vector& tokens, int64_t rows, const Matrix& table,
                       int64_t first_token, int64_t vocabulary) {
  if (vocabulary == 0) vocabulary = table.rows;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = tokens.as<int32_t>()[r];
    TUTTI_CHECK(token >= 0 && token < vocabulary, "{}: token {} of row {} is not below {}", op,
                token, r, vocabulary);
  }
  return {first_token, table.rows};
}

// The position of row r of a micro-batch: positions[r], or `first` + row % sequence.
struct Positions {
  const char* op;
  const Matrix& table;
  const Vector& positions;
  int64_t sequence = 0;
  int64_t first = 0;
  int64_t first_row = 0;

  template <typename T>
  const T* row(int64_t r) const {
    if (!table) return nullptr;
    const int64_t index =
        positions ? positions.as<int32_t>()[r] : first + (first_row + r) % sequence;
    TUTTI_CHECK(index >= 0 && index < table.rows, "{}: position {} of row {} is not below {}", op,
                index, r, table.rows);
    return table.row<T>(index);
  }
};

template <typename T, typename Function>
void forward(const EmbeddingForwardArgs& args, const TokenRows& table, Function function) {
  const auto* tokens = args.tokens.as<int32_t>();
  const Positions positions = {"embedding_forward", args.position_table, args.positions,
                               args.sequence, args.first_position};
  parallel_ranges(args.out.rows, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      if (!table.have(tokens[r])) {
        std::fill_n(args.out.row<float>(r), args.out.cols, 0.0F);
        continue;
      }
      function(args.token_table.row<T>(tokens[r] - table.first), positions.row<T>(r),
               args.out.row<float>(r), args.out.cols);
    }
  });
}

// Output in the type of the table: rows are copied.
void copy_rows(const EmbeddingForwardArgs& args, const TokenRows& table) {
  const auto* tokens = args.tokens.as<int32_t>();
  const int64_t size = dtype_bytes(args.out.dtype);
  const auto row_bytes = static_cast<size_t>(args.out.cols * size);
  const auto* from = static_cast<const char*>(args.token_table.data);
  auto* to = static_cast<char*>(args.out.data);
  parallel_ranges(args.out.rows, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      char* row = to + r * args.out.ld * size;
      if (table.have(tokens[r])) {
        std::memcpy(row, from + (tokens[r] - table.first) * args.token_table.ld * size, row_bytes);
      } else {
        std::memset(row, 0, row_bytes);
      }
    }
  });
}

template <typename T, typename Function>
void add_positions(const AddPositionsArgs& args, Function function) {
  const Positions positions = {
      "add_positions", args.position_table, args.positions, args.sequence, 0, args.first_row};
  parallel_ranges(args.out.rows, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      function(args.x.row<T>(r), positions.row<T>(r), args.out.row<float>(r), args.out.cols);
    }
  });
}

// The row of the position table for row r.
int64_t position_of(const EmbeddingBackwardArgs& args, int64_t r) {
  return args.positions ? args.positions.as<int32_t>()[r] : (args.first_row + r) % args.sequence;
}

void check_positions(const EmbeddingBackwardArgs& args) {
  const int64_t n = args.d_out.rows;
  const int64_t known = args.d_position_table.rows;
  if (!args.positions) return;
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
  const OpRecord what = describe(args);
  const bool sums = args.out.dtype == DType::f32;
  const TokenRows table = check_tokens("embedding_forward", args.tokens, n, args.token_table,
                                       args.first_token, args.vocabulary);
  const double begin = begin_op(stream);
  if (!sums) {
    copy_rows(args, table);
  } else if (args.token_table.dtype == DType::bf16) {
    forward<bf16>(args, table, HWY_DYNAMIC_DISPATCH(gather_bf16));
  } else {
    forward<float>(args, table, HWY_DYNAMIC_DISPATCH(gather_f32));
  }
  record(stream, what, begin);
}

void cpu_add_positions(Stream& stream, const AddPositionsArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  if (args.x.dtype == DType::bf16) {
    add_positions<bf16>(args, HWY_DYNAMIC_DISPATCH(gather_bf16));
  } else {
    add_positions<float>(args, HWY_DYNAMIC_DISPATCH(gather_f32));
  }
  record(stream, what, begin);
}

void cpu_embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args) {
  const int64_t n = args.d_out.rows;
  const int64_t h = args.d_out.cols;
  const bool positions = static_cast<bool>(args.d_position_table);
  const bool lookup = static_cast<bool>(args.d_token_table);
  const OpRecord what = describe(args);
  if (positions) check_positions(args);
  TokenRows table;
  if (lookup) {
    table = check_tokens("embedding_backward", args.tokens, n, args.d_token_table, args.first_token,
                         args.vocabulary);
  }
  constexpr int64_t kGrain = 16;
  const double begin = begin_op(stream);
  const int32_t* tokens = lookup ? args.tokens.as<int32_t>() : nullptr;
  const auto add_rows = [&](const auto* type, auto function) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(type)>>;
    parallel_ranges(h, kGrain, [&](int64_t first, int64_t last, int) {
      if (lookup && args.token_beta == 0) clear_columns(args.d_token_table, first, last);
      if (positions && args.position_beta == 0) clear_columns(args.d_position_table, first, last);
      for (int64_t r = 0; r < n; ++r) {
        const T* x = args.d_out.row<T>(r) + first;
        if (lookup && table.have(tokens[r])) {
          function(x, args.d_token_table.row<float>(tokens[r] - table.first) + first, last - first);
        }
        if (positions) {
          function(x, args.d_position_table.row<float>(position_of(args, r)) + first, last - first);
        }
      }
    });
  };
  if (args.d_out.dtype == DType::bf16) {
    add_rows(static_cast<const bf16*>(nullptr), HWY_DYNAMIC_DISPATCH(add_row_bf16));
  } else {
    add_rows(static_cast<const float*>(nullptr), HWY_DYNAMIC_DISPATCH(add_row_f32));
  }
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
