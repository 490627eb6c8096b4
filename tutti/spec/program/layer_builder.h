// Shared by the builders of layer operations: the sizes of one rank, and operations in these sizes.
#pragma once

#include <vector>

#include "tutti/spec/program/narrow.h"
#include "tutti/spec/program/operation.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/recipe/lora.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

using Ops = std::vector<Op>;

inline void append(Ops& list, const Ops& more) {
  list.insert(list.end(), more.begin(), more.end());
}

struct LayerContext {
  const Recipe& recipe;
  const Profile& profile;
  const ModelConfig& model;
  const Mesh& mesh;
  LocalSizes sizes;
  DType c;              // compute type
  DType residual;       // of the residual stream
  Parts again = 0;      // parts that the layer recomputes before its backward pass
  bool whole = false;   // recomputes from its input alone (full recomputation)
  bool wide = false;    // 16-bit products although the recipe's precision has fewer bits
  bool lowest = false;  // nothing below the first adapter of this block needs a gradient
  int64_t window = 0;   // of its attention
  bool rotated = true;

  LayerContext(const Recipe& recipe_in, const Profile& profile_in)
      : recipe(recipe_in),
        profile(profile_in),
        model(recipe_in.model),
        mesh(recipe_in.parallel),
        sizes(local_sizes(recipe_in, profile_in)),
        c(sizes.compute),
        residual(profile_in.residual == DType::f32 ? DType::f32 : sizes.compute) {}

  bool repeats(Parts parts) const { return (again & parts) != 0; }
  // Recomputes every other product, unless all of `part` is recomputed.
  bool alternates(Parts part) const { return repeats(kPartAlternate) && !repeats(part); }
  int64_t hidden() const { return model.hidden; }
  int64_t tokens() const { return sizes.tokens; }
  int64_t shard() const { return sizes.shard_tokens; }  // rows of norms and residual
  bool packed() const { return recipe.data.packing == Packing::documents; }
  // Rows of context parallel ranks of the trainer are not contiguous.
  bool scattered() const { return mesh.cp > 1 && profile.executable; }
  bool given_positions() const { return packed() || scattered(); }
  bool gated() const { return is_gated(model); }
  double hidden_bytes() const {
    return static_cast<double>(tokens()) * static_cast<double>(hidden()) *
           static_cast<double>(dtype_bytes(c));
  }

  NormShape norm(int64_t rows, int64_t width) const {
    return {rows, width, model.norm == Norm::layer, model.norm_bias, c, residual};
  }
  NormShape norm() const { return norm(shard(), hidden()); }
  // A norm whose input has the compute type (inside latent attention).
  NormShape inner_norm(int64_t width) const {
    NormShape shape = norm(shard(), width);
    shape.residual = c;
    return shape;
  }

  // Collectives of tensor parallelism around a pair of projections; none if tp is 1.
  void enter(Ops& ops) const { enter(ops, hidden_bytes()); }
  void enter(Ops& ops, double bytes) const {  // before a column-parallel projection
    if (sizes.sequence_parallel)
      ops.push_back(collective_op("all_gather", Axis::tp, mesh.tp, bytes));
  }
  // The same before a product in the recipe's precision: Profile::gathers_narrow.
  void enter_product(Ops& ops) const { enter_product(ops, hidden_bytes()); }
  void enter_product(Ops& ops, double bytes) const {
    enter(ops, profile.gathers_narrow ? bytes * operand_bytes(recipe.precision) / 2 : bytes);
  }
  void leave(Ops& ops) const { leave(ops, hidden_bytes()); }
  void leave(Ops& ops, double bytes) const {  // after a row-parallel projection
    if (mesh.tp == 1) return;
    ops.push_back(collective_op(sizes.sequence_parallel ? "reduce_scatter" : "all_reduce", Axis::tp,
                                mesh.tp, bytes));
  }

  void dropout(Ops& ops) const {
    if (model.dropout > 0) ops.push_back(dropout_op(shard(), hidden(), c, scattered()));
  }

  // Marks a product as narrow if the recipe's precision is below 16 bits.
  Op in_format(Op op) const {
    op.narrow = is_narrow(recipe.precision) && !wide;
    return op;
  }

  // x [rows, in] -> [rows, out]: forward with bias, input gradient, weight gradient and bias sum.
  Op linear(int64_t rows, int64_t out, int64_t in, bool bias) const {
    return in_format(gemm_op({rows, out, in}, c, c, bias));
  }
  Op linear_input(int64_t rows, int64_t out, int64_t in,
                  Accumulate accumulate = Accumulate::never) const {
    return in_format(gemm_op({rows, in, out}, c, c, false, accumulate));
  }
  // Nothing if the projection is frozen. `bias_rows` count in the bias's gradient: all rows, or for
  // a row-parallel projection this rank's own.
  void linear_weight(Ops& ops, int64_t rows, int64_t out, int64_t in, bool bias,
                     int64_t bias_rows) const {
    if (frozen()) return;
    ops.push_back(in_format(gemm_op({out, in, rows}, c, DType::f32, false, Accumulate::later)));
    if (bias) ops.push_back(column_sum_op(bias_rows, out, c));
  }
  void linear_weight(Ops& ops, int64_t rows, int64_t out, int64_t in, bool bias) const {
    linear_weight(ops, rows, out, in, bias, rows);
  }
  // Operations on a branch before it is added to the residual: its own norm, a multiplier.
  void end_branch(Ops& ops) const {
    if (has_branch_norms()) {
      ops.push_back(copy_op(shard(), hidden(), c, c));
      ops.push_back(rms_norm_forward_op(shard(), 1, hidden(), c));
    }
    scale_branch(ops);
  }
  void branch_input(Ops& ops) const {
    scale_branch(ops);
    if (has_branch_norms()) {
      ops.push_back(rms_norm_backward_op(shard(), 1, hidden(), c, !frozen()));
    }
  }
  void scale_branch(Ops& ops) const {
    if (model.residual_multiplier != 1) ops.push_back(copy_op(shard(), hidden(), c, c));
  }
  bool has_branch_norms() const { return model.norm_placement != NormPlacement::before; }
  void norm_weight(Ops& ops) const {
    if (!frozen() && !profile.fuses_norm_gradients) ops.push_back(norm_backward_weight_op(norm()));
  }
  Op norm_input(bool accumulate, bool d_branch) const {
    const bool sums = !frozen() && profile.fuses_norm_gradients;
    return norm_backward_input_op(norm(), accumulate, d_branch, sums);
  }

  // Everything but adapters is frozen.
  bool frozen() const { return recipe.lora.enabled(); }
  // Whether the backward pass needs weight gradients of `projection`, and so its input.
  bool trains(Projection projection) const {
    return !frozen() || adapter_columns(model, recipe.lora, projection) > 0;
  }
  // Whether ranks of this program shard tables and losses over the vocabulary (vocabulary_ops.h).
  bool divides_vocabulary() const { return mesh.tp > 1 && profile.executable; }
  // Whether routers route a rank's own rows, and the ranks of this program exchange the results.
  bool routes_own_rows() const { return mesh.tp > 1 && profile.executable; }
  // Whether the backward pass of this block ends at the outputs of `projection`.
  bool ends_at(Projection projection) const {
    return lowest && lowest_projection(model, recipe.lora) == projection;
  }

  // A projection of a block with its adapters: x [tokens, in] -> [tokens, out], both of this rank.
  void projection_forward(Ops& ops, Projection projection, int64_t out, int64_t in,
                          bool bias) const;
  void projection_input(Ops& ops, Projection projection, int64_t out, int64_t in) const;
  void projection_weight(Ops& ops, Projection projection, int64_t out, int64_t in, bool bias) const;
};

// The parts of a block; each appends to the caller's lists. recompute: the operations of
// context.again that run again; with context.whole, everything that the backward pass or the next
// part needs.
struct PartOps {
  Ops forward, recompute, backward_input, backward_weight;
};
PartOps grouped_attention_part(const LayerContext& context);
PartOps latent_attention_part(const LayerContext& context);
PartOps mlp_part(const LayerContext& context, int64_t width);  // width: of this tp rank
PartOps experts_part(const LayerContext& context);

}  // namespace tutti::spec
