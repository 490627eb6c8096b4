#include "tutti/catalog/sites.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/catalog/known_quantities.h"

namespace tutti::catalog {

Site site_from(const Entry& entry) {
  check_quantities(
      entry, {"pue_ratio", "water_liters_per_kwh", "grid_kg_per_kwh", "rack_power_cap_kilowatts"});
  Site site;
  site.name = entry.name;
  site.pue = entry.number("pue_ratio");
  site.liters_per_kwh = entry.number_or("water_liters_per_kwh", 0);
  site.kg_co2e_per_kwh = entry.number("grid_kg_per_kwh");
  site.rack_watts = entry.number_or("rack_power_cap_kilowatts", 0) * 1e3;
  site.entry = entry;
  if (site.pue < 1) {
    fail(ErrorKind::usage, "{}: quantities.pue_ratio: {} is below 1", entry.origin, site.pue);
  }
  return site;
}

const char* price_kind_name(PriceKind kind) {
  switch (kind) {
    case PriceKind::on_demand: return "on-demand";
    case PriceKind::spot: return "spot";
    case PriceKind::reserved: return "reserved";
  }
  return "?";
}

PriceKind parse_price_kind(const std::string& name) {
  for (const PriceKind kind : {PriceKind::on_demand, PriceKind::spot, PriceKind::reserved}) {
    if (name == price_kind_name(kind)) return kind;
  }
  fail(ErrorKind::usage, "price: '{}' is unknown; accepted: on-demand, spot, reserved", name);
}

namespace {

double value_of(const Price& price, PriceKind kind) {
  return kind == PriceKind::on_demand ? price.on_demand_usd_per_hour
         : kind == PriceKind::spot    ? price.spot_usd_per_hour
                                      : price.reserved_usd_per_hour;
}

}  // namespace

bool Price::has(PriceKind kind) const { return value_of(*this, kind) > 0; }

PriceKind price_kind_of(const Price* price, const std::string& asked) {
  if (!asked.empty()) return parse_price_kind(asked);
  if (price == nullptr || price->has(PriceKind::on_demand)) return PriceKind::on_demand;
  return price->has(PriceKind::reserved) ? PriceKind::reserved : PriceKind::spot;
}

double Price::usd_per_hour(PriceKind kind) const {
  if (has(kind)) return value_of(*this, kind);
  std::vector<std::string> offered;
  if (on_demand_usd_per_hour > 0) offered.emplace_back("on-demand");
  if (spot_usd_per_hour > 0) offered.emplace_back("spot");
  if (reserved_usd_per_hour > 0) offered.emplace_back("reserved");
  fail(ErrorKind::usage, "{}: no {} price of {}; there are: {}", entry.origin,
       price_kind_name(kind), system, join(offered, ", "));
}

Price price_from(const Entry& entry) {
  check_quantities(entry, {"on_demand_chip_usd_per_hour", "spot_chip_usd_per_hour",
                           "reserved_chip_usd_per_hour"});
  Price price;
  price.name = entry.name;
  price.system = entry.text("system");
  price.on_demand_usd_per_hour = entry.number_or("on_demand_chip_usd_per_hour", 0);
  price.spot_usd_per_hour = entry.number_or("spot_chip_usd_per_hour", 0);
  price.reserved_usd_per_hour = entry.number_or("reserved_chip_usd_per_hour", 0);
  price.entry = entry;
  if (price.on_demand_usd_per_hour + price.spot_usd_per_hour + price.reserved_usd_per_hour <= 0) {
    fail(ErrorKind::usage, "{}: quantities: no price above zero", entry.origin);
  }
  return price;
}

}  // namespace tutti::catalog
