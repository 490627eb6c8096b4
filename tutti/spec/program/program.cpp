#include "tutti/spec/program/program.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/real.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/spec/schedule/step_list.h"

namespace tutti::spec {
namespace {

// Keys of kinds other than blocks; blocks use 0 to 127. Kinds of a teacher are offset by kTeacher.
enum KindKey { kEmbedding = 128, kTail, kHead, kPrediction, kTeacher = 256 };

int key_of(const BlockShape& shape) {
  return (shape.routed ? 1 : 0) + (shape.adds_branch ? 2 : 0) + (shape.sends_gradient ? 4 : 0) +
         (shape.recomputes ? 8 : 0) + (shape.wide ? 16 : 0) + (shape.window > 0 ? 32 : 0) +
         (shape.rotated ? 0 : 64);
}

class ProgramBuilder {
 public:
  ProgramBuilder(const Recipe& recipe, const Profile& profile)
      : recipe_(recipe),
        profile_(profile),
        model_(recipe.model),
        mesh_(recipe.parallel),
        sizes_(local_sizes(recipe, profile)),
        table_(param_table(model_, recipe.lora, profile.vocabulary_multiple * mesh_.tp)),
        layered_(profile.executable && by_layer(mesh_)) {}

  Program build() {
    program_.profile = profile_.name;
    for (int64_t stage = 0; stage < mesh_.virtual_stages(); ++stage) {
      StageProgram out;
      out.runs = runs(stage);
      if (mesh_.pp > 1) out.transfer = {transfer_op(recipe_, profile_)};
      add_weight_collectives(stage, out);
      out.repeats_again =
          profile_.executable &&
          peak_delayed(mesh_, make_schedule(recipe_).micro_batches, stage % mesh_.pp) > 0;
      program_.stages.push_back(std::move(out));
    }
    for (int64_t rank = 0; rank < mesh_.pp; ++rank) program_.updates.push_back(update(rank));
    if (layered_) overwrite_gradients();
    return std::move(program_);
  }

 private:
  // The index of a kind, which is created on first use.
  template <typename Make>
  size_t kind(int key, const Make& make) {
    const auto [found, added] = indices_.try_emplace(key, program_.kinds.size());
    if (added) program_.kinds.push_back(make());
    return found->second;
  }

  size_t block_kind(const BlockShape& shape) {
    return kind(key_of(shape), [&] { return block_ops(recipe_, profile_, shape); });
  }

  int64_t window_at(const ModelConfig& model, int64_t layer) const {
    return window_of(model, layer, recipe_.batch.sequence);
  }

  static void add_run(std::vector<LayerRun>& out, size_t layer) {
    if (!out.empty() && out.back().kind == layer) {
      ++out.back().repeats;
    } else {
      out.push_back({layer, 1});
    }
  }

  // The teacher's forward pass, up to the input of its head.
  void add_teacher(std::vector<LayerRun>& out) {
    const Recipe teacher = teacher_recipe(recipe_);
    const auto add = [&](int key, const auto& make) {
      add_run(out, kind(kTeacher + key, [&] { return as_teacher(make()); }));
    };
    add(kEmbedding, [&] { return embedding_ops(teacher, profile_); });
    for (int64_t i = 0; i < teacher.model.layers; ++i) {
      const BlockShape shape = {
          is_routed(teacher.model, i), i > 0, false, false, false, window_at(teacher.model, i),
          is_rotated(teacher.model, i)};
      add(key_of(shape), [&] { return block_ops(teacher, profile_, shape); });
    }
    add(kHead, [&] { return teacher_head_ops(teacher, profile_); });
  }

  std::vector<LayerRun> runs(int64_t stage) {
    std::vector<LayerRun> out;
    const LayerRange range = stage_layers(mesh_, model_.layers, stage);
    const int64_t dense_end =
        model_.moe.experts > 0 ? model_.moe.first_dense_layers : model_.layers;
    const bool first = stage == 0;
    const bool last = stage == mesh_.virtual_stages() - 1;
    if (first) {
      out.push_back({kind(kEmbedding, [&] { return embedding_ops(recipe_, profile_); }), 1});
    }
    for (int64_t i = 0; i < range.count; ++i) {
      const bool routed = range.first + i >= dense_end;
      const bool wide =
          is_narrow(recipe_.precision) && recipe_.narrow.is_wide(range.first + i, model_.layers);
      const int64_t layer = range.first + i;
      add_run(out, block_kind({routed, i > 0, i > 0 || !first, recipe_.recompute.covers(i), wide,
                               window_at(model_, layer), is_rotated(model_, layer)}));
    }
    if (!last) {
      out.push_back({kind(kTail, [&] { return tail_ops(recipe_, profile_); }), 1});
      return out;
    }
    if (recipe_.distill.enabled()) add_teacher(out);
    out.push_back({kind(kHead, [&] { return head_ops(recipe_, profile_); }), 1});
    if (model_.prediction_layers > 0) {
      out.push_back({kind(kPrediction, [&] { return prediction_ops(recipe_, profile_); }),
                     model_.prediction_layers});
    }
    return out;
  }

  void overwrite_gradients() {
    for (LayerOps& kind : program_.kinds) {
      for (Op* op : gradient_ops(kind)) op->bytes = op->first_bytes;
    }
  }

  // A recipe with one virtual stage per rank, to query the parameters of one virtual stage.
  Recipe with_chunks_as_stages() const {
    Recipe flat = recipe_;
    flat.parallel.pp = mesh_.virtual_stages();
    flat.parallel.vpp = 1;
    return flat;
  }
  LocalElements chunk_elements(int64_t stage, bool trainable_only) const {
    return local_elements(table_, with_chunks_as_stages(), stage, trainable_only);
  }

  void add_layer_collectives(int64_t stage, StageProgram& out) const {
    const ZeroSizes sizes = zero_sizes(table_, with_chunks_as_stages(), stage);
    const int64_t expert_ways = replicas(mesh_, true);
    const auto add = [&](std::vector<Op>& ops, const char* name, int64_t ways, int64_t elements,
                         DType dtype) {
      if (ways == 1 || elements == 0) return;
      ops.push_back(collective_op(name, Axis::dp, ways, real(elements) * real(dtype_bytes(dtype))));
    };
    const auto gather = [&](std::vector<Op>& ops, const ZeroSizes::Gathered& elements) {
      add(ops, "all_gather", replicas(mesh_), elements.shared, sizes_.compute);
      add(ops, "all_gather", expert_ways, elements.expert, sizes_.compute);
    };
    if (mesh_.zero == 3) {
      gather(out.gather, sizes.forward);
      gather(out.gather_backward, sizes.backward);
    } else {
      gather(out.gather, {sizes.shared, sizes.expert});
    }
    add(out.reduce, "reduce_scatter", replicas(mesh_), sizes.shared, profile_.gradient);
    add(out.reduce, "reduce_scatter", expert_ways, sizes.expert, profile_.gradient);
    if (sizes.shard > 0) out.add = {column_sum_op(1, sizes.shard, profile_.gradient)};
  }

  void add_weight_collectives(int64_t stage, StageProgram& out) const {
    if (layered_) return add_layer_collectives(stage, out);
    // Frozen weights are gathered only if they are sharded.
    LocalElements held = chunk_elements(stage, mesh_.zero < 3);
    LocalElements elements = chunk_elements(stage, true);
    if (mesh_.ep == 1) {  // experts are among the rest, and are reduced with it
      for (LocalElements* all : {&held, &elements}) {
        all->shared += std::exchange(all->expert, 0);
      }
    }
    for (const bool expert : {false, true}) {
      const int64_t ranks = replicas(mesh_, expert);
      const int64_t count = expert ? elements.expert : elements.shared;
      const double weight =
          real(expert ? held.expert : held.shared) * real(dtype_bytes(sizes_.compute));
      const double gradient = real(count) * real(dtype_bytes(profile_.gradient));
      if (ranks > 1 && mesh_.zero >= 1 && weight > 0) {
        out.gather.push_back(collective_op("all_gather", Axis::dp, ranks, weight));
      }
      if (ranks == 1 || count == 0) continue;
      // Of a tied table every rank gets the full sum, to which the other stage's is added.
      const double whole =
          expert || mesh_.zero == 0 || !sums_tied_table(stage, mesh_.virtual_stages())
              ? 0
              : real(tied_elements()) * real(dtype_bytes(profile_.gradient));
      out.reduce.push_back(collective_op(mesh_.zero >= 1 ? "reduce_scatter" : "all_reduce",
                                         Axis::dp, ranks, gradient - whole));
      if (whole > 0) out.reduce.push_back(collective_op("all_reduce", Axis::dp, ranks, whole));
    }
    if (mesh_.zero == 3) out.gather_backward = out.gather;
  }

  // Whether this stage, or rank along pp, sums the gradient of a tied table with another one.
  bool sums_tied_table(int64_t at, int64_t of) const {
    return model_.tied_embeddings && !recipe_.lora.enabled() && mesh_.pp > 1 &&
           (at == 0 || at == of - 1);
  }
  int64_t tied_elements() const { return table_.groups.front().params.front().local_count(mesh_); }

  UpdateOps update(int64_t rank) const {
    const LocalElements local = local_elements(table_, recipe_, rank, true);
    int64_t elements = mesh_.zero >= 1 ? shard_elements(local, mesh_) : local.total();
    if (layered_) elements = zero_sizes(table_, recipe_, rank).shard;
    UpdateOps ops;
    if (sums_tied_table(rank, mesh_.pp)) {
      // Both copies of the token table get the sum of their gradients.
      int64_t table = tied_elements();
      if (layered_) {  // each rank its slices
        const int64_t unit = kParamAlignment * replicas(mesh_);
        table = (table + unit - 1) / unit * kParamAlignment;
      }
      ops.tied_table.push_back(collective_op("all_reduce", Axis::pp, 2,
                                             real(table) * real(dtype_bytes(profile_.gradient))));
    }
    add_common_sums(rank, ops.tensor_copies);
    // The copy does not count in the gradient norm.
    const std::string copy = tied_copy(recipe_, {.pp = rank});
    const int64_t copied =
        copy.empty() ? 0 : table_.groups.front().params.front().local_count(mesh_);
    ops.norm.push_back(squared_norm_op(mesh_.zero >= 1 ? elements : elements - copied));
    if (mesh_.world() > 1) {
      // Four words: loss, divergence from a teacher, targets and squared norm. Each rank sums those
      // of all ranks.
      const int64_t world = mesh_.world();
      ops.norm.push_back(profile_.executable
                             ? collective_op("all_gather", Axis::dp, world, real(32 * world))
                             : collective_op("all_reduce", Axis::dp, world, 32));
    }
    ops.update.push_back(adamw_op(elements, sizes_.compute, has_masters(recipe_)));
    const NarrowFormat* format = block_scaled_format(recipe_.precision);
    if (format != nullptr && !profile_.executable) {
      ops.update.push_back(quantize_op(
          *format, local_elements(narrow_parameters(table_), recipe_, rank).total(), 1));
    }
    add_weight_quantization(rank, ops.quantize);
    // Loads and sums of its routers (the memory map's arena "routing").
    const int64_t routed = routed_layers(rank);
    const double counters = real(routed * (model_.moe.experts + 3) * 4);
    if (routed > 0 && mesh_.tp > 1 && profile_.executable) {
      ops.router_loads.push_back(collective_op("all_reduce", Axis::tp, mesh_.tp, counters));
    }
    if (routed > 0 && replicas(mesh_) > 1) {
      ops.router_loads.push_back(collective_op("all_reduce", Axis::dp, replicas(mesh_), counters));
    }
    if (model_.moe.router_bias && !recipe_.lora.enabled()) {
      ops.selection_bias.assign(
          static_cast<size_t>(routed),
          update_selection_bias_op(model_.moe.experts, sizes_.compute != DType::f32));
    }
    return ops;
  }

  // Sums the gradients of parameters that several tensor parallel ranks hold: in this rank's ZeRO
  // shard, which contains a larger or smaller part of them.
  void add_common_sums(int64_t rank, std::vector<Op>& ops) const {
    if (mesh_.tp == 1 || !sizes_.sequence_parallel || !profile_.executable) return;
    const double share = mesh_.zero >= 1 ? 1 / real(replicas(mesh_)) : 1;
    const auto add = [&](int64_t ways) {
      const int64_t elements = common_elements(table_, recipe_, rank, ways);
      if (elements == 0) return;
      ops.push_back(collective_op("all_reduce", Axis::tp, ways,
                                  share * real(elements) * real(dtype_bytes(profile_.gradient))));
    };
    add(mesh_.tp);
    const int64_t copies = tensor_copies(model_.kv_heads, mesh_);
    if (copies > 1 && copies < mesh_.tp) add(copies);
  }

  void add_weight_quantization(int64_t rank, std::vector<Op>& ops) const {
    for (int64_t chunk = 0; chunk < mesh_.vpp; ++chunk) {
      for (const int64_t layer : forward_layers(mesh_, model_.layers, chunk * mesh_.pp + rank)) {
        const std::vector<Op> own = weight_quantization(recipe_, profile_, layer);
        ops.insert(ops.end(), own.begin(), own.end());
      }
    }
  }

  // Layers with experts on a pipeline rank.
  int64_t routed_layers(int64_t rank) const {
    if (model_.moe.experts == 0) return 0;
    int64_t count = 0;
    for (int64_t chunk = 0; chunk < mesh_.vpp; ++chunk) {
      const LayerRange range = stage_layers(mesh_, model_.layers, chunk * mesh_.pp + rank);
      const int64_t dense = model_.moe.first_dense_layers - range.first;
      count += range.count - std::clamp<int64_t>(dense, 0, range.count);
    }
    return count;
  }

  const Recipe& recipe_;
  const Profile& profile_;
  const ModelConfig& model_;
  const Mesh& mesh_;
  LocalSizes sizes_;
  ParamTable table_;
  bool layered_;
  Program program_;
  std::map<int, size_t> indices_;
};

}  // namespace

const LayerOps& Program::kind(const std::string& name) const {
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [&](const LayerOps& layer) { return layer.kind == name; });
  TUTTI_CHECK(found != kinds.end(), "the program has no layer kind '{}'", name);
  return *found;
}

Program make_program(const Recipe& recipe, const Profile& profile) {
  return ProgramBuilder(recipe, profile).build();
}

Op transfer_op(const Recipe& recipe, const Profile& profile) {
  const LocalSizes sizes = local_sizes(recipe, profile);
  const DType residual = profile.residual == DType::f32 ? DType::f32 : sizes.compute;
  return collective_op("send", Axis::pp, 2,
                       real(sizes.tokens) / real(sizes.tp) * real(recipe.model.hidden) *
                           real(dtype_bytes(residual)));
}

}  // namespace tutti::spec
