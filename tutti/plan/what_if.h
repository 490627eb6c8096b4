// The same run under other conditions: the effect of each change on step and run, what then limits
// the step, and whether it fits. Each row is a full prediction; nothing is scaled.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/catalog/catalog.h"
#include "tutti/plan/failures.h"
#include "tutti/plan/predict.h"

namespace tutti::plan {

// One change, or several at once.
struct WhatIf {
  std::string name;
  std::vector<std::string> overrides;  // of the recipe: "precision=fp8"
  std::string system;                  // another system of the catalog
  std::string chip;                    // another chip in the same system
  double network_factor = 1;           // bandwidth of all tiers except the nearest
  double link_factor = 1;              // of the nearest
  double memory_factor = 1;            // bandwidth of the chip's memory
  bool failures = true;
};

// "KEY=VALUE" with commas between several: system, chip, network, link, memory (factors),
// failures=none, or any key of the recipe. Throws usage.
WhatIf parse_what_if(const std::string& text);

struct Situation {
  // The recipe with further overrides; throws Error if they are impossible for it.
  std::function<spec::Recipe(const std::vector<std::string>& more)> recipe;
  const spec::Profile* profile = nullptr;  // see profile_on (predict.h)
  const catalog::System* system = nullptr;
  const catalog::Catalog* catalog = nullptr;
  const std::vector<Constants>* sets = nullptr;
  std::string software;
  FailureModel failures;
};

// The default questions for any run: network, link and memory twice as fast; the other chips of the
// generation; precisions; recomputation; half and twice the micro-batch; no failures. Omits what
// the recipe already does.
std::vector<WhatIf> usual_questions(const Situation& situation);

struct Outcome {
  std::string name;
  std::string impossible;  // the reason; the rest is then empty
  StepPrediction step;
  MemoryPrediction memory;
  double run_seconds = 0;  // with failures
  std::string constants;
};
Outcome ask(const Situation& situation, const WhatIf& what_if);

// The first outcome is the unchanged run, with which the others are compared.
std::string format_outcomes(const std::vector<Outcome>& outcomes);
Json to_json(const std::vector<Outcome>& outcomes);
// Titles, and one text per outcome and title.
std::vector<std::string> outcome_titles();
std::vector<std::string> outcome_cells(const Outcome& outcome, const Outcome& as_it_is);

}  // namespace tutti::plan
