// Quantities with units: parsing from recipes and formatting for users.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

inline constexpr double kSecondsPerDay = 86400;

// "512", "64KiB", "1.5GiB", "2GB" (decimal), "10 MiB". Throws usage naming `key`.
int64_t parse_bytes(std::string_view text, std::string_view key);

// Seconds from "90", "90s", "500ms", "10min", "1.5h", "2d". Throws usage naming `key`.
double parse_seconds(std::string_view text, std::string_view key);

// Integers with an optional decimal suffix: "2000", "10k", "1.5M", "3B", "1T".
int64_t parse_count(std::string_view text, std::string_view key);

std::string format_bytes(double bytes);      // "1.50 GiB"
std::string format_seconds(double seconds);  // "850 ms", "12.3 s", "2 min 05 s", "3 h 07 min"
std::string format_count(double count);      // "124.4 M", "12,345" below 100,000
std::string format_rate(double per_second, std::string_view unit);  // "12.3 k tokens/s"

}  // namespace tutti
