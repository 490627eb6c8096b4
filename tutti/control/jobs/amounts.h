// Human-readable amounts of the ledger: "54 mWh", "1.25 kWh".
#pragma once

#include <cstdint>
#include <string>

namespace tutti::control {

std::string format_usd(int64_t micro_usd);     // "0.08 USD"
std::string format_energy(int64_t micro_kwh);  // mWh, Wh, kWh, MWh
std::string format_mass(int64_t micro_kg);     // mg, g, kg, t
std::string format_day_time(int64_t wall_ms);  // "2026-01-31 12:00:00", UTC; 0: "–"

}  // namespace tutti::control
