#include "tutti/report/axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tutti::report {
namespace {

constexpr double kMargin = 0.04;      // of the axis, beyond the values
constexpr double kLargest = 1e307;    // that an axis spans: leaves margins
constexpr double kSmallest = 1e-307;  // above zero: smaller ones lie at the end of the axis

// log(high / low), where the ratio itself may be beyond all numbers.
double log_ratio(double high, double low) { return std::log(high) - std::log(low); }

double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

double round_seconds(double least) {
  constexpr std::array<double, 17> kSteps = {1,   2,    5,    10,   15,   30,    60,    120,  300,
                                             600, 1200, 1800, 3600, 7200, 14400, 21600, 43200};
  if (least < 1) return round_step(least);
  for (const double step : kSteps) {
    if (step >= least * (1 - 1e-9)) return step;
  }
  return 86400 * round_step(least / 86400 < 1 ? 1 : least / 86400);
}

double round_integer(double least) {
  const double step = round_step(std::max(1.0, least));
  return step == 2.5 ? 5 : step;
}

std::vector<Tick> multiples(const Axis& axis, Quantity quantity, int most) {
  const double least = (axis.high - axis.low) / std::max(1, most);
  if (!(least > 0)) return {};
  const double step = quantity == Quantity::seconds   ? round_seconds(least)
                      : quantity == Quantity::integer ? round_integer(least)
                                                      : round_step(least);
  std::vector<Tick> ticks;
  for (double k = std::ceil(axis.low / step - 1e-9); k * step <= axis.high + 1e-9 * step; ++k) {
    const double value = k == 0 ? 0.0 : k * step;  // never -0
    ticks.push_back({axis.position(value), format_tick(quantity, value, step)});
  }
  return ticks;
}

// 1, 2 and 5 times powers of ten, thinned to powers of ten where there are many.
std::vector<Tick> powers(const Axis& axis, Quantity quantity, int most) {
  const double decades = std::log10(axis.high) - std::log10(axis.low);
  const auto every = static_cast<int>(std::max(1.0, std::ceil(decades / std::max(1, most))));
  std::vector<Tick> ticks;
  for (auto power = static_cast<int>(std::floor(std::log10(axis.low)));
       power <= std::log10(axis.high); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && 3 * decades > most) break;
      if (power % every != 0) break;
      const double value = factor * std::pow(10, power);
      if (value < axis.low || value > axis.high) continue;
      ticks.push_back({axis.position(value), format_tick(quantity, value, value)});
    }
  }
  return ticks;
}

}  // namespace

double Axis::position(double value) const {
  if (scale == Scale::logarithmic) return log_ratio(value, low) / log_ratio(high, low);
  return (std::clamp(value, -kLargest, kLargest) - low) / (high - low);
}

Axis make_axis(Scale scale, const std::vector<double>& values, bool from_zero) {
  const bool log = scale == Scale::logarithmic;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const double value : values) {
    if (!std::isfinite(value) || (log && value <= 0)) continue;
    const double shown = std::clamp(value, log ? kSmallest : -kLargest, kLargest);
    low = std::min(low, shown);
    high = std::max(high, shown);
  }
  if (low > high) return {scale, log ? 0.1 : 0.0, 1};
  if (log) {
    if (log_ratio(high, low) < std::log(1.01)) {
      low /= 1.1;
      high *= 1.1;
    }
    const double margin = std::exp(kMargin * log_ratio(high, low));
    return {scale, std::max(low / margin, std::numeric_limits<double>::min()),
            std::min(high * margin, std::numeric_limits<double>::max())};
  }
  const bool zero_is_low = from_zero && low >= 0;
  if (zero_is_low) low = 0;
  if (high - low <= 1e-9 * std::max(std::abs(low), std::abs(high))) {
    const double size = std::max(std::abs(high), 1e-12);
    high += 0.1 * size;
    if (!zero_is_low) low -= 0.1 * size;
  }
  const double margin = kMargin * (high - low);
  return {scale, zero_is_low ? 0 : low - margin, high + margin};
}

std::vector<Tick> make_ticks(const Axis& axis, Quantity quantity, int most) {
  if (axis.scale == Scale::linear) return multiples(axis, quantity, most);
  std::vector<Tick> ticks = powers(axis, quantity, most);
  // Less than a decade has too few of them.
  return ticks.size() >= 3 ? ticks : multiples(axis, quantity, most);
}

}  // namespace tutti::report
