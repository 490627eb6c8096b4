// Several runs side by side.
#pragma once

#include <string>
#include <vector>

#include "tutti/report/page.h"
#include "tutti/report/run_summary.h"

namespace tutti::report {

// Something that is not the same in all runs.
struct Difference {
  std::string key;                  // of the recipe, or "machine.cpu", "corpus.training.hash", ...
  std::vector<std::string> values;  // one per run, as written; empty where a run has none
};

// In the order in which the runs name the keys. run.name is left out: it always differs.
std::vector<Difference> differences(const std::vector<RunData>& runs);

// Short names, all different where the folders are: the runs' own, else those of their folders,
// else their paths.
std::vector<std::string> run_labels(const std::vector<RunSummary>& summaries);

// `runs` and `summaries` belong together; the first run is what the others are compared with.
Page comparison_page(const std::vector<RunData>& runs, const std::vector<RunSummary>& summaries,
                     double made_wall_seconds);

}  // namespace tutti::report
