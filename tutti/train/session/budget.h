// The budget of a run: hours, money, energy.
#pragma once

#include <optional>

#include "tutti/spec/recipe/recipe.h"
#include "tutti/telemetry/events.h"

namespace tutti::train {

// The first limit that `elapsed_seconds` of training has used up, if any: hours directly, usd by
// usd_per_hour, kwh by average_watts (both estimates of the recipe).
std::optional<telemetry::BudgetExceeded> budget_exceeded(const spec::BudgetConfig& budget,
                                                         double elapsed_seconds);

}  // namespace tutti::train
