#include "tutti/control/jobs/amounts.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "tutti/base/clock.h"

namespace tutti::control {
namespace {

// `milli`: of the third unit's base, such as mWh or mg.
std::string scaled(double milli, const std::array<const char*, 4>& units) {
  size_t unit = 0;
  // What would be written with four digits before the point takes the next unit.
  while (std::abs(milli) >= 999.5 && unit + 1 < units.size()) {
    milli /= 1000;
    ++unit;
  }
  const int decimals = milli == 0 || std::abs(milli) >= 99.95 ? 0
                       : std::abs(milli) >= 9.995             ? 1
                                                              : 2;
  return fmt::format("{:.{}f} {}", milli, decimals, units[unit]);
}

}  // namespace

std::string format_usd(int64_t micro_usd) {
  return fmt::format("{:.2f} USD", static_cast<double>(micro_usd) / 1e6);
}

// A millionth of a kWh is a mWh.
std::string format_energy(int64_t micro_kwh) {
  return scaled(static_cast<double>(micro_kwh), {"mWh", "Wh", "kWh", "MWh"});
}

std::string format_mass(int64_t micro_kg) {
  return scaled(static_cast<double>(micro_kg), {"mg", "g", "kg", "t"});
}

std::string format_day_time(int64_t wall_ms) {
  if (wall_ms == 0) return "–";
  std::string text = format_utc(static_cast<double>(wall_ms) / 1000);
  text[text.find('T')] = ' ';
  text.pop_back();  // the Z
  return text;
}

}  // namespace tutti::control
