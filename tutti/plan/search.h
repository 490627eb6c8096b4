// The fastest layouts of a recipe on so many chips of one system.
//
// Best first: groups of layouts are taken in the order of their lower bounds (bound.h), then the
// layouts of a group in the order of theirs; the next one is checked against the exact memory map
// and its schedule played. When the lowest bound that is left exceeds the K-th best time found, no
// layout that has not been played can be among the K best, so what is found is what playing all of
// them would find.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tutti/plan/bound.h"

namespace tutti::plan {

struct SearchOptions {
  size_t keep = 10;  // K
  Kept kept;
  std::vector<spec::Precision> precisions;  // empty: all that the chip has (precisions_of)
  // Judge every layout by its own bound, also where its group's already excludes it.
  bool exhaustive = false;
};

struct Found {
  Layout layout;
  StepPrediction step;
  MemoryPrediction memory;
};

struct SearchCounts {
  int64_t considered = 0;   // layouts
  int64_t indivisible = 0;  // sizes do not divide
  int64_t memory = 0;       // more memory than the chip has
  int64_t bound = 0;        // cannot be among the best: by its own or its group's bound
  int64_t played = 0;
  int64_t judged = 0;           // by a bound, all that are divisible
  int64_t judged_by_group = 0;  // of those, by the group's bound alone
  double judge_seconds = 0;     // enumeration included
  double play_seconds = 0;      // exact memory and schedule
  int64_t ticks = 0;            // groups and layouts seen so far, for progress
  bool complete = true;         // false: interrupted

  SearchCounts& operator+=(const SearchCounts& other);
  double judged_per_second() const;
  double played_per_second() const;
};

struct SearchResult {
  std::vector<Found> best;      // fastest first
  std::vector<Found> smallest;  // when none fits: the one that needs least memory
  SearchCounts counts;
};

// Called now and then with layouts judged and played so far; false stops the search.
using SearchWatch = std::function<bool(const SearchCounts&)>;

// `recipe` is resolved; its batch, sequence and model are those of every layout. Each is priced
// under profile_on (predict.h) of it.
SearchResult search_layouts(const spec::Recipe& recipe, const spec::Profile& profile,
                            const catalog::System& system, const Constants& constants,
                            int64_t chips, const SearchOptions& options,
                            const SearchWatch& watch = {});

// "recomputation +12.1%, bubble -3.0%": how `other` differs from `best`, in per cent of the time of
// `best`, largest first; parts below half a per cent are left out.
std::string split_difference(const StepPrediction& best, const StepPrediction& other);

}  // namespace tutti::plan
