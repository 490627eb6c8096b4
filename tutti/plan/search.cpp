#include "tutti/plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"

namespace tutti::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kWatchEvery = 256;
constexpr size_t kMostTooLarge = 1 << 16;

struct Candidate {
  Layout layout;
  Bound bound;
};

bool later(const Candidate& a, const Candidate& b) { return a.bound.seconds > b.bound.seconds; }

class Search {
 public:
  Search(const spec::Recipe& recipe, const spec::Profile& profile, const catalog::System& system,
         const Constants& constants, int64_t chips, const SearchOptions& options,
         const SearchWatch& watch)
      : recipe_(recipe),
        profile_(profile),
        system_(system),
        constants_(constants),
        options_(options),
        watch_(watch),
        bounds_(recipe, profile, system, constants),
        predictor_(system, constants, simulator_) {
    if (recipe.offload.enabled()) {
      fail(ErrorKind::unsupported,
           "offload: {} with a search, whose bounds do not know it; leave it out, and price the "
           "layout that was found with it (tutti plan predict)",
           spec::offload_text(recipe.offload));
    }
    space_.recipe = &recipe_;
    space_.chips = chips;
    space_.kept = options.kept;
    space_.most_pipeline_zero = pipeline_zero(profile);
    space_.precisions = options.precisions.empty() ? precisions_of(system.chip, recipe.precision)
                                                   : options.precisions;
  }

  SearchResult run() {
    const double begin = monotonic_seconds();
    collect_groups();
    std::sort(groups_.begin(), groups_.end(),
              [](const Candidate& a, const Candidate& b) { return later(b, a); });
    size_t next = 0;
    if (options_.exhaustive) {
      for (; next < groups_.size() && going(); ++next) expand(groups_[next]);
    }
    while (going()) {
      const double group = next < groups_.size() ? groups_[next].bound.seconds : kInfinity;
      const double layout = heap_.empty() ? kInfinity : heap_.top().bound.seconds;
      if (std::min(group, layout) > worst_kept()) break;
      if (std::min(group, layout) == kInfinity) break;
      if (group <= layout) {
        expand(groups_[next++]);
      } else {
        const Candidate candidate = heap_.top();
        heap_.pop();
        play(candidate.layout);
      }
    }
    SearchCounts& counts = result_.counts;
    for (; next < groups_.size(); ++next) {
      const int64_t layouts = layouts_of(space_, groups_[next].layout);
      counts.judged_by_group += layouts;
      counts.judged += layouts;
      counts.bound += layouts;
    }
    counts.bound += static_cast<int64_t>(heap_.size());
    if (result_.best.empty() && counts.complete) find_smallest();
    counts.judge_seconds = monotonic_seconds() - begin - counts.play_seconds;
    return std::move(result_);
  }

 private:
  // Whether to continue; calls the watch from time to time.
  bool going() {
    if (++result_.counts.ticks % kWatchEvery != 0 || !watch_) return result_.counts.complete;
    result_.counts.complete = result_.counts.complete && watch_(result_.counts);
    return result_.counts.complete;
  }

  void collect_groups() {
    SearchCounts& counts = result_.counts;
    const auto too_large = [&](const Layout& group) {
      const int64_t layouts = layouts_of(space_, group);
      counts.judged += layouts;
      counts.judged_by_group += layouts;
      counts.memory += layouts;
    };
    // Micro-batches come in ascending order, and the bytes of groups that differ in nothing else
    // grow with them: after the first that is too large the others need not be priced or stored.
    std::vector<Layout> full;  // the first ones that were too large, for the current mesh
    const Enumerated all = for_each_group(space_, [&](const Layout& group) {
      if (!going()) return;
      if (!full.empty() && full.front().mesh != group.mesh) full.clear();
      for (const Layout& smaller : full) {
        if (smaller.precision == group.precision && smaller.recompute == group.recompute) {
          return too_large(group);
        }
      }
      const Bound bound = bounds_.group(group);
      if (!options_.exhaustive && bound.bytes > system_.chip.memory_bytes) {
        too_large(group);
        keep_too_large({group, bound});
        full.push_back(group);
      } else {
        groups_.push_back({group, bound});
      }
    });
    counts.considered = all.considered;
    counts.indivisible = all.indivisible;
  }

  void expand(const Candidate& group) {
    SearchCounts& counts = result_.counts;
    bounds_.layouts(group.layout, schedules_of(space_, group.layout),
                    zero_stages_of(space_, group.layout), system_.chip.memory_bytes, worst_kept(),
                    [&](const Layout& layout, const Bound& bound) {
                      ++counts.judged;
                      if (bound.bytes > system_.chip.memory_bytes) {
                        ++counts.memory;
                        if (result_.best.empty()) keep_too_large({layout, bound});
                      } else if (bound.seconds > worst_kept()) {
                        ++counts.bound;
                      } else {
                        heap_.push({layout, bound});
                      }
                    });
  }

  // Keeps the smaller half if there are too many; find_smallest starts with the smallest.
  void keep_too_large(const Candidate& candidate) {
    too_large_.push_back(candidate);
    if (too_large_.size() < kMostTooLarge) return;
    const auto middle = too_large_.begin() + kMostTooLarge / 2;
    std::nth_element(
        too_large_.begin(), middle, too_large_.end(),
        [](const Candidate& a, const Candidate& b) { return a.bound.bytes < b.bound.bytes; });
    too_large_.erase(middle, too_large_.end());
  }

  double worst_kept() const {
    return result_.best.size() < options_.keep ? kInfinity : result_.best.back().step.step_seconds;
  }

  void play(const Layout& layout) {
    SearchCounts& counts = result_.counts;
    const double begin = monotonic_seconds();
    apply(layout, recipe_);
    const spec::Profile& profile = layout_profile();
    MemoryPrediction memory = predict_memory(recipe_, profile, system_, constants_);
    if (!memory.fits) {
      ++counts.memory;
      if (result_.best.empty()) keep_too_large({layout, {0, memory.bytes}});
    } else {
      ++counts.played;
      const StepPrediction step = predictor_.step(recipe_, profile);
      std::vector<Found>& best = result_.best;
      if (best.empty()) too_large_.clear();
      const auto at = std::upper_bound(
          best.begin(), best.end(), step.step_seconds,
          [](double seconds, const Found& found) { return seconds < found.step.step_seconds; });
      if (best.size() < options_.keep || at != best.end()) {
        best.insert(at, {layout, step, std::move(memory)});
        if (best.size() > options_.keep) best.pop_back();
      }
    }
    counts.play_seconds += monotonic_seconds() - begin;
  }

  // Nothing fits: the layout that needs least memory, best first by the bounds on bytes.
  void find_smallest() {
    const auto more = [](const Candidate& a, const Candidate& b) {
      return a.bound.bytes > b.bound.bytes;
    };
    std::priority_queue<Candidate, std::vector<Candidate>, decltype(more)> queue(
        more, std::move(too_large_));
    double least = kInfinity;
    while (!queue.empty() && queue.top().bound.bytes < least && going()) {
      const Candidate candidate = queue.top();
      queue.pop();
      bounds_.layouts(candidate.layout, schedules_of(space_, candidate.layout),
                      zero_stages_of(space_, candidate.layout), 0, kInfinity,
                      [&](const Layout& layout, const Bound& bound) {
                        if (bound.bytes >= least) return;
                        apply(layout, recipe_);
                        MemoryPrediction memory =
                            predict_memory(recipe_, layout_profile(), system_, constants_);
                        if (memory.bytes >= least) return;
                        least = memory.bytes;
                        result_.smallest = {{layout, {}, std::move(memory)}};
                      });
    }
    for (Found& found : result_.smallest) {
      apply(found.layout, recipe_);
      found.step = predictor_.step(recipe_, layout_profile());
    }
  }

  // For the current recipe_.
  const spec::Profile& layout_profile() {
    if (!profile_.executable) return profile_;
    own_profile_ = profile_on(profile_, recipe_, system_.chip);
    return own_profile_;
  }

  spec::Recipe recipe_;  // scratch: the current layout is applied to it
  const spec::Profile& profile_;
  spec::Profile own_profile_;  // that of the current layout, if it depends on it
  const catalog::System& system_;
  const Constants& constants_;
  const SearchOptions& options_;
  const SearchWatch& watch_;
  LayoutSpace space_;
  LayoutBounds bounds_;
  PipelineSimulator simulator_;
  Predictor predictor_;
  SearchResult result_;
  std::vector<Candidate> groups_;
  std::vector<Candidate> too_large_;  // only used while nothing fits
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(&later)> heap_{&later};
};

}  // namespace

SearchCounts& SearchCounts::operator+=(const SearchCounts& other) {
  considered += other.considered;
  indivisible += other.indivisible;
  memory += other.memory;
  bound += other.bound;
  played += other.played;
  judged += other.judged;
  judged_by_group += other.judged_by_group;
  judge_seconds += other.judge_seconds;
  play_seconds += other.play_seconds;
  ticks += other.ticks;
  complete = complete && other.complete;
  return *this;
}

double SearchCounts::judged_per_second() const {
  return judge_seconds > 0 ? static_cast<double>(judged) / judge_seconds : 0;
}

double SearchCounts::played_per_second() const {
  return play_seconds > 0 ? static_cast<double>(played) / play_seconds : 0;
}

SearchResult search_layouts(const spec::Recipe& recipe, const spec::Profile& profile,
                            const catalog::System& system, const Constants& constants,
                            int64_t chips, const SearchOptions& options, const SearchWatch& watch) {
  return Search(recipe, profile, system, constants, chips, options, watch).run();
}

std::string split_difference(const StepPrediction& best, const StepPrediction& other) {
  std::vector<std::pair<double, const char*>> parts;
  for (const SplitPart& part : split_parts()) {
    const double change =
        (other.split.*part.seconds - best.split.*part.seconds) / best.step_seconds;
    if (std::abs(change) >= 0.005) parts.emplace_back(change, part.label);
  }
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
  std::string text;
  for (const auto& [change, name] : parts) {
    text += fmt::format("{}{} {:+.1f}%", text.empty() ? "" : ", ", name, 100 * change);
  }
  return text;
}

}  // namespace tutti::plan
