// All access to time.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

double monotonic_seconds();                           // never goes back; the origin is arbitrary
double wall_seconds();                                // since 1970-01-01 UTC
int64_t wall_milliseconds();                          // since 1970-01-01 UTC, as MLPerf logs use
std::string format_utc(double wall_seconds);          // "2026-01-31T12:00:00Z"
std::string format_utc_compact(double wall_seconds);  // "20260131-120000", fit for a file name
void sleep_seconds(double seconds);

}  // namespace tutti
