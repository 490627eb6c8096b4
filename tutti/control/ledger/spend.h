// Spending and budgets: hours of nodes, cores and GPUs, money, energy, carbon, water.
//
// All amounts are whole millionths (micro-hours, micro-USD, micro-kWh, ...), so that sums are exact
// in any order. A launch is charged the difference between what its whole time so far costs and
// what it was charged before: rounding never adds up, and the entries of a launch always sum to
// the price of its time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "tutti/base/json.h"

namespace tutti::control {

inline constexpr int64_t kMicro = 1'000'000;
constexpr double from_micro(int64_t amount) { return static_cast<double>(amount) / kMicro; }
inline constexpr int64_t kHourMilliseconds = 3'600'000;

struct Spend {
  bool operator==(const Spend&) const = default;
  int64_t node_microhours = 0;
  int64_t core_microhours = 0;
  int64_t gpu_microhours = 0;
  int64_t micro_usd = 0;
  int64_t micro_kwh = 0;     // at the machine
  int64_t micro_kg = 0;      // CO2 equivalent, of the facility's energy
  int64_t micro_liters = 0;  // water
};

// The members in order, with the names they have in the database and in JSON.
struct SpendPart {
  const char* name;
  int64_t Spend::*value;
};
const std::array<SpendPart, 7>& spend_parts();

Spend operator+(const Spend& a, const Spend& b);
Spend operator-(const Spend& a, const Spend& b);
Spend& operator+=(Spend& a, const Spend& b);

// What an hour of a job costs.
struct Rate {
  bool operator==(const Rate&) const = default;
  int64_t nodes = 0;
  int64_t cores = 0;  // of all nodes
  int64_t gpus = 0;
  int64_t micro_usd_per_hour = 0;
  int64_t milliwatts = 0;        // of the job at the machine
  int64_t micro_kg_per_kwh = 0;  // of energy at the machine, facility overhead included
  int64_t micro_liters_per_kwh = 0;
};

// Of `milliseconds` at that rate, rounded down: monotone in the time. Where the energy was measured
// it replaces milliwatts * time.
Spend spend_of(const Rate& rate, int64_t milliseconds,
               std::optional<int64_t> measured_micro_kwh = std::nullopt);

// Limits of a budget; absent: none. Zero is a limit: nothing may be spent.
struct Budget {
  bool operator==(const Budget&) const = default;
  std::optional<int64_t> node_microhours;
  std::optional<int64_t> core_microhours;
  std::optional<int64_t> gpu_microhours;
  std::optional<int64_t> micro_usd;
  std::optional<int64_t> micro_kwh;

  bool limited() const;
};

struct BudgetPart {
  const char* name;  // "usd"
  std::optional<int64_t> Budget::*limit;
  int64_t Spend::*spent;
};
const std::array<BudgetPart, 5>& budget_parts();

// The first limit that is reached, if any: {"usd", limit, spent}.
struct LimitReached {
  const char* what = "";
  int64_t limit = 0;
  int64_t spent = 0;
};
std::optional<LimitReached> limit_reached(const Budget& budget, const Spend& spent);

// Milliseconds at `rate` until a limit is reached; absent: never.
std::optional<int64_t> milliseconds_left(const Budget& budget, const Spend& spent,
                                         const Rate& rate);

std::string format_micro(int64_t micro);  // "12.345678"
// A decimal number of at least 0 and at most six decimals; throws usage naming `key`.
int64_t parse_micro(const std::string& text, const std::string& key);

Json to_json(const Spend& spend);    // numbers in whole units: node_hours, usd, kwh, co2e_kg, ...
Json to_json(const Budget& budget);  // only the limits there are

}  // namespace tutti::control
