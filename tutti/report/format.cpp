#include "tutti/report/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tutti/base/units.h"

namespace tutti::report {
namespace {

// Decimals that distinguish multiples of `step`: 0 for 5, 1 for 0.5, 2 for 0.25.
int decimals_of(double step) {
  int decimals = 0;
  for (double x = std::abs(step); decimals < 9 && x > 0; x *= 10, ++decimals) {
    if (std::abs(x - std::round(x)) < 1e-6 * x) break;
  }
  return decimals;
}

struct Prefix {
  double factor;
  const char* name;
};
constexpr std::array<Prefix, 4> kPrefixes = {{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}}};

// "2.5k", "150M"; whole numbers below 10,000 as they are.
std::string compact(double value, double step) {
  for (const Prefix& prefix : kPrefixes) {
    if (std::abs(value) >= prefix.factor && (prefix.factor > 1e3 || std::abs(value) >= 1e4)) {
      return fmt::format("{:.{}f}{}", value / prefix.factor, decimals_of(step / prefix.factor),
                         prefix.name);
    }
  }
  if (std::abs(value) >= 1000 && decimals_of(step) == 0) {
    return format_integer(std::llround(value));
  }
  return fmt::format("{:.{}f}", value, decimals_of(step));
}

std::string plain(double value, double step) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size < 1e-3 && step < 1e-4) {
    // The mantissa's decimals follow from the step, in units of the value's power of ten.
    const double unit = std::pow(10, std::floor(std::log10(size) + 1e-9));
    return fmt::format("{:.{}f}e{}", value / unit, std::min(2, decimals_of(step / unit)),
                       static_cast<int>(std::lround(std::log10(unit))));
  }
  return size >= 1e4 ? compact(value, step) : fmt::format("{:.{}f}", value, decimals_of(step));
}

std::string duration(double seconds, double step) {
  if (seconds == 0) return "0";
  if (step < 1e-3) return fmt::format("{:.{}f} ms", 1e3 * seconds, decimals_of(1e3 * step));
  if (step < 1 && seconds < 1) return fmt::format("{:.0f} ms", 1e3 * seconds);
  if (seconds < 60) return fmt::format("{:.{}f} s", seconds, decimals_of(step));
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) {
    return whole % 60 == 0 ? fmt::format("{} min", whole / 60)
                           : fmt::format("{}:{:02} min", whole / 60, whole % 60);
  }
  if (whole < 172800) {
    return whole % 3600 == 0 ? fmt::format("{} h", whole / 3600)
                             : fmt::format("{}:{:02} h", whole / 3600, whole % 3600 / 60);
  }
  return whole % 86400 == 0 ? fmt::format("{} d", whole / 86400)
                            : fmt::format("{:.1f} d", seconds / 86400);
}

}  // namespace

const char* quantity_name(Quantity quantity) {
  switch (quantity) {
    case Quantity::number: return "number";
    case Quantity::loss: return "loss";
    case Quantity::ratio: return "ratio";
    case Quantity::seconds: return "seconds";
    case Quantity::rate: return "rate";
    case Quantity::bytes: return "bytes";
    case Quantity::integer: return "integer";
  }
  return "number";
}

std::string format_integer(int64_t value) {
  std::string digits = std::to_string(value);
  const auto first = static_cast<int64_t>(value < 0 ? 1 : 0);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

std::string format_value(Quantity quantity, double value) {
  if (!std::isfinite(value)) return "–";
  switch (quantity) {
    case Quantity::number: return fmt::format("{:.4g}", value);
    case Quantity::loss: return fmt::format("{:.4f}", value);
    case Quantity::ratio: return fmt::format("{:.1f}%", 100 * value);
    case Quantity::seconds:
      if (value == 0) return "0 s";
      // Steps are compared with each other: three digits also below a second.
      return value > 0 && value < 1 ? fmt::format("{:.3g} ms", 1e3 * value) : format_seconds(value);
    case Quantity::rate:
      return value < 1e5 ? format_integer(std::llround(value)) : format_count(value);
    case Quantity::bytes: return format_bytes(value);
    case Quantity::integer: return format_integer(std::llround(value));
  }
  return {};
}

std::string format_flops(double per_second) {
  constexpr std::array<Prefix, 4> kScales = {
      {{1e18, "EFLOP/s"}, {1e15, "PFLOP/s"}, {1e12, "TFLOP/s"}, {1e9, "GFLOP/s"}}};
  for (const Prefix& scale : kScales) {
    if (per_second >= scale.factor) {
      return fmt::format("{:.4g} {}", per_second / scale.factor, scale.name);
    }
  }
  return fmt::format("{:.4g} FLOP/s", per_second);
}

std::string format_tick(Quantity quantity, double value, double step) {
  switch (quantity) {
    case Quantity::number:
    case Quantity::loss: return plain(value, step);
    case Quantity::ratio: return fmt::format("{:.{}f}%", 100 * value, decimals_of(100 * step));
    case Quantity::seconds: return duration(value, step);
    case Quantity::rate:
    case Quantity::integer: return compact(value, step);
    case Quantity::bytes: return format_bytes(value);
  }
  return {};
}

}  // namespace tutti::report
