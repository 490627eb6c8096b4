#include "tutti/spec/schedule/action_operations.h"

#include <algorithm>
#include <string>

#include "tutti/base/check.h"
#include "tutti/base/real.h"
#include "tutti/spec/program/narrow.h"

namespace tutti::spec {
namespace {

// Of one collective over `ways` ranks, on top of what is there already over as many.
void add_bytes(std::vector<Op>& ops, const char* name, int64_t ways, double bytes) {
  if (ways == 1 || bytes == 0) return;
  for (Op& op : ops) {
    if (op.dims[1] != ways) continue;
    op = collective_op(name, Axis::dp, ways, op.bytes + bytes);
    return;
  }
  ops.push_back(collective_op(name, Axis::dp, ways, bytes));
}

}  // namespace

ActionOperations::ActionOperations(const Recipe& recipe, const Profile& profile,
                                   const Program& program, const ParamLayout& layout,
                                   const Coordinates& at, int64_t bucket_elements)
    : recipe_(recipe),
      profile_(profile),
      program_(program),
      layout_(layout),
      at_(at),
      compute_(local_sizes(recipe, profile).compute),
      by_layer_(by_layer(recipe.parallel)),
      apart_(peak_delayed(recipe.parallel, make_schedule(recipe).micro_batches, at.pp) > 0),
      slices_(owned_slices(layout, recipe.parallel, at, bucket_elements)),
      buckets_(weight_buckets(layout, recipe.parallel, bucket_elements)) {
  const Mesh& mesh = recipe.parallel;
  if (by_layer_) zero_layers_ = zero_layers(layout, mesh);
  for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
    const int64_t stage = chunk * mesh.pp + at.pp;
    std::vector<size_t> kinds;
    for (const LayerRun& run : program.stages[static_cast<size_t>(stage)].runs) {
      kinds.insert(kinds.end(), static_cast<size_t>(run.repeats), run.kind);
    }
    Chunk& out = chunks_.emplace_back();
    out.first = stage == 0;
    out.last = stage == mesh.virtual_stages() - 1;
    const int64_t blocks = stage_layers(mesh, recipe.model.layers, stage).count;
    const auto begin = kinds.begin() + (out.first ? 1 : 0);
    out.blocks.assign(begin, begin + blocks);
    out.after.assign(begin + blocks, kinds.end());
  }
}

void ActionOperations::add_pass(const Action& action, size_t kind, Lists& out) const {
  const LayerOps& layer = program_.kinds[kind];
  switch (action.kind) {
    case ActionKind::forward: out.push_back(&layer.forward); break;
    case ActionKind::backward:
      out.push_back(&layer.recompute);
      out.push_back(&layer.backward_input);
      break;
    default:
      if (apart_ && action.part >= 0) out.push_back(&layer.recompute);
      out.push_back(&layer.backward_weight);
  }
}

ActionOperations::Lists ActionOperations::pass(const Action& action) const {
  const Chunk& chunk = chunks_[static_cast<size_t>(action.chunk)];
  const Mesh& mesh = recipe_.parallel;
  Lists out;
  if (action.part == kEmbeddingLayer) {
    const size_t kind =
        program_.stages[static_cast<size_t>(action.chunk * mesh.pp + at_.pp)].runs.front().kind;
    // The dropout of its output goes backward with its weight gradient.
    if (action.kind == ActionKind::weight_gradient) {
      out.push_back(&program_.kinds[kind].backward_input);
    }
    add_pass(action, kind, out);
    return out;
  }
  if (action.part == kHeadLayer) {
    for (const size_t kind : chunk.after) add_pass(action, kind, out);
    return out;
  }
  const LayerRange range =
      stage_layers(mesh, recipe_.model.layers, action.chunk * mesh.pp + at_.pp);
  const int64_t index = action.part - range.first;
  TUTTI_CHECK(index >= 0 && index < range.count, "layer {} in the stage of {} to {}", action.part,
              range.first, range.first + range.count - 1);
  // What comes after the last block of a stage that is not the last belongs to it.
  const bool with_after = !chunk.last && index == range.count - 1;
  if (with_after && action.kind != ActionKind::forward) {
    for (const size_t kind : chunk.after) add_pass(action, kind, out);
  }
  add_pass(action, chunk.blocks[static_cast<size_t>(index)], out);
  if (with_after && action.kind == ActionKind::forward) {
    for (const size_t kind : chunk.after) add_pass(action, kind, out);
  }
  return out;
}

std::vector<Op> ActionOperations::collectives(const Action& action) const {
  const Mesh& mesh = recipe_.parallel;
  const bool gathers = action.kind != ActionKind::reduce;
  const double bytes_each = real(dtype_bytes(gathers ? compute_ : profile_.gradient));
  const bool scatters = mesh.zero >= 1;
  std::vector<Op> ops;
  if (by_layer_ && (!gathers || mesh.zero == 3)) {
    const auto layer = std::find_if(zero_layers_.begin(), zero_layers_.end(),
                                    [&](const ZeroLayer& one) { return one.is(action.part); });
    TUTTI_CHECK(layer != zero_layers_.end(), "layer {} is not of this rank", action.part);
    int64_t shard = 0;
    for (const LayerPart& part : layer->parts) {
      if (!gathers && !part.trainable) continue;
      add_bytes(ops, gathers ? "all_gather" : "reduce_scatter", part.ways,
                real(part.count) * bytes_each);
      shard += part.count / part.ways;
    }
    if (!gathers && action.micro > 0 && shard > 0) {
      ops.push_back(column_sum_op(1, shard, profile_.gradient));
    }
    return ops;
  }
  const Bucket& bucket = buckets_[static_cast<size_t>(action.part)];
  const std::string tied = at_.pp == 0 || at_.pp == mesh.pp - 1
                               ? tied_copy(recipe_, {.pp = mesh.pp - 1})
                               : std::string();
  bool whole = !scatters;  // every rank gets all of the sum
  if (!tied.empty()) {
    const PlacedParam& table = layout_.find(tied);
    whole = whole || (bucket.first < table.element_offset + table.shard.count() &&
                      table.element_offset < bucket.first + bucket.count);
  }
  add_bytes(ops,
            gathers ? "all_gather"
            : whole ? "all_reduce"
                    : "reduce_scatter",
            bucket.ways, real(bucket.count) * bytes_each);
  return ops;
}

void ActionOperations::visit(const Action& action,
                             const std::function<void(const Op&, bool first)>& visit) const {
  const bool first = action.micro == 0;
  const auto visit_all = [&](const std::vector<Op>& ops) {
    for (const Op& op : ops) visit(op, first);
  };
  const StageProgram& stage =
      program_.stages[static_cast<size_t>(action.chunk * recipe_.parallel.pp + at_.pp)];
  const UpdateOps& update = program_.updates[static_cast<size_t>(at_.pp)];
  switch (action.kind) {
    case ActionKind::forward:
    case ActionKind::backward:
    case ActionKind::weight_gradient:
      for (const std::vector<Op>* ops : pass(action)) visit_all(*ops);
      break;
    case ActionKind::send:
    case ActionKind::send_gradient: visit_all(stage.transfer); break;
    case ActionKind::receive:
    case ActionKind::receive_gradient:
      for (Op op : stage.transfer) {
        op.name = "receive";
        visit(op, first);
      }
      break;
    case ActionKind::gather:
    case ActionKind::gather_backward: visit_all(collectives(action)); break;
    case ActionKind::quantize:
      visit_all(weight_quantization(recipe_, profile_, action.part));
      break;
    case ActionKind::reduce:
      switch (action.part) {
        case kTiedTable: visit_all(update.tied_table); break;
        case kTensorCopies: visit_all(update.tensor_copies); break;
        case kRouterLoads: visit_all(update.router_loads); break;
        default: visit_all(collectives(action));
      }
      break;
    case ActionKind::norm: visit_all(update.norm); break;
    case ActionKind::update:
      if (action.part == kSelectionBias) {
        visit_all(update.selection_bias);
      } else {
        visit(adamw_op(slices_[static_cast<size_t>(action.part)].count, compute_,
                       has_masters(recipe_)),
              first);
      }
      break;
    case ActionKind::load:
    case ActionKind::fetch:
    case ActionKind::offload:
    case ActionKind::evaluate:
    case ActionKind::save: break;
  }
}

}  // namespace tutti::spec
