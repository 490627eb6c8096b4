// Sites of machines and their costs: power, water, carbon, money.
#pragma once

#include <string>

#include "tutti/catalog/entry.h"

namespace tutti::catalog {

struct Site {
  std::string name;
  double pue = 0;              // facility power over IT power, >= 1
  double liters_per_kwh = 0;   // WUE, of IT energy
  double kg_co2e_per_kwh = 0;  // grid, location based, of facility energy
  double rack_watts = 0;       // power cap of a rack; 0: none stated
  Entry entry;
};
// Quantities pue_ratio, water_liters_per_kwh, grid_kg_per_kwh, rack_power_cap_kilowatts.
Site site_from(const Entry& entry);

enum class PriceKind { on_demand, spot, reserved };
const char* price_kind_name(PriceKind kind);
PriceKind parse_price_kind(const std::string& name);  // throws usage

// One system's prices per accelerator-hour; 0: not offered.
struct Price {
  std::string name;
  std::string system;
  double on_demand_usd_per_hour = 0;
  double spot_usd_per_hour = 0;
  double reserved_usd_per_hour = 0;
  Entry entry;

  bool has(PriceKind kind) const;
  // Throws usage naming the kinds that the entry has.
  double usd_per_hour(PriceKind kind) const;
};
// The kind asked for by name; where `asked` is empty on-demand, or else what the price has: spot
// machines are taken away, so reserved before them.
PriceKind price_kind_of(const Price* price, const std::string& asked);
// Text system; quantities on_demand_chip_usd_per_hour, spot_chip_usd_per_hour,
// reserved_chip_usd_per_hour, each with a date.
Price price_from(const Entry& entry);

}  // namespace tutti::catalog
