#include "tutti/train/session/budget.h"

namespace tutti::train {

std::optional<telemetry::BudgetExceeded> budget_exceeded(const spec::BudgetConfig& budget,
                                                         double elapsed_seconds) {
  const double hours = elapsed_seconds / 3600;
  const double usd = hours * budget.usd_per_hour;
  const double kwh = hours * budget.average_watts / 1000;
  if (budget.hours > 0 && hours >= budget.hours) {
    return telemetry::BudgetExceeded{"hours", budget.hours, hours};
  }
  if (budget.usd > 0 && usd >= budget.usd) {
    return telemetry::BudgetExceeded{"usd", budget.usd, usd};
  }
  if (budget.kwh > 0 && kwh >= budget.kwh) {
    return telemetry::BudgetExceeded{"kwh", budget.kwh, kwh};
  }
  return std::nullopt;
}

}  // namespace tutti::train
