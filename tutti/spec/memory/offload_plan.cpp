#include "tutti/spec/memory/offload_plan.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace tutti::spec {
namespace {

constexpr int64_t kNone = -1;

// Covered layers of the kind, per chunk, in order.
std::vector<std::vector<int64_t>> covered_layers(const Recipe& recipe, int64_t stage, bool routed,
                                                 bool recomputes) {
  std::vector<std::vector<int64_t>> chunks(static_cast<size_t>(recipe.parallel.vpp));
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    const LayerRange range = stage_layers(recipe.parallel, recipe.model.layers,
                                          static_cast<int64_t>(chunk) * recipe.parallel.pp + stage);
    for (int64_t i = 0; i < range.count; ++i) {
      const bool of_kind = is_routed(recipe.model, range.first + i) == routed &&
                           recipe.recompute.covers(i) == recomputes;
      if (of_kind && recipe.offload.covers(i)) chunks[chunk].push_back(i);
    }
  }
  return chunks;
}

// The passes of these layers in a step, without slots or copies.
std::vector<OffloadUse> uses_of(const Recipe& recipe, int64_t stage,
                                const std::vector<std::vector<int64_t>>& chunks) {
  const Mesh& mesh = recipe.parallel;
  const int64_t micro_batches = make_schedule(recipe).micro_batches;
  const bool apart = peak_delayed(mesh, micro_batches, stage) > 0;
  std::vector<OffloadUse> uses;
  for (const Action& pass : pass_order(mesh, micro_batches, stage)) {
    if (pass.kind == ActionKind::weight_gradient && !apart) continue;
    const std::vector<int64_t>& layers = chunks[static_cast<size_t>(pass.chunk)];
    const auto use = [&](int64_t layer) {
      return OffloadUse{
          .pass = pass.kind, .micro = pass.micro, .chunk = pass.chunk, .layer = layer};
    };
    if (pass.kind == ActionKind::forward) {
      std::transform(layers.begin(), layers.end(), std::back_inserter(uses), use);
    } else {
      std::transform(layers.rbegin(), layers.rend(), std::back_inserter(uses), use);
    }
  }
  return uses;
}

// The activations of one layer for one micro-batch.
struct Item {
  int64_t slot = kNone;  // the current one
  int64_t first_use = kNone;
  int64_t last_use = kNone;
  int64_t last_arrival = kNone;
  int64_t evicted_by = kNone;  // the use that last took its slot
  int64_t host = kNone;
};
struct DeviceSlot {
  int64_t item = kNone;
  int64_t used = kNone;  // by its last use
};

class Planner {
 public:
  Planner(OffloadPlan& plan, int64_t chunks, int64_t layers) : plan_(plan) {
    int64_t micro_batches = 0;
    for (const OffloadUse& use : plan.uses) micro_batches = std::max(micro_batches, use.micro + 1);
    items_.resize(static_cast<size_t>(micro_batches * chunks * layers));
    slots_.resize(static_cast<size_t>(plan.device_slots));
    for (const OffloadUse& use : plan.uses) {
      numbers_.push_back((use.micro * chunks + use.chunk) * layers + use.layer);
    }
    for (int64_t use = 0; use < size(); ++use) {
      item_of(use).last_use = use;
      if (item_of(use).first_use == kNone) item_of(use).first_use = use;
    }
  }

  void run() {
    for (int64_t use = 0; use < size(); ++use) assign_slot(use);
    for (int64_t use = 0; use < size(); ++use) assign_host(use);
  }

 private:
  int64_t size() const { return static_cast<int64_t>(plan_.uses.size()); }
  OffloadUse& at(int64_t use) { return plan_.uses[static_cast<size_t>(use)]; }
  int64_t number(int64_t use) const { return numbers_[static_cast<size_t>(use)]; }
  Item& item_of(int64_t use) { return items_[static_cast<size_t>(number(use))]; }

  // Neither `use` nor a later use reads its contents.
  bool is_free(const DeviceSlot& slot, int64_t use) const {
    return slot.item == kNone || items_[static_cast<size_t>(slot.item)].last_use < use;
  }

  size_t choose(int64_t use, bool arrives) const {
    std::optional<size_t> best;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const DeviceSlot& one = slots_[i];
      if (arrives && slots_.size() > 1 && one.used == use - 1) continue;
      if (!best) {
        best = i;
        continue;
      }
      const bool free = is_free(one, use);
      const bool best_free = is_free(slots_[*best], use);
      if (free != best_free ? free : one.used < slots_[*best].used) best = i;
    }
    return *best;
  }

  void assign_slot(int64_t use) {
    OffloadUse& now = at(use);
    Item& item = item_of(use);
    if (item.slot == kNone) {
      now.arrives = item.first_use != use;
      const size_t chosen = choose(use, now.arrives);
      DeviceSlot& taken = slots_[chosen];
      int64_t ready = taken.used;
      if (taken.item != kNone) {
        Item& before = items_[static_cast<size_t>(taken.item)];
        before.slot = kNone;
        before.evicted_by = use;
        // Only activations that stayed since their forward pass can still be on their way to the
        // host.
        now.outgoing = before.last_arrival == kNone && before.last_use > use;
        if (at(taken.used).pass == ActionKind::forward) ++ready;
      }
      if (now.arrives) add_arrival(use, std::max(ready, item.evicted_by));
      if (now.arrives) item.last_arrival = use;
      taken.item = number(use);
      item.slot = static_cast<int64_t>(chosen);
    }
    now.slot = item.slot;
    slots_[static_cast<size_t>(now.slot)].used = use;
  }

  // Copies from the host are made in the order of their uses.
  void add_arrival(int64_t use, int64_t after) {
    if (!plan_.arrivals.empty()) after = std::max(after, plan_.arrivals.back().after);
    plan_.arrivals.push_back({use, after});
    ++plan_.arriving;
  }

  void assign_host(int64_t use) {
    OffloadUse& now = at(use);
    Item& item = item_of(use);
    if (item.last_arrival == kNone) return;  // it stays
    if (item.first_use == use) {
      now.leaves = true;
      ++plan_.leaving;
      if (free_hosts_.empty()) {
        item.host = plan_.host_slots++;
      } else {
        item.host = free_hosts_.back();
        free_hosts_.pop_back();
      }
    }
    if (now.leaves || now.arrives) now.host = item.host;
    // The stream has waited for the copy in: later copies out may overwrite it.
    if (item.last_arrival == use) free_hosts_.push_back(item.host);
  }

  OffloadPlan& plan_;
  std::vector<int64_t> numbers_;  // of the item, by use
  std::vector<Item> items_;
  std::vector<DeviceSlot> slots_;
  std::vector<int64_t> free_hosts_;
};

}  // namespace

OffloadPlan offload_plan(const Recipe& recipe, int64_t stage, bool routed, bool recomputes) {
  OffloadPlan plan;
  if (recipe.offload.activations == 0) return plan;
  const Mesh& mesh = recipe.parallel;
  const std::vector<std::vector<int64_t>> chunks =
      covered_layers(recipe, stage, routed, recomputes);
  std::vector<int64_t> weights;
  int64_t layers = 0;
  for (const std::vector<int64_t>& chunk : chunks) {
    weights.push_back(static_cast<int64_t>(chunk.size()));
    if (!chunk.empty()) layers = std::max(layers, chunk.back() + 1);
  }
  if (layers == 0) return plan;
  const int64_t micro_batches = make_schedule(recipe).micro_batches;
  const bool one_at_a_time = peak_in_flight(mesh, micro_batches, stage) == 1;
  plan.device_slots = std::min(peak_in_flight_weighted(mesh, micro_batches, stage, weights),
                               one_at_a_time ? kOffloadSlots : kOffloadSlotsInFlight);
  plan.uses = uses_of(recipe, stage, chunks);
  Planner(plan, mesh.vpp, layers).run();
  return plan;
}

}  // namespace tutti::spec
