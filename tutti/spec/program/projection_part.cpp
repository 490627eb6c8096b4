#include "tutti/spec/program/layer_builder.h"

namespace tutti::spec {
namespace {

// An adapter as this rank holds it.
struct LocalAdapter {
  int64_t rows = 0;
};

bool is_row_parallel(Projection projection) {
  return projection == Projection::output || projection == Projection::down;
}

std::vector<LocalAdapter> local_adapters(const LayerContext& at, Projection projection) {
  const int64_t d = at.model.head_dim;
  const int64_t queries = at.model.heads * d;
  std::vector<LocalAdapter> list;
  for (const Adapter& adapter : adapters(at.model, at.recipe.lora)) {
    if (adapter.projection != projection) continue;
    int64_t rows = adapter.rows;
    if (projection == Projection::up) rows /= at.mesh.tp;
    if (projection == Projection::qkv) {
      const int64_t query_rows = adapter.first_row == 0 ? queries : 0;
      const int64_t kv_parts = (adapter.rows - query_rows) / (at.model.kv_heads * d);
      rows = query_rows / at.mesh.tp + kv_parts * at.sizes.kv_heads * d;
    }
    list.push_back({rows});
  }
  return list;
}

Op dropped_input(const LayerContext& at, int64_t in) {
  return dropout_op(at.tokens(), in, at.c, at.scattered());
}

}  // namespace

// Under tensor parallelism nothing narrow is exchanged: B of a row-parallel projection takes
// partial sums to partial sums, which are added up with the projection's own; so does A of a
// column-parallel one in backward. Their gradients are partial too, and added up once per step
// (Program::updates).
void LayerContext::projection_forward(Ops& ops, Projection projection, int64_t out, int64_t in,
                                      bool bias) const {
  ops.push_back(linear(tokens(), out, in, bias));
  const std::vector<LocalAdapter> list = local_adapters(*this, projection);
  if (list.empty()) return;
  const int64_t rank = recipe.lora.rank;
  if (recipe.lora.dropout > 0) ops.push_back(dropped_input(*this, in));
  for (size_t i = 0; i < list.size(); ++i) ops.push_back(gemm_op({tokens(), rank, in}, c, c));
  for (const LocalAdapter& adapter : list) {
    ops.push_back(gemm_op({tokens(), adapter.rows, rank}, c, c, false, Accumulate::always));
  }
}

void LayerContext::projection_input(Ops& ops, Projection projection, int64_t out,
                                    int64_t in) const {
  const std::vector<LocalAdapter> list = local_adapters(*this, projection);
  const int64_t rank = recipe.lora.rank;
  for (const LocalAdapter& adapter : list) {
    ops.push_back(gemm_op({tokens(), rank, adapter.rows}, c, c));
  }
  if (ends_at(projection)) return;
  for (size_t i = 0; i < list.size(); ++i) {
    ops.push_back(gemm_op({tokens(), in, rank}, c, c, false,
                          i == 0 ? Accumulate::never : Accumulate::always));
  }
  if (!list.empty() && recipe.lora.dropout > 0) ops.push_back(dropped_input(*this, in));
  ops.push_back(
      linear_input(tokens(), out, in, list.empty() ? Accumulate::never : Accumulate::always));
}

void LayerContext::projection_weight(Ops& ops, Projection projection, int64_t out, int64_t in,
                                     bool bias) const {
  linear_weight(ops, tokens(), out, in, bias, is_row_parallel(projection) ? shard() : tokens());
  const std::vector<LocalAdapter> list = local_adapters(*this, projection);
  const int64_t rank = recipe.lora.rank;
  if (!list.empty() && recipe.lora.dropout > 0) ops.push_back(dropped_input(*this, in));
  for (const LocalAdapter& adapter : list) {
    ops.push_back(gemm_op({rank, in, tokens()}, c, DType::f32, false, Accumulate::later));
    ops.push_back(gemm_op({adapter.rows, rank, tokens()}, c, DType::f32, false, Accumulate::later));
  }
}

}  // namespace tutti::spec
