#include "tutti/control/ledger/spend.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tutti/base/error.h"

namespace tutti::control {
namespace {

// a * b / c rounded down, for non-negative numbers whose product may need more than 64 bits.
int64_t scaled(int64_t a, int64_t b, int64_t c) {
  __extension__ using Wide = __int128;
  return static_cast<int64_t>(static_cast<Wide>(a) * b / c);
}

}  // namespace

const std::array<SpendPart, 7>& spend_parts() {
  static constexpr std::array<SpendPart, 7> parts = {{{"node_microhours", &Spend::node_microhours},
                                                      {"core_microhours", &Spend::core_microhours},
                                                      {"gpu_microhours", &Spend::gpu_microhours},
                                                      {"micro_usd", &Spend::micro_usd},
                                                      {"micro_kwh", &Spend::micro_kwh},
                                                      {"micro_kg", &Spend::micro_kg},
                                                      {"micro_liters", &Spend::micro_liters}}};
  return parts;
}

const std::array<BudgetPart, 5>& budget_parts() {
  static constexpr std::array<BudgetPart, 5> parts = {
      {{"node_hours", &Budget::node_microhours, &Spend::node_microhours},
       {"core_hours", &Budget::core_microhours, &Spend::core_microhours},
       {"gpu_hours", &Budget::gpu_microhours, &Spend::gpu_microhours},
       {"usd", &Budget::micro_usd, &Spend::micro_usd},
       {"kwh", &Budget::micro_kwh, &Spend::micro_kwh}}};
  return parts;
}

Spend& operator+=(Spend& a, const Spend& b) {
  for (const SpendPart& part : spend_parts()) a.*part.value += b.*part.value;
  return a;
}

Spend operator+(const Spend& a, const Spend& b) {
  Spend sum = a;
  return sum += b;
}

Spend operator-(const Spend& a, const Spend& b) {
  Spend difference = a;
  for (const SpendPart& part : spend_parts()) difference.*part.value -= b.*part.value;
  return difference;
}

Spend spend_of(const Rate& rate, int64_t milliseconds, std::optional<int64_t> measured_micro_kwh) {
  Spend spend;
  spend.node_microhours = scaled(rate.nodes * kMicro, milliseconds, kHourMilliseconds);
  spend.core_microhours = scaled(rate.cores * kMicro, milliseconds, kHourMilliseconds);
  spend.gpu_microhours = scaled(rate.gpus * kMicro, milliseconds, kHourMilliseconds);
  spend.micro_usd = scaled(rate.micro_usd_per_hour, milliseconds, kHourMilliseconds);
  // 1 mW for an hour is 1 micro-kWh.
  spend.micro_kwh =
      measured_micro_kwh.value_or(scaled(rate.milliwatts, milliseconds, kHourMilliseconds));
  spend.micro_kg = scaled(rate.micro_kg_per_kwh, spend.micro_kwh, kMicro);
  spend.micro_liters = scaled(rate.micro_liters_per_kwh, spend.micro_kwh, kMicro);
  return spend;
}

bool Budget::limited() const {
  return std::any_of(budget_parts().begin(), budget_parts().end(),
                     [this](const BudgetPart& part) { return (this->*part.limit).has_value(); });
}

std::optional<LimitReached> limit_reached(const Budget& budget, const Spend& spent) {
  for (const BudgetPart& part : budget_parts()) {
    const auto& limit = budget.*part.limit;
    if (limit && spent.*part.spent >= *limit) {
      return LimitReached{part.name, *limit, spent.*part.spent};
    }
  }
  return std::nullopt;
}

std::optional<int64_t> milliseconds_left(const Budget& budget, const Spend& spent,
                                         const Rate& rate) {
  Rate hourly = rate;
  const Spend per_hour = spend_of(hourly, kHourMilliseconds);
  std::optional<int64_t> least;
  for (const BudgetPart& part : budget_parts()) {
    const auto& limit = budget.*part.limit;
    if (!limit) continue;
    const int64_t left = std::max<int64_t>(0, *limit - spent.*part.spent);
    const int64_t hour = per_hour.*part.spent;
    if (hour == 0 && left > 0) continue;
    const int64_t time = left == 0 ? 0 : scaled(left, kHourMilliseconds, hour);
    least = std::min(least.value_or(std::numeric_limits<int64_t>::max()), time);
  }
  return least;
}

std::string format_micro(int64_t micro) {
  const uint64_t size = micro < 0 ? 0 - static_cast<uint64_t>(micro) : static_cast<uint64_t>(micro);
  return fmt::format("{}{}.{:06}", micro < 0 ? "-" : "", size / kMicro, size % kMicro);
}

int64_t parse_micro(const std::string& text, const std::string& key) {
  const auto refuse = [&] {
    fail(ErrorKind::usage,
         "{}: '{}' is not accepted; write a number from 0 with at most six decimal places", key,
         text);
  };
  const size_t point = text.find('.');
  const std::string front = text.substr(0, point);
  std::string decimals = point == std::string::npos ? "" : text.substr(point + 1);
  const auto digits = [](const std::string& part) {
    return part.find_first_not_of("0123456789") == std::string::npos;
  };
  if (front.empty() || front.size() > 12 || decimals.size() > 6 || !digits(front) ||
      !digits(decimals) || (point != std::string::npos && decimals.empty())) {
    refuse();
  }
  decimals.resize(6, '0');
  return std::stoll(front) * kMicro + std::stoll(decimals);
}

Json to_json(const Spend& spend) {
  return {{"node_hours", from_micro(spend.node_microhours)},
          {"core_hours", from_micro(spend.core_microhours)},
          {"gpu_hours", from_micro(spend.gpu_microhours)},
          {"usd", from_micro(spend.micro_usd)},
          {"kwh", from_micro(spend.micro_kwh)},
          {"co2e_kg", from_micro(spend.micro_kg)},
          {"water_liters", from_micro(spend.micro_liters)}};
}

Json to_json(const Budget& budget) {
  Json json = Json::object();
  for (const BudgetPart& part : budget_parts()) {
    if (budget.*part.limit) json[part.name] = from_micro(*(budget.*part.limit));
  }
  return json;
}

}  // namespace tutti::control
