// The cost of a run: money, energy, carbon, water. Every figure is an estimate.
//
//   money        price of a chip * chips of the nodes, which are rented whole * wall time
//   node power   overhead + chips * board * (0.2 + 0.7 busy); busy is the share of a step that
//                chips compute. At full load an 8 x H100 node draws 7.8 kW of 10.2 rated: the 76%
//                that arXiv 2412.08602 measured under heavy work.
//   energy       node power * nodes * wall time * PUE (facility); water = IT energy * WUE;
//                CO2e = facility energy * grid intensity (location based)
#pragma once

#include <optional>

#include "tutti/catalog/catalog.h"
#include "tutti/plan/predict.h"

namespace tutti::plan {

struct Bill {
  std::optional<double> usd;
  double chip_hours = 0;
  // NaN if the catalog lacks the chip's board power; so are the figures derived from it.
  double node_watts = 0;
  double it_kwh = 0;
  double facility_kwh = 0;
  double co2e_kg = 0;
  double water_liters = 0;
};

Bill bill_of(const catalog::System& system, const catalog::Site& site, const catalog::Price* price,
             catalog::PriceKind kind, const StepPrediction& step, int64_t chips,
             double wall_seconds);

// All chips of the nodes that `chips` are on.
int64_t billed_chips(const catalog::System& system, int64_t chips);

}  // namespace tutti::plan
