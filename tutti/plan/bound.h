// Lower bounds of a layout: seconds of a step and bytes of a rank, without simulating its schedule
// or building its memory map. Evaluating one layout costs well under a microsecond of sums over its
// stages, because everything else is priced once for all layouts that share it:
//
//   layers   forward, backward and weight-gradient seconds and bytes of a layer of every kind, per
//            (tp, cp, ep, micro-batch, recomputation, precision): price_kinds, memory_map
//   ranks    weight and gradient traffic, optimizer, and bytes that do not depend on the batch, per
//            (mesh, virtual stages, precision, ZeRO stage): price_program, memory_map
//
// Seconds of a layout: its passes are summed over the layers as in price_program, the pipeline is
// pipeline_lower_bound, and exposed traffic, optimizer and host follow from the formulas of
// predict.cpp; all of them grow with the pipeline's time, so the sum is a lower bound of
// Predictor::step. Seconds of a group: the work of all layers over the pipeline ranks (the busiest
// rank has at least the mean). Seconds of a schedule, before its ranks are considered: in addition
// half of the time forward and back through the stages before a rank, which is the mean over the
// ranks of pipeline_lower_bound.
//
// Bytes of a layout: the slots of memory_map times in-flight layers, where chunks of different
// sizes count as the smallest of them; of a group: its share of the parameters' arenas, and one
// active layer. Never more than predict_memory.
//
// Tutti's own program on an accelerator depends on the chip's memory (spec::tutti_profile_on), so
// on the whole layout. Its layers are priced as if weights were quantized once and all logits
// processed at once, separately for zero-bubble schedules, whose weight gradients run separately;
// its bytes exclude the weights' codes and count the fewest logits. For layers whose gradients ZeRO
// 2 and 3 overwrite the fewest bytes of any stage count.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tutti/plan/layouts.h"
#include "tutti/plan/predict.h"

namespace tutti::plan {

struct Bound {
  double seconds = 0;
  double bytes = 0;  // with the allocator's reserve
};

// Not thread-safe: it fills its caches.
class LayoutBounds {
 public:
  // `recipe` is resolved; its own layout is ignored. All references must outlive the object.
  LayoutBounds(const spec::Recipe& recipe, const spec::Profile& profile,
               const catalog::System& system, const Constants& constants);
  ~LayoutBounds();
  LayoutBounds(const LayoutBounds&) = delete;
  LayoutBounds& operator=(const LayoutBounds&) = delete;

  // Bounds of every layout of the group, whatever its schedule and ZeRO stage.
  Bound group(const Layout& group);

  // Calls `visit` with every layout of the group with one of these schedules and ZeRO stages.
  // Layouts that need more than `most_bytes` are not priced: 0 seconds. For schedules whose bubble
  // alone bounds them above `most_seconds`, nothing else is computed: 0 bytes.
  void layouts(const Layout& group, const std::vector<ScheduleChoice>& schedules,
               const std::vector<int64_t>& zero_stages, double most_bytes, double most_seconds,
               const std::function<void(const Layout&, const Bound&)>& visit);

 private:
  struct Layers;
  struct Ranks;
  using Key = std::array<int64_t, 8>;
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };

  // `early`: for a zero-bubble schedule, if that makes a difference.
  const Layers& layers(const Layout& group, bool early);
  Ranks& ranks(const Layout& layout);  // with the bytes of its ZeRO stage
  void price(const Layout& layout, Ranks& ranks);
  void apply_without_batch(const Layout& layout);  // also independent of recomputation and schedule
  // For the current recipe_: the profile whose layers take least time, or least bytes.
  spec::Profile least_time_profile(bool early);
  const spec::Profile& least_bytes_profile();
  double parameter_bytes(const Layout& group);
  double transfer_seconds(const Layout& group);
  double static_bytes(int64_t stage);  // for the current recipe_
  double schedule_seconds(const Layout& layout, const Layers& layers) const;
  double layout_seconds(const Layout& layout, const Ranks& ranks);
  double layout_bytes(const Layout& layout, const Layers& layers, const Ranks& ranks) const;

  spec::Recipe recipe_;  // scratch: the current layout is applied to it
  const spec::Profile& profile_;
  const catalog::System& system_;
  const Constants& constants_;
  int64_t dense_layers_;
  bool on_device_;          // the profile is Tutti's own on an accelerator
  spec::Profile smallest_;  // then the result of least_bytes_profile
  std::unordered_map<Key, std::unique_ptr<Layers>, KeyHash> layers_;
  std::unordered_map<Key, std::unique_ptr<Ranks>, KeyHash> ranks_;
  std::unordered_map<Key, double, KeyHash> parameter_bytes_;
  std::vector<PassSeconds> passes_;    // of the current layout, without weight traffic
  std::vector<PassSeconds> adjusted_;  // with weight traffic
};

}  // namespace tutti::plan
