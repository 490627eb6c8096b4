// The scheme of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", ACM
// TOMS 2008). A tile of C is 8 x 48 accumulators in registers; the tiles of one column or row of
// tiles share a panel of B or A (gemm_bf16_pack.h). Threads split the columns or the rows of C.
//
// B is always packed. A is read in place if its k are contiguous: a tile reads single words of it,
// and eight rows are as good as one packed panel. Otherwise it is packed too. The operand of the
// side that threads do not split is packed once and shared; each thread packs its own operand in
// blocks that stay in the L2 cache.
#include "tutti/engine/cpu/gemm_bf16.h"

#include <algorithm>
#include <utility>

#include "tutti/engine/cpu/convert.h"
#include "tutti/engine/cpu/gemm_bf16_pack.h"
#include "tutti/engine/cpu/gemm_bf16_tile.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/parallel.h"

namespace tutti::engine {
namespace {

constexpr int64_t kMaxWords = 1536;         // words of k in one pass over C
constexpr int64_t kBlockBytes = 400 << 10;  // block of an operand, for 1 MiB of L2
constexpr int64_t kAlign = 4096;

struct Product {
  int64_t m, n, k;
  PackOperand a, b;
  Matrix c;
  bool accumulate;
  bool transposed;  // C holds the transpose of the product; only f32 without a bias
  float alpha;
  const float* bias;  // [n] or null
  float* sums;        // [m, n] between passes if C is not f32, else null
};

int64_t round_up(int64_t value, int64_t grain) { return (value + grain - 1) / grain * grain; }

// Row panel `panel` of an operand that is read in place.
TileRows direct_rows(const PackOperand& a, const PackDepth& depth, int64_t panel) {
  TileRows out{};
  for (int64_t i = 0; i < kPanelRows; ++i) {
    const int64_t row = std::min(panel * kPanelRows + i, a.width - 1);
    out.row[i] = reinterpret_cast<const char*>(a.data + row * a.stride + depth.first);
  }
  out.step_bytes = sizeof(uint32_t);
  out.odd = depth.count % 2 != 0;
  return out;
}

TileRows packed_rows(const uint32_t* panel) {
  TileRows out{};
  for (int i = 0; i < kPanelRows; ++i) out.row[i] = reinterpret_cast<const char*>(panel + i);
  out.step_bytes = kPanelRows * static_cast<int64_t>(sizeof(uint32_t));
  return out;
}

// The epilogue of a tile in this pass over k.
TileEnd tile_end(const Product& x, const PackDepth& depth, int64_t i, int64_t j) {
  TileEnd end{};
  end.alpha = x.alpha;
  end.rows = std::min<int64_t>(kPanelRows, x.m - i);
  end.cols = std::min<int64_t>(kPanelCols, x.n - j);
  end.transposed = x.transposed;
  end.bias = depth.is_last && x.bias != nullptr ? x.bias + j : nullptr;
  const int64_t offset = x.transposed ? j * x.c.ld + i : i * x.c.ld + j;
  float* sums = nullptr;
  int64_t sums_stride = x.c.ld;
  if (x.sums != nullptr) {
    sums = x.sums + i * x.n + j;
    sums_stride = x.n;
  } else if (x.c.dtype == DType::f32) {
    sums = static_cast<float*>(x.c.data) + offset;
  }
  if (depth.is_first && x.accumulate && x.c.dtype != DType::f32) {
    end.add_bf16 = static_cast<const bf16*>(x.c.data) + offset;
    end.add_stride = x.c.ld;
  } else if (!depth.is_first || x.accumulate) {
    end.add = sums;
    end.add_stride = sums_stride;
  }
  if (x.c.dtype == DType::f32 || !depth.is_last) {
    end.c_f32 = sums;
    end.c_stride = sums_stride;
  } else {
    end.c_bf16 = static_cast<bf16*>(x.c.data) + offset;
    end.c_stride = x.c.ld;
  }
  return end;
}

// Panels [first, first + count) of one side.
struct Span {
  int64_t first, count;
};

// The tiles of `rows` x `columns`; a and b are their packed panels, a is null if A is read in
// place. The inner loop runs over the columns if `columns_inside`.
void tiles(const Product& x, const PackDepth& depth, Span rows, const uint32_t* a, Span columns,
           const uint32_t* b, bool columns_inside) {
  TileTerm term = {};
  term.words = depth.words;
  const auto set_row = [&](int64_t panel) {
    term.a = a == nullptr ? direct_rows(x.a, depth, panel)
                          : packed_rows(a + (panel - rows.first) * kPanelRows * depth.words);
  };
  const auto set_column = [&](int64_t panel) {
    term.b = b + (panel - columns.first) * kPanelCols * depth.words;
  };
  const auto multiply = [&](int64_t row, int64_t column) {
    multiply_tile(term, tile_end(x, depth, row * kPanelRows, column * kPanelCols));
  };
  if (columns_inside) {
    for (int64_t i = rows.first; i < rows.first + rows.count; ++i) {
      set_row(i);
      for (int64_t j = columns.first; j < columns.first + columns.count; ++j) {
        set_column(j);
        multiply(i, j);
      }
    }
  } else {
    for (int64_t j = columns.first; j < columns.first + columns.count; ++j) {
      set_column(j);
      for (int64_t i = rows.first; i < rows.first + rows.count; ++i) {
        set_row(i);
        multiply(i, j);
      }
    }
  }
}

// Panels of the most loaded thread, relative to an even split.
double imbalance(int64_t panels, int threads) {
  const int64_t most = (panels + threads - 1) / threads;
  return static_cast<double>(most) * threads / static_cast<double>(panels);
}

// Blocking of a product.
struct Plan {
  int64_t row_panels, col_panels;
  int64_t passes, words;  // passes over k, and words of the longest
  bool direct_a;          // A is not packed
  bool split_columns;     // else rows
  int64_t block;          // panels of the split side per block
  int64_t shared_bytes, own_bytes, sums_bytes, bias_bytes;
};

Plan make_plan(const Product& x, const Vector& bias, int threads) {
  // Sharing an A that is read in place is free: then split the columns, whichever side is longer.
  constexpr double kBalanced = 1.125;
  Plan plan{};
  plan.row_panels = (x.m + kPanelRows - 1) / kPanelRows;
  plan.col_panels = (x.n + kPanelCols - 1) / kPanelCols;
  const int64_t all_words = (x.k + 1) / 2;
  plan.passes = (all_words + kMaxWords - 1) / kMaxWords;
  plan.words = (all_words + plan.passes - 1) / plan.passes;
  plan.direct_a = x.a.k_contiguous;
  plan.split_columns = plan.direct_a ? imbalance(plan.col_panels, threads) <=
                                           std::max(kBalanced, imbalance(plan.row_panels, threads))
                                     : x.n >= x.m;
  const int64_t row_panel_bytes = kPanelRows * plan.words * 4;
  const int64_t col_panel_bytes = kPanelCols * plan.words * 4;
  const int64_t panel_bytes = plan.split_columns ? col_panel_bytes : row_panel_bytes;
  plan.block = std::clamp<int64_t>(kBlockBytes / panel_bytes, 1,
                                   plan.split_columns ? plan.col_panels : plan.row_panels);
  if (!plan.split_columns) {
    plan.shared_bytes = plan.col_panels * col_panel_bytes;
  } else if (!plan.direct_a) {
    plan.shared_bytes = plan.row_panels * row_panel_bytes;
  }
  if (plan.split_columns || !plan.direct_a) plan.own_bytes = plan.block * panel_bytes;
  plan.shared_bytes = round_up(plan.shared_bytes, kAlign);
  plan.own_bytes = round_up(plan.own_bytes, kAlign);
  plan.sums_bytes =
      plan.passes > 1 && x.c.dtype != DType::f32 ? round_up(x.m * x.n * 4, kAlign) : 0;
  plan.bias_bytes = round_up(bias ? x.n * 4 : 0, kAlign);
  return plan;
}

void multiply(CpuStream& stream, Product x, const Vector& bias) {
  const Plan plan = make_plan(x, bias, stream.threads());
  char* scratch = static_cast<char*>(stream.scratch(
      plan.shared_bytes + plan.own_bytes * stream.threads() + plan.sums_bytes + plan.bias_bytes));
  auto* shared = reinterpret_cast<uint32_t*>(scratch);
  char* own_base = scratch + plan.shared_bytes;
  char* after = own_base + plan.own_bytes * stream.threads();
  if (plan.sums_bytes > 0) x.sums = reinterpret_cast<float*>(after);
  if (bias && bias.dtype == DType::bf16) {
    auto* wide = reinterpret_cast<float*>(after + plan.sums_bytes);
    convert_elements(bias.as<bf16>(), wide, x.n);
    x.bias = wide;
  } else if (bias) {
    x.bias = bias.as<float>();
  }

  const Span all_rows = {0, plan.row_panels};
  const Span all_columns = {0, plan.col_panels};
  for (int64_t pass = 0; pass < plan.passes; ++pass) {
    PackDepth depth{};
    depth.first = pass * plan.words * 2;
    depth.count = std::min(plan.words * 2, x.k - depth.first);
    depth.words = (depth.count + 1) / 2;
    depth.is_first = pass == 0;
    depth.is_last = pass == plan.passes - 1;
    if (!plan.split_columns) {
      parallel_ranges(plan.col_panels, 1, [&](int64_t begin, int64_t end, int) {
        pack_columns(x.b, depth, begin, end - begin, shared + begin * kPanelCols * depth.words);
      });
    } else if (!plan.direct_a) {
      parallel_ranges(plan.row_panels, 4, [&](int64_t begin, int64_t end, int) {
        pack_rows(x.a, depth, begin, end - begin, shared + begin * kPanelRows * depth.words);
      });
    }
    const int64_t split = plan.split_columns ? plan.col_panels : plan.row_panels;
    parallel_ranges(split, 1, [&](int64_t begin, int64_t end, int thread) {
      auto* own = reinterpret_cast<uint32_t*>(own_base + plan.own_bytes * thread);
      for (int64_t first = begin; first < end; first += plan.block) {
        const Span span = {first, std::min(plan.block, end - first)};
        if (plan.split_columns) {
          pack_columns(x.b, depth, span.first, span.count, own);
          tiles(x, depth, all_rows, plan.direct_a ? nullptr : shared, span, own, true);
        } else {
          if (!plan.direct_a) pack_rows(x.a, depth, span.first, span.count, own);
          tiles(x, depth, span, plan.direct_a ? nullptr : own, all_columns, shared, false);
        }
      }
    });
  }
}

}  // namespace

bool gemm_bf16_possible(const GemmArgs& args) {
  return use_bf16_dot() && args.a.dtype == DType::bf16;
}

// The shared operand is one of the packed ones, always B if A is not packed. A thread's own block
// is kBlockBytes or a single panel, whichever is larger.
int64_t gemm_bf16_scratch_bytes(const CpuStream& stream, const GemmArgs& args) {
  const int64_t m = args.c.rows;
  const int64_t n = args.c.cols;
  const int64_t k = args.transpose_a ? args.a.rows : args.a.cols;
  const int64_t words = std::min((k + 1) / 2, kMaxWords);
  const int64_t columns = round_up(n, kPanelCols);
  const int64_t shared = round_up(
      (args.transpose_a ? std::min(round_up(m, kPanelCols), columns) : columns) * words * 4,
      kAlign);
  const int64_t own = round_up(std::max(kBlockBytes, kPanelCols * words * 4), kAlign);
  const int64_t sums =
      (k + 1) / 2 > kMaxWords && args.c.dtype != DType::f32 ? round_up(m * n * 4, kAlign) : 0;
  return shared + own * stream.threads() + sums + round_up(args.bias ? n * 4 : 0, kAlign);
}

void gemm_bf16(CpuStream& stream, const GemmArgs& args) {
  Product x{};
  x.m = args.c.rows;
  x.n = args.c.cols;
  x.k = args.transpose_a ? args.a.rows : args.a.cols;
  x.a = {args.a.as<bf16>(), x.m, args.a.ld, !args.transpose_a};
  x.b = {args.b.as<bf16>(), x.n, args.b.ld, args.transpose_b};
  x.c = args.c;
  x.accumulate = args.beta != 0;
  x.alpha = args.alpha;
  // Few columns, and many rows of an A that must be packed (the gradient of a narrow matrix): the
  // columns fill complete tiles as the rows of the transposed product.
  if (args.transpose_a && x.n < kPanelCols && x.n < x.m && x.c.dtype == DType::f32 && !args.bias) {
    std::swap(x.m, x.n);
    std::swap(x.a, x.b);
    x.transposed = true;
  }
  multiply(stream, x, args.bias);
}

}  // namespace tutti::engine
