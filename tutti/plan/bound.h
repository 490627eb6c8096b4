// What a layout takes at least: seconds of a step and bytes of a rank, without playing its schedule
// and without a memory map of its own. Judging one costs well under a microsecond's worth of sums
// over its stages, because everything else is priced once for all layouts that share it:
//
//   layers   forward, backward and weight-gradient seconds and bytes of a layer of every kind, per
//            (tp, cp, ep, micro-batch, recomputation, precision): price_kinds, memory_map
//   ranks    weight and gradient traffic, optimizer, and bytes that do not depend on the batch, per
//            (mesh, virtual stages, precision, ZeRO stage): price_program, memory_map
//
// Seconds of a layout: its passes are summed from the layers as price_program sums them, the
// pipeline is pipeline_lower_bound, and exposed traffic, optimizer and host follow by the formulas
// of predict.cpp; all of them grow with the pipeline's time, so the sum is a lower bound of
// Predictor::step. Seconds of a group: the work of all layers over the pipeline ranks (the busiest
// rank has at least the mean). Seconds of a schedule, before anything of its ranks is looked at: to
// that, half of the way there and back through the stages before a rank, which is the mean over the
// ranks of what pipeline_lower_bound says of each.
//
// Bytes of a layout: memory_map's slots times layers in flight, where chunks of different sizes
// count as the smallest of them; of a group: its share of the parameters' arenas, and one layer at
// work. Never more than predict_memory says.
//
// Tutti's own program on an accelerator depends on the chip's memory (spec::tutti_profile_on), so
// on the whole layout. Its layers are priced as if weights were quantized once and all logits
// handled at once, apart for zero-bubble schedules, whose weight gradients run apart; its bytes are
// counted without those of the weights' codes and with the fewest logits. Layers whose gradients
// ZeRO 2 and 3 overwrite move the fewest bytes of any stage.
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
  // `recipe` is resolved; its own layout does not matter. All references outlive the object.
  LayoutBounds(const spec::Recipe& recipe, const spec::Profile& profile,
               const catalog::System& system, const Constants& constants);
  ~LayoutBounds();
  LayoutBounds(const LayoutBounds&) = delete;
  LayoutBounds& operator=(const LayoutBounds&) = delete;

  // Of every layout of the group, whatever its schedule and ZeRO stage.
  Bound group(const Layout& group);

  // Calls `visit` with every layout of the group with one of these schedules and ZeRO stages. Those
  // that need more than `most_bytes` are not priced: 0 seconds. Of schedules that take more than
  // `most_seconds` by what their bubble is at least, nothing else is looked at: 0 bytes.
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

  // `early`: of a zero-bubble schedule, where that makes a difference.
  const Layers& layers(const Layout& group, bool early);
  Ranks& ranks(const Layout& layout);  // with the bytes of its ZeRO stage
  void price(const Layout& layout, Ranks& ranks);
  void apply_without_batch(const Layout& layout);  // nor recomputation and schedule
  // Of recipe_ as it stands: the one that takes least time of layers, or least bytes.
  spec::Profile least_time_profile(bool early);
  const spec::Profile& least_bytes_profile();
  double parameter_bytes(const Layout& group);
  double transfer_seconds(const Layout& group);
  double static_bytes(int64_t stage);  // of recipe_ as it stands
  double schedule_seconds(const Layout& layout, const Layers& layers) const;
  double layout_seconds(const Layout& layout, const Ranks& ranks);
  double layout_bytes(const Layout& layout, const Layers& layers, const Ranks& ranks) const;

  spec::Recipe recipe_;  // scratch: the layout at hand is applied to it
  const spec::Profile& profile_;
  const catalog::System& system_;
  const Constants& constants_;
  int64_t dense_layers_;
  bool on_device_;          // the profile is Tutti's own on an accelerator
  spec::Profile smallest_;  // then what least_bytes_profile says
  std::unordered_map<Key, std::unique_ptr<Layers>, KeyHash> layers_;
  std::unordered_map<Key, std::unique_ptr<Ranks>, KeyHash> ranks_;
  std::unordered_map<Key, double, KeyHash> parameter_bytes_;
  std::vector<PassSeconds> passes_;    // of the layout at hand, without weight traffic
  std::vector<PassSeconds> adjusted_;  // with it
};

}  // namespace tutti::plan
