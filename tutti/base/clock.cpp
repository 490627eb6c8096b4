#include "tutti/base/clock.h"

#include <chrono>
#include <ctime>
#include <thread>

namespace tutti {
namespace {

std::string format_utc_as(double wall_seconds, const char* format) {
  const auto whole = static_cast<std::time_t>(wall_seconds);
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof text, format, &parts);
  return std::string(text, length);
}

}  // namespace

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

int64_t wall_milliseconds() { return static_cast<int64_t>(wall_seconds() * 1e3); }

std::string format_utc(double wall_seconds) {
  return format_utc_as(wall_seconds, "%Y-%m-%dT%H:%M:%SZ");
}

std::string format_utc_compact(double wall_seconds) {
  return format_utc_as(wall_seconds, "%Y%m%d-%H%M%S");
}

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace tutti
