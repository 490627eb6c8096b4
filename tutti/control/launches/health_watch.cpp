#include "tutti/control/launches/health_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tutti/base/error.h"
#include "tutti/base/http_client.h"
#include "tutti/base/json.h"

namespace tutti::control {
namespace {

constexpr int64_t kStartLookMs = 200;  // between two looks for the file of the address
constexpr int kHealthyStatus = 200;

}  // namespace

HealthWatch::HealthWatch(FileSystem& files, const LaunchFolder& folder, int64_t generation,
                         const HealthRule& rule)
    : files_(files), folder_(folder), generation_(generation), rule_(rule) {
  report({"starting", "", ""});
  thread_ = std::thread([this] { watch(); });
}

HealthWatch::~HealthWatch() {
  end();
  thread_.join();
}

std::string HealthWatch::broken() const {
  const std::scoped_lock lock(mutex_);
  return broken_;
}

void HealthWatch::end() {
  const std::scoped_lock lock(mutex_);
  is_ending_ = true;
  ends_.notify_all();
}

bool HealthWatch::goes_on() const {
  const std::scoped_lock lock(mutex_);
  return !is_ending_;
}

bool HealthWatch::wait(int64_t milliseconds) {
  std::unique_lock lock(mutex_);
  ends_.wait_for(lock, std::chrono::milliseconds(milliseconds), [this] { return is_ending_; });
  return !is_ending_;
}

void HealthWatch::watch() {
  const int64_t begin_ms = steady_milliseconds();
  int64_t failures = 0;
  bool was_healthy = false;
  do {
    const std::string where = url();
    const std::string wrong = where.empty() ? "it does not listen yet" : ask(where);
    if (!goes_on()) return;
    if (wrong.empty()) {
      failures = 0;
      was_healthy = true;
      report({"healthy", where, ""});
    } else if (was_healthy) {
      report({"unhealthy", where, wrong});
      if (++failures >= rule_.failures) {
        give_up(where, fmt::format("{} health checks failed in a row: {}", failures, wrong));
        return;
      }
    } else if (steady_milliseconds() - begin_ms >= rule_.start_ms) {
      give_up(where, fmt::format("it was not healthy {} s after its start: {}",
                                 rule_.start_ms / 1000, wrong));
      return;
    }
  } while (wait(was_healthy ? rule_.every_ms : std::min(kStartLookMs, rule_.every_ms)));
}

std::string HealthWatch::url() const {
  const std::string path = folder_.ready_path(generation_);
  try {
    if (!files_.exists(path)) return {};
    return json_get<std::string>(parse_json(read_file(files_, path), path), "url", path);
  } catch (const Error&) {
    return {};
  }
}

std::string HealthWatch::ask(const std::string& url) const {
  HttpAsk ask;
  ask.path = "/health";
  ask.patience_seconds = static_cast<double>(std::max<int64_t>(rule_.every_ms, 1000)) / 1000;
  try {
    const HttpAnswer answer = http_ask(parse_http_url(url), ask);
    return answer.status == kHealthyStatus
               ? std::string()
               : fmt::format("/health answered with status {}", answer.status);
  } catch (const Error& error) {
    return error.what();
  }
}

void HealthWatch::report(const Health& health) {
  if (health == reported_) return;
  try {
    folder_.write_health(generation_, health);
    reported_ = health;
  } catch (const Error&) {
    // What it said last stands; the next check tries again.
  }
}

void HealthWatch::give_up(const std::string& url, const std::string& why) {
  report({"unhealthy", url, why});
  const std::scoped_lock lock(mutex_);
  if (!is_ending_) broken_ = why;
}

}  // namespace tutti::control
