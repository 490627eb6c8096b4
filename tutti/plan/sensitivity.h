// What limits a step: the resource whose doubling saves most of its time. Each answer is a full
// prediction with that resource twice as fast and everything else unchanged, so hidden work saves
// nothing, and work that others wait for saves their waiting time.
//
// The largest part of the step (StepPrediction::bottleneck) may be another one: products may take
// more of the time than the network, and still be close to their limit.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/plan/predict.h"

namespace tutti::plan {

struct Saving {
  const char* resource = "";  // "matrix products", "memory bandwidth", "link", "network", ...
  double share = 0;           // of the step, with the resource doubled; 0: none
};

// Largest first, for resources that the run uses: no link for one chip, no network within the
// nearest tier of the system, the host's link only with offloading. `step` is the unchanged
// prediction.
std::vector<Saving> savings(const spec::Recipe& recipe, const spec::Profile& profile,
                            const catalog::System& system, const Constants& constants,
                            const StepPrediction& step, PipelineSimulator& simulator);

// "network: twice as fast, 34% less time". `list` is not empty.
std::string limit_text(const std::vector<Saving>& list);
Json to_json(const std::vector<Saving>& list);

}  // namespace tutti::plan
