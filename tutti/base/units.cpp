#include "tutti/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using Suffix = std::pair<std::string_view, double>;

constexpr std::array<Suffix, 10> kByteSuffixes = {{{"", 1},
                                                   {"B", 1},
                                                   {"KiB", 1024.0},
                                                   {"MiB", 1048576.0},
                                                   {"GiB", 1073741824.0},
                                                   {"TiB", 1099511627776.0},
                                                   {"kB", 1e3},
                                                   {"MB", 1e6},
                                                   {"GB", 1e9},
                                                   {"TB", 1e12}}};
constexpr std::array<Suffix, 6> kTimeSuffixes = {
    {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"min", 60}, {"h", 3600}, {"d", 86400}}};
constexpr std::array<Suffix, 5> kCountSuffixes = {
    {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}}};

template <size_t N>
double parse_quantity(std::string_view text, std::string_view key,
                      const std::array<Suffix, N>& suffixes, const char* example) {
  const std::string_view trimmed = trim(text);
  double number = 0;
  const auto [end, status] =
      std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), number);
  if (status == std::errc() && std::isfinite(number)) {
    const std::string_view suffix = trim(trimmed.substr(static_cast<size_t>(end - trimmed.data())));
    for (const auto& [name, factor] : suffixes) {
      if (suffix == name) return number * factor;
    }
  }
  fail(ErrorKind::usage, "{}: cannot read '{}'; write a number with a unit such as {}", key, text,
       example);
}

int64_t to_integer(double value, std::string_view text, std::string_view key) {
  const double rounded = std::round(value);
  // The tolerance covers the rounding of "0.57k" to a double, no more.
  if (std::abs(value - rounded) > 1e-12 * std::abs(value) || std::abs(rounded) >= 9.2e18) {
    fail(ErrorKind::usage, "{}: '{}' is not a whole number in range", key, text);
  }
  return static_cast<int64_t>(rounded);
}

// Plain digits are read exactly; a double would round above 2^53.
std::optional<int64_t> plain_integer(std::string_view text) {
  const std::string_view trimmed = trim(text);
  const char* end = trimmed.data() + trimmed.size();
  int64_t value = 0;
  const auto [stop, status] = std::from_chars(trimmed.data(), end, value);
  if (status != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

int64_t parse_bytes(std::string_view text, std::string_view key) {
  if (const auto exact = plain_integer(text)) return *exact;
  return to_integer(std::round(parse_quantity(text, key, kByteSuffixes, "64MiB or 2GB")), text,
                    key);
}

double parse_seconds(std::string_view text, std::string_view key) {
  return parse_quantity(text, key, kTimeSuffixes, "90s, 10min or 1.5h");
}

int64_t parse_count(std::string_view text, std::string_view key) {
  if (const auto exact = plain_integer(text)) return *exact;
  return to_integer(parse_quantity(text, key, kCountSuffixes, "2000, 10k or 1.5M"), text, key);
}

std::string format_bytes(double bytes) {
  static constexpr std::array<const char*, 6> kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 1024.0 && unit + 1 < kNames.size()) {
    bytes /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kNames[unit]);
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds >= 1e15) return fmt::format("{:.3g} d", seconds / 86400);
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1.0) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 60.0) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 172800) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

std::string format_count(double count) {
  static constexpr std::array<const char*, 5> kNames = {"", " k", " M", " B", " T"};
  if (std::abs(count) < 100000 && count == std::floor(count)) {
    const auto whole = static_cast<int64_t>(count);
    return std::abs(whole) < 1000 ? fmt::format("{}", whole)
                                  : fmt::format("{},{:03}", whole / 1000, std::abs(whole % 1000));
  }
  size_t unit = 0;
  while (std::abs(count) >= 1000.0 && unit + 1 < kNames.size()) {
    count /= 1000.0;
    ++unit;
  }
  return fmt::format("{:.4g}{}", count, kNames[unit]);
}

std::string format_rate(double per_second, std::string_view unit) {
  return fmt::format("{} {}/s", format_count(per_second), unit);
}

}  // namespace tutti
