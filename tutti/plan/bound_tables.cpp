#include "tutti/plan/bound_tables.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/real.h"
#include "tutti/spec/memory/arenas.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/program/layer_ops.h"

namespace tutti::plan {
namespace {

constexpr const char* kKindNames[kKinds] = {
    "embedding",      "tail",  "head",      "prediction",   "block.first",
    "block.received", "block", "moe.first", "moe.received", "moe"};

// Other parts of a block kind's name (".wide", ".window", ".recomputed") are ignored.
size_t kind_index(std::string_view name) {
  size_t best = kKinds;
  for (size_t i = 0; i < kKinds; ++i) {
    const std::string_view prefix = kKindNames[i];
    const bool starts = name.substr(0, prefix.size()) == prefix &&
                        (name.size() == prefix.size() || name[prefix.size()] == '.');
    if (starts && (best == kKinds || prefix.size() > std::string_view(kKindNames[best]).size())) {
      best = i;
    }
  }
  TUTTI_CHECK(best < kKinds, "no layer kind is named {}", name);
  return best;
}

constexpr size_t kMostRanks = 40000;  // entries of the cache before it is cleared

// Of every stage, without what only the last one has.
int64_t workspace(const spec::MemoryMap& map) {
  return map.arena("workspace").slot("step").stride_bytes;
}

}  // namespace

spec::Profile LayoutBounds::least_time_profile(bool early) {
  if (!on_device_) return profile_;
  const spec::Pipeline pipeline = recipe_.parallel.pipeline;
  if (early) recipe_.parallel.pipeline = spec::Pipeline::zero_bubble;
  const bool quantized =
      recipe_.precision == spec::Precision::fp8 && recipe_.model.moe.experts == 0;
  spec::Profile out = spec::tutti_profile_with(recipe_, quantized, 0);
  recipe_.parallel.pipeline = pipeline;
  return out;
}

// If codes of weights are kept, products need less workspace; static_bytes excludes the codes.
const spec::Profile& LayoutBounds::least_bytes_profile() {
  if (!on_device_) return profile_;
  smallest_ = least_time_profile(true);
  smallest_.loss_chunk_rows = spec::kFewestLossRows / 2;
  return smallest_;
}

const LayoutBounds::Layers& LayoutBounds::layers(const Layout& group, bool early) {
  const spec::Mesh& mesh = group.mesh;
  const Key key = {mesh.tp,
                   mesh.cp,
                   mesh.ep,
                   group.micro,
                   static_cast<int64_t>(group.recompute.mode),
                   static_cast<int64_t>(group.precision),
                   mesh.pp == 1 ? 1 : 0,
                   early && on_device_ ? 1 : 0};
  std::unique_ptr<Layers>& entry = layers_[key];
  if (entry) return *entry;
  entry = std::make_unique<Layers>();
  Layers& out = *entry;

  apply(group, recipe_);
  recipe_.parallel.vpp = 1;
  recipe_.parallel.zero = 0;
  recipe_.parallel.pipeline = spec::Pipeline::one_f_one_b;
  const bool recomputes = group.recompute.mode != spec::RecomputeMode::none;
  const spec::ModelConfig& model = recipe_.model;
  const int64_t routed_layers = model.layers - dense_layers_;
  std::vector<spec::LayerOps> kinds;
  std::vector<size_t> indices;
  const spec::Profile profile = least_time_profile(early);
  const auto add = [&](size_t kind, spec::LayerOps ops) {
    if (profile.executable) {
      for (spec::Op* op : spec::gradient_ops(ops)) op->bytes = std::min(op->bytes, op->first_bytes);
    }
    kinds.push_back(std::move(ops));
    indices.push_back(kind);
  };
  add(kEmbedding, spec::embedding_ops(recipe_, profile));
  if (mesh.pp > 1) add(kTail, spec::tail_ops(recipe_, profile));
  add(kHead, spec::head_ops(recipe_, profile));
  if (model.prediction_layers > 0) add(kPrediction, spec::prediction_ops(recipe_, profile));
  for (const bool routed : {false, true}) {
    if ((routed ? routed_layers : dense_layers_) == 0) continue;
    const size_t first = kBlocks + (routed ? 3 : 0);
    const auto shape = [&](bool adds_branch, bool sends_branch) {
      spec::BlockShape block = {routed, adds_branch, sends_branch, recomputes};
      // As short a window, and as little RoPE, as any layer has.
      for (int64_t i = 0; i < model.layers; ++i) {
        block.window = std::max(block.window, spec::window_of(model, i, recipe_.batch.sequence));
        block.rotated = block.rotated && spec::is_rotated(model, i);
      }
      return block;
    };
    add(first, spec::block_ops(recipe_, profile, shape(false, false)));
    add(first + 1, spec::block_ops(recipe_, profile, shape(false, true)));
    add(first + 2, spec::block_ops(recipe_, profile, shape(true, true)));
  }
  const std::vector<StageSeconds> prices = price_kinds(kinds, recipe_, system_, constants_);
  std::array<double, kKinds> total{};
  for (size_t i = 0; i < prices.size(); ++i) {
    const StageSeconds& price = prices[i];
    PassSeconds& pass = out.kind[indices[i]];
    pass.forward = price.forward.total();
    // If only some layers of a stage recompute, none may do so.
    const double again = recipe_.recompute.layers > 0 ? 0 : price.recompute.total();
    pass.backward = again + price.backward_input.total();
    pass.weight_gradient = price.backward_weight.total();
    total[indices[i]] = pass.forward + pass.backward + pass.weight_gradient;
  }
  const auto cheapest = [&](size_t first) {
    return std::min({total[first], total[first + 1], total[first + 2]});
  };
  out.model_seconds =
      total[kEmbedding] + total[kHead] + real(model.prediction_layers) * total[kPrediction] +
      real(dense_layers_) * cheapest(kBlocks) + real(routed_layers) * cheapest(kBlocks + 3);

  // One pipeline rank has every slot; only their sizes count here.
  recipe_.parallel.pp = 1;
  const spec::Profile& smallest = least_bytes_profile();
  const spec::MemoryMap map = spec::memory_map(recipe_, smallest, 0);
  for (const spec::SlotPlan& slot : map.arena("activations").slots) {
    const double bytes = real(slot.stride_bytes);
    const bool routed = slot.name.find(".moe") != std::string::npos;
    if (slot.name == "embedding") {
      out.embedding_bytes = bytes;
    } else if (slot.name == "head") {
      out.last_bytes += bytes * real(slot.repeats);
    } else if (slot.name.substr(0, 9) == "recompute") {
      out.working_bytes[routed] = bytes;
    } else if (slot.name.substr(0, 5) == "block") {
      double& kept = out.block_bytes[routed];
      kept = kept > 0 ? std::min(kept, bytes) : bytes;
    }
  }
  if (map.has("loss")) out.last_bytes += real(map.arena("loss").bytes);
  out.common_bytes = real(map.arena("batch").bytes);
  if (dense_layers_ == 0 || routed_layers == 0) {
    out.common_bytes += real(workspace(map));
  } else {
    // A stage may have layers of one kind only, whose workspace is smaller.
    spec::Recipe sort = recipe_;
    sort.model.moe.first_dense_layers = 0;
    const int64_t routed = workspace(spec::memory_map(sort, smallest, 0));
    sort.model.moe = {};
    sort.parallel.ep = 1;
    const int64_t dense = workspace(spec::memory_map(sort, smallest, 0));
    out.common_bytes += real(std::min(routed, dense));
  }
  return out;
}

double LayoutBounds::static_bytes(int64_t stage) {
  double bytes = 0;
  const spec::MemoryMap map = spec::memory_map(recipe_, least_bytes_profile(), stage);
  for (const spec::ArenaPlan& arena : map.arenas) {
    if (on_device_ && arena.name == "narrow") continue;  // kept if it fits
    if (!spec::arena_kind(arena.name).by_micro_batch) bytes += real(arena.bytes);
  }
  return bytes;
}

LayoutBounds::Ranks& LayoutBounds::ranks(const Layout& layout) {
  const spec::Mesh& mesh = layout.mesh;
  const Key key = {
      mesh.tp, mesh.cp, mesh.ep, mesh.pp, mesh.dp, mesh.vpp, static_cast<int64_t>(layout.precision),
      0};
  if (ranks_.size() > kMostRanks) ranks_.clear();
  std::unique_ptr<Ranks>& entry = ranks_[key];
  const bool fresh = !entry;
  if (fresh) entry = std::make_unique<Ranks>();
  Ranks& out = *entry;
  const auto zero = static_cast<size_t>(mesh.zero);
  if (!fresh && out.memory.front().bytes[zero] > 0) return out;

  apply_without_batch(layout);
  if (fresh) {
    for (const int64_t stage : memory_stages(recipe_)) {
      Ranks::Memory memory;
      memory.stage = stage;
      int64_t least[2] = {recipe_.model.layers, recipe_.model.layers};
      for (int64_t g = stage; g < mesh.virtual_stages(); g += mesh.pp) {
        const spec::LayerRange range = spec::stage_layers(mesh, recipe_.model.layers, g);
        const int64_t dense = std::clamp<int64_t>(dense_layers_ - range.first, 0, range.count);
        least[0] = std::min(least[0], dense);
        least[1] = std::min(least[1], range.count - dense);
        memory.dense = memory.dense || dense > 0;
        memory.routed = memory.routed || range.count > dense;
      }
      memory.least_dense = real(least[0]);
      memory.least_routed = real(least[1]);
      out.memory.push_back(memory);
    }
  }
  for (Ranks::Memory& memory : out.memory) memory.bytes[zero] = static_bytes(memory.stage);
  return out;
}

void LayoutBounds::price(const Layout& layout, Ranks& out) {
  const spec::Mesh& mesh = layout.mesh;
  Ranks::Traffic& traffic = out.traffic[static_cast<size_t>(mesh.zero)];
  if (traffic.priced) return;
  apply_without_batch(layout);
  const spec::Program program = spec::make_program(
      recipe_, on_device_ ? spec::tutti_profile_with(recipe_, false, 0) : profile_);
  const Pricing pricing = price_program(program, recipe_, system_, constants_);
  traffic.priced = true;
  const auto count = static_cast<size_t>(mesh.virtual_stages());
  const auto pp = static_cast<size_t>(mesh.pp);
  for (size_t g = 0; g < count; ++g) {
    const RankSeconds& rank = pricing.ranks[g % pp];
    traffic.chunk_gather.push_back(rank.chunk_gather[g / pp]);
    traffic.chunk_reduce.push_back(rank.chunk_reduce[g / pp]);
  }
  for (const RankSeconds& rank : pricing.ranks) {
    traffic.gather.push_back(rank.gather);
    traffic.reduce.push_back(rank.reduce);
    traffic.update = std::max(traffic.update, rank.update);
    traffic.tied = std::max(traffic.tied, rank.tied);
  }
  if (!out.stages.empty()) return;
  for (const spec::StageProgram& stage : program.stages) {
    std::vector<Ranks::Run>& runs = out.stages.emplace_back();
    for (const spec::LayerRun& run : stage.runs) {
      runs.push_back({kind_index(program.kinds[run.kind].kind), real(run.repeats)});
    }
  }
}

void LayoutBounds::apply_without_batch(const Layout& layout) {
  apply(layout, recipe_);
  recipe_.batch.micro = 1;
  recipe_.recompute = {};
  recipe_.parallel.pipeline = spec::Pipeline::one_f_one_b;
}

double LayoutBounds::parameter_bytes(const Layout& group) {
  const spec::Mesh& mesh = group.mesh;
  const int64_t most = mesh.pp > 1 ? pipeline_zero(profile_) : 3;
  const Key key = {mesh.tp, mesh.cp, mesh.ep, mesh.dp, static_cast<int64_t>(group.precision),
                   most,    0,       0};
  const auto [found, added] = parameter_bytes_.try_emplace(key, 0);
  if (!added) return found->second;
  apply_without_batch(group);
  recipe_.parallel.pp = recipe_.parallel.vpp = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t zero = 0; zero <= most; ++zero) {
    recipe_.parallel.zero = zero;
    least = std::min(least, static_bytes(0));
  }
  found->second = least;
  return least;
}

double LayoutBounds::transfer_seconds(const Layout& group) {
  if (group.mesh.pp == 1) return 0;
  apply(group, recipe_);
  return price_collectives({spec::transfer_op(recipe_, profile_)}, recipe_, system_, constants_);
}

}  // namespace tutti::plan
