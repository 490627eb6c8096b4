#include "tutti/spec/schedule/step_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "tutti/spec/memory/offload_plan.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/program/narrow.h"

namespace tutti::spec {
namespace {

bool trains(const ParamLayout& layout, std::string_view name) {
  return std::any_of(layout.params.begin(), layout.params.end(), [&](const PlacedParam& placed) {
    return placed.name == name && placed.param.trainable;
  });
}

bool has_tensor_copies(const ParamLayout& layout, const Mesh& mesh) {
  if (mesh.tp == 1) return false;
  bool found = false;
  for (const PlacedParam& placed : layout.params) {
    if (!placed.param.trainable) break;
    visit_runs(placed.param, placed.shard,
               [&](const ShardRun& run) { found = found || run.copies > 1; });
  }
  return found;
}

class ListBuilder {
 public:
  ListBuilder(const Recipe& recipe, const Profile& profile, const ParamLayout& layout,
              const Coordinates& at, int64_t bucket_elements)
      : recipe_(recipe),
        profile_(profile),
        mesh_(recipe.parallel),
        layout_(layout),
        at_(at),
        by_layer_(by_layer(mesh_)),
        micro_batches_(make_schedule(recipe).micro_batches),
        apart_(peak_delayed(mesh_, micro_batches_, at.pp) > 0),
        trains_embedding_(trains(layout, "embedding.token.weight")),
        slices_(owned_slices(layout, mesh_, at, bucket_elements)),
        buckets_(weight_buckets(layout, mesh_, bucket_elements)) {
    if (by_layer_) zero_layers_ = zero_layers(layout, mesh_);
    for (int64_t chunk = 0; chunk < mesh_.vpp; ++chunk) {
      layers_.push_back(forward_layers(mesh_, recipe.model.layers, chunk * mesh_.pp + at.pp));
    }
    bool routed = false;
    for (const auto& chunk : layers_) {
      routed = routed || std::any_of(chunk.begin(), chunk.end(), [&](int64_t layer) {
                 return layer >= 0 && is_routed(recipe.model, layer);
               });
    }
    routes_ = recipe.model.moe.experts > 0 && routed;
    // What is complete after a block, of either zone: parameters lie in the order in which their
    // gradients complete.
    complete_.resize(static_cast<size_t>(recipe.model.layers));
    for (const PlacedParam& placed : layout.params) {
      const int64_t layer = layer_number(placed.name);
      if (layer < 0 || !placed.param.trainable) continue;
      Complete& until = complete_[static_cast<size_t>(layer)];
      int64_t& end = placed.element_offset < layout.expert_offset ? until.shared : until.expert;
      end = std::max(end, placed.element_offset + placed.shard.count());
    }
    reduced_.assign(buckets_.size(), false);
  }

  std::vector<Action> step() {
    for (const bool routed : {false, true}) {
      for (const bool recomputes : {false, true}) {
        offloads_.push_back({offload_plan(recipe_, at_.pp, routed, recomputes)});
      }
    }
    // Selection biases move before the update, in the masters.
    if (recipe_.offload.optimizer && !moves_biases()) {
      add(ActionKind::fetch, kOptimizerState);
    }
    for (const Action& pass : pass_order(mesh_, micro_batches_, at_.pp)) {
      switch (pass.kind) {
        case ActionKind::forward: add_forward(pass); break;
        case ActionKind::backward: add_backward(pass); break;
        default: add_weight_gradient(pass); break;
      }
    }
    add_sums();
    add(ActionKind::norm);
    add_updates();
    return with_layer_gathers();
  }

  std::vector<Action> evaluation() {
    for (int64_t chunk = 0; chunk < mesh_.vpp; ++chunk) {
      add_forward({.kind = ActionKind::forward, .chunk = chunk});
    }
    return with_layer_gathers();
  }

 private:
  struct Complete {
    int64_t shared = 0;
    int64_t expert = 0;
  };

  void add(ActionKind kind, int64_t part = kWholePart) { actions_.push_back({kind, 0, 0, part}); }
  void add(ActionKind kind, const Action& pass, int64_t part = kWholePart) {
    actions_.push_back({kind, pass.micro, pass.chunk, part});
  }
  const std::vector<int64_t>& layers_of(const Action& pass) const {
    return layers_[static_cast<size_t>(pass.chunk)];
  }
  bool is_first(const Action& pass) const { return at_.pp == 0 && pass.chunk == 0; }
  bool is_last(const Action& pass) const {
    return at_.pp == mesh_.pp - 1 && pass.chunk == mesh_.vpp - 1;
  }
  const ZeroLayer* zero_layer(int64_t layer) const {
    const auto found = std::find_if(zero_layers_.begin(), zero_layers_.end(),
                                    [&](const ZeroLayer& one) { return one.is(layer); });
    return found == zero_layers_.end() ? nullptr : &*found;
  }

  void add_forward(const Action& pass) {
    if (pass.chunk == 0) add(ActionKind::load, pass);
    if (!is_first(pass)) add(ActionKind::receive, pass);
    for (const int64_t layer : layers_of(pass)) {
      // The embedding writes into the memory of the first block.
      const bool embeds = layer == kEmbeddingLayer;
      const bool embedded = is_first(pass) && layer == layers_of(pass)[1];
      if (!embedded) begin_use(embeds ? layers_of(pass)[1] : layer);
      const bool quantizes = !weight_quantization(recipe_, profile_, layer).empty();
      if (quantizes && pass.micro == 0) add(ActionKind::quantize, pass, layer);
      add(ActionKind::forward, pass, layer);
      if (!embeds) end_use(pass, layer);
    }
    if (!is_last(pass)) add(ActionKind::send, pass);
  }

  void add_backward(const Action& pass) {
    const bool first = is_first(pass);
    if (!is_last(pass)) add(ActionKind::receive_gradient, pass);
    const std::vector<int64_t>& layers = layers_of(pass);
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      if (*layer == kEmbeddingLayer) {
        if (trains_embedding_) add_weights_of(pass, *layer);
        continue;
      }
      begin_use(*layer);
      add(ActionKind::backward, pass, *layer);
      // Where gradients are whole one layer at a time, the head's must leave before the next loss.
      if (!apart_ || (*layer == kHeadLayer && by_layer_)) add_weights_of(pass, *layer);
      end_use(pass, *layer);
    }
    if (!first && mesh_.pipeline == Pipeline::zero_bubble) add(ActionKind::send_gradient, pass);
  }

  void add_weight_gradient(const Action& pass) {
    const std::vector<int64_t>& layers = layers_of(pass);
    for (auto layer = layers.rbegin(); apart_ && layer != layers.rend(); ++layer) {
      if (*layer == kHeadLayer && by_layer_) continue;
      if (*layer == kEmbeddingLayer) continue;
      begin_use(*layer);
      add_weights_of(pass, *layer);
      end_use(pass, *layer);
    }
    if (!is_first(pass) && mesh_.pipeline != Pipeline::zero_bubble) {
      add(ActionKind::send_gradient, pass);
    }
  }

  void add_weights_of(const Action& pass, int64_t layer) {
    add(ActionKind::weight_gradient, pass, layer);
    if (by_layer_) {
      // Where head and embedding share a table, they are done with the embedding.
      const ZeroLayer* whole = zero_layer(layer);
      const bool shared = layer == kHeadLayer && whole->joined && is_first(pass);
      if (whole->gradients > 0 && !shared) {
        add(ActionKind::reduce, pass, layer);
      }
    } else if (layer >= 0 && pass.micro == micro_batches_ - 1) {
      const Complete& until = complete_[static_cast<size_t>(layer)];
      add_buckets(until.shared, until.expert);
    }
  }

  // The layers of one kind of which what they keep is offloaded, as far as the list has come.
  struct Offloads {
    OffloadPlan plan;
    size_t next_use = 0;
    size_t next_arrival = 0;
  };
  Offloads* offloads_of(int64_t layer) {
    if (layer < 0) return nullptr;
    const int64_t index = layer - first_block(layer);
    if (!recipe_.offload.covers(index)) return nullptr;
    const size_t kind =
        (is_routed(recipe_.model, layer) ? 2 : 0) + (recipe_.recompute.covers(index) ? 1 : 0);
    return kind < offloads_.size() ? &offloads_[kind] : nullptr;
  }
  // Of the chunk that has the block.
  int64_t first_block(int64_t layer) const {
    for (int64_t chunk = 0; chunk < mesh_.vpp; ++chunk) {
      const LayerRange range = stage_layers(mesh_, recipe_.model.layers, chunk * mesh_.pp + at_.pp);
      if (layer >= range.first && layer < range.first + range.count) return range.first;
    }
    return layer;
  }
  void fetch(const OffloadUse& use) {
    const LayerRange range =
        stage_layers(mesh_, recipe_.model.layers, use.chunk * mesh_.pp + at_.pp);
    actions_.push_back({ActionKind::fetch, use.micro, use.chunk, range.first + use.layer});
  }
  // Around a pass over a layer: what arrives right before it; what leaves after it, and what then
  // has a slot to arrive in.
  void begin_use(int64_t layer) {
    Offloads* of = offloads_of(layer);
    if (of == nullptr) return;
    const auto number = static_cast<int64_t>(of->next_use);
    const std::vector<OffloadArrival>& arrivals = of->plan.arrivals;
    for (; of->next_arrival < arrivals.size() && arrivals[of->next_arrival].use <= number;
         ++of->next_arrival) {
      fetch(of->plan.uses[static_cast<size_t>(arrivals[of->next_arrival].use)]);
    }
  }
  void end_use(const Action& pass, int64_t layer) {
    Offloads* of = offloads_of(layer);
    if (of == nullptr) return;
    if (of->plan.uses[of->next_use].leaves) add(ActionKind::offload, pass, layer);
    const auto number = static_cast<int64_t>(of->next_use++);
    const std::vector<OffloadArrival>& arrivals = of->plan.arrivals;
    for (; of->next_arrival < arrivals.size() && arrivals[of->next_arrival].after <= number;
         ++of->next_arrival) {
      fetch(of->plan.uses[static_cast<size_t>(arrivals[of->next_arrival].use)]);
    }
  }

  // Those that end there, and are not reduced yet.
  void add_buckets(int64_t until_shared, int64_t until_expert) {
    for (size_t i = 0; i < buckets_.size(); ++i) {
      const Bucket& bucket = buckets_[i];
      const int64_t until = bucket.expert ? until_expert : until_shared;
      if (reduced_[i] || bucket.first + bucket.count > until) continue;
      reduced_[i] = true;
      if (replicas(mesh_, bucket.expert) > 1) {
        add(ActionKind::reduce, static_cast<int64_t>(i));
      }
    }
  }

  void add_sums() {
    if (!by_layer_) add_buckets(layout_.trainable_elements, layout_.trainable_elements);
    const bool has_end = at_.pp == 0 || at_.pp == mesh_.pp - 1;
    if (has_end && !tied_copy(recipe_, {.pp = mesh_.pp - 1}).empty()) {
      add(ActionKind::reduce, kTiedTable);
    }
    if (has_tensor_copies(layout_, mesh_)) add(ActionKind::reduce, kTensorCopies);
    if (routes_ && (mesh_.tp > 1 || replicas(mesh_) > 1)) add(ActionKind::reduce, kRouterLoads);
  }

  bool moves_biases() const {
    return routes_ && recipe_.model.moe.router_bias && !recipe_.lora.enabled();
  }

  void add_updates() {
    if (moves_biases()) add(ActionKind::update, kSelectionBias);
    const bool gathers = mesh_.zero >= 1 && !(by_layer_ && mesh_.zero == 3);
    for (size_t i = slices_.size(); i-- > 0;) {
      add(ActionKind::update, static_cast<int64_t>(i));
      if (!gathers) continue;
      // The first layers are needed first, and lie last.
      for (size_t b = buckets_.size(); b-- > 0;) {
        const Bucket& bucket = buckets_[b];
        if (replicas(mesh_, bucket.expert) == 1) continue;
        const int64_t mine =
            bucket.first + replica_rank(mesh_, at_, bucket.expert) * bucket.slice();
        if (mine < slices_[i].first || mine >= slices_[i].first + slices_[i].count) continue;
        add(ActionKind::gather, static_cast<int64_t>(b));
      }
    }
  }

  // ZeRO 3: each layer is gathered for a pass over it while the one before it computes, but into
  // the same buffer only then.
  std::vector<Action> with_layer_gathers() {
    if (!by_layer_ || mesh_.zero != 3) return std::move(actions_);
    std::vector<size_t> uses;
    for (size_t i = 0; i < actions_.size(); ++i) {
      const Action& action = actions_[i];
      const bool block = action.part >= 0;
      const bool uses_weights =
          action.kind == ActionKind::forward || (action.kind == ActionKind::backward && block);
      if (!uses_weights) continue;
      const ZeroLayer* layer = zero_layer(action.part);
      if (layer == nullptr || layer->gathered == 0) continue;
      // A head that shares its table with the rank's embedding was gathered with it.
      if (action.part == kHeadLayer && layer->joined && is_first(action)) continue;
      uses.push_back(i);
    }
    std::vector<Action> out;
    out.reserve(actions_.size() + uses.size());
    const auto gather = [&](size_t use) {
      Action action = actions_[uses[use]];
      action.kind =
          action.kind == ActionKind::forward ? ActionKind::gather : ActionKind::gather_backward;
      out.push_back(action);
    };
    size_t next = 0;     // of uses: the next one
    size_t started = 0;  // of uses, how many are gathered
    for (size_t i = 0; i < actions_.size(); ++i) {
      if (next < uses.size() && uses[next] == i) {
        if (started == next) gather(started++);
        const ZeroLayer* here = zero_layer(actions_[i].part);
        if (++next < uses.size()) {
          const ZeroLayer* then = zero_layer(actions_[uses[next]].part);
          const bool same_buffer =
              std::string_view(then->slot) == here->slot && then->repeat == here->repeat;
          if (!same_buffer) gather(started++);
        }
      }
      out.push_back(actions_[i]);
    }
    return out;
  }

  const Recipe& recipe_;
  const Profile& profile_;
  const Mesh& mesh_;
  const ParamLayout& layout_;
  Coordinates at_;
  bool by_layer_;
  int64_t micro_batches_;
  bool apart_;  // weight gradients
  bool trains_embedding_;
  bool routes_ = false;
  std::vector<ShardSlice> slices_;
  std::vector<Bucket> buckets_;
  std::vector<ZeroLayer> zero_layers_;        // where gradients are whole one layer at a time
  std::vector<std::vector<int64_t>> layers_;  // per chunk
  std::vector<Complete> complete_;            // per block
  std::vector<bool> reduced_;                 // per bucket
  std::vector<Offloads> offloads_;            // per kind of block; none in an evaluation
  std::vector<Action> actions_;
};

}  // namespace

std::vector<int64_t> forward_layers(const Mesh& mesh, int64_t layers, int64_t stage) {
  const LayerRange range = stage_layers(mesh, layers, stage);
  std::vector<int64_t> out;
  if (stage == 0) out.push_back(kEmbeddingLayer);
  for (int64_t i = 0; i < range.count; ++i) out.push_back(range.first + i);
  if (stage == mesh.virtual_stages() - 1) out.push_back(kHeadLayer);
  return out;
}

std::string part_text(const Action& action, const Mesh& mesh) {
  switch (action.part) {
    case kWholePart: return "";
    case kTiedTable: return "tied table";
    case kTensorCopies: return "tensor parallel copies";
    case kRouterLoads: return "router loads";
    case kSelectionBias: return "selection biases";
    case kOptimizerState: return "optimizer state";
    case kEmbeddingLayer: return "embedding";
    case kHeadLayer: return "head";
    default: break;
  }
  const bool layers = by_layer(mesh);
  const char* what = "layer";
  if (action.kind == ActionKind::update) what = "slice";
  if (action.kind == ActionKind::reduce && !layers) what = "bucket";
  if (action.kind == ActionKind::gather && !(layers && mesh.zero == 3)) what = "bucket";
  return fmt::format("{} {}", what, action.part);
}

std::vector<Action> step_list(const Recipe& recipe, const Profile& profile,
                              const ParamLayout& layout, const Coordinates& at,
                              int64_t bucket_elements) {
  return ListBuilder(recipe, profile, layout, at, bucket_elements).step();
}

std::vector<Action> evaluation_list(const Recipe& recipe, const Profile& profile,
                                    const ParamLayout& layout, const Coordinates& at) {
  return ListBuilder(recipe, profile, layout, at, kBucketElements).evaluation();
}

std::vector<Action> actions_after(const Schedule& schedule, int64_t step) {
  const auto due = [step](int64_t every) { return every > 0 && step % every == 0; };
  std::vector<Action> out;
  if (due(schedule.evaluate_every_steps) &&
      step / schedule.evaluate_every_steps > schedule.evaluate_skip_first) {
    out.push_back({.kind = ActionKind::evaluate});
  }
  if (due(schedule.save_every_steps)) out.push_back({.kind = ActionKind::save});
  return out;
}

}  // namespace tutti::spec
