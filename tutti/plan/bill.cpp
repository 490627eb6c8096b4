#include "tutti/plan/bill.h"

#include <limits>

namespace tutti::plan {

Bill bill_of(const catalog::System& system, const catalog::Site& site, const catalog::Price* price,
             catalog::PriceKind kind, const StepPrediction& step, int64_t chips,
             double wall_seconds) {
  const Split& split = step.split;
  const double busy =
      (split.products + split.memory + split.recompute + split.optimizer) / step.step_seconds;
  const auto per_node = static_cast<double>(system.chips_per_node);
  const double nodes = static_cast<double>(chips) / per_node;
  const double hours = wall_seconds / 3600;
  Bill bill;
  bill.chip_hours = static_cast<double>(chips) * hours;
  bill.node_watts =
      system.chip.board_watts > 0
          ? system.node_idle_watts + per_node * system.chip.board_watts * (0.2 + 0.7 * busy)
          : std::numeric_limits<double>::quiet_NaN();
  bill.it_kwh = bill.node_watts * nodes * hours / 1e3;
  bill.facility_kwh = bill.it_kwh * site.pue;
  bill.co2e_kg = bill.facility_kwh * site.kg_co2e_per_kwh;
  bill.water_liters = bill.it_kwh * site.liters_per_kwh;
  if (price != nullptr) {
    bill.usd = static_cast<double>(billed_chips(system, chips)) * hours * price->usd_per_hour(kind);
  }
  return bill;
}

int64_t billed_chips(const catalog::System& system, int64_t chips) {
  const int64_t per_node = system.chips_per_node;
  return (chips + per_node - 1) / per_node * per_node;
}

}  // namespace tutti::plan
