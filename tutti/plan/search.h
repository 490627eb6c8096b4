// The fastest layouts of a recipe on a number of chips of one system.
//
// Best first: groups of layouts are processed in the order of their lower bounds (bound.h), then
// the layouts of a group in the order of theirs; the next one is checked against the exact memory
// map and its schedule simulated. When the lowest remaining bound exceeds the K-th best time found,
// no layout that was not simulated can be among the K best, so the result is that of simulating all
// of them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tutti/plan/bound.h"

namespace tutti::plan {

struct SearchOptions {
  size_t keep = 10;  // K
  Kept kept;
  std::vector<spec::Precision> precisions;  // empty: all precisions of the chip (precisions_of)
  // Evaluate every layout's own bound, even if its group's bound already excludes it.
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
  int64_t memory = 0;       // needs more memory than the chip has
  int64_t bound = 0;        // excluded by its own or its group's bound
  int64_t played = 0;
  int64_t judged = 0;           // bound evaluated: all that are divisible
  int64_t judged_by_group = 0;  // of those, only the group's bound
  double judge_seconds = 0;     // including enumeration
  double play_seconds = 0;      // exact memory and schedule
  int64_t ticks = 0;            // groups and layouts so far, for progress
  bool complete = true;         // false: interrupted

  SearchCounts& operator+=(const SearchCounts& other);
  double judged_per_second() const;
  double played_per_second() const;
};

struct SearchResult {
  std::vector<Found> best;      // fastest first
  std::vector<Found> smallest;  // if none fits: the one that needs least memory
  SearchCounts counts;
};

// Called from time to time with the counts so far; false stops the search.
using SearchWatch = std::function<bool(const SearchCounts&)>;

// `recipe` is resolved; its batch, sequence and model apply to every layout. Each layout is priced
// under its own profile_on (predict.h).
SearchResult search_layouts(const spec::Recipe& recipe, const spec::Profile& profile,
                            const catalog::System& system, const Constants& constants,
                            int64_t chips, const SearchOptions& options,
                            const SearchWatch& watch = {});

// "recomputation +12.1%, bubble -3.0%": how `other` differs from `best`, in per cent of the time of
// `best`, largest first; without parts below half a per cent.
std::string split_difference(const StepPrediction& best, const StepPrediction& other);

}  // namespace tutti::plan
