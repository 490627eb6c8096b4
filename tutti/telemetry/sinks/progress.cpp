#include "tutti/telemetry/sinks/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/units.h"

namespace tutti::telemetry {
namespace {

ProgressOptions with_clock(ProgressOptions options) {
  if (!options.clock) options.clock = monotonic_seconds;
  return options;
}

}  // namespace

Progress::Progress(std::string label, int64_t total, std::string unit, ProgressOptions options)
    : label_(std::move(label)),
      total_(total),
      unit_(std::move(unit)),
      options_(with_clock(std::move(options))),
      begin_(options_.clock()),
      next_draw_(begin_ + options_.quiet_seconds),
      status_(options_.console) {}

Progress::~Progress() {
  const std::lock_guard lock(mutex_);
  status_.clear();
}

void Progress::advance(int64_t amount) {
  done_.fetch_add(amount, std::memory_order_relaxed);
  const double now = options_.clock();
  if (now < next_draw_.load(std::memory_order_relaxed)) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || now < next_draw_.load(std::memory_order_relaxed)) return;
  draw(now);
  next_draw_.store(now + (status_.terminal() ? options_.terminal_interval_seconds
                                             : options_.plain_interval_seconds),
                   std::memory_order_relaxed);
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  status_.clear();
  if (!shown_) return;
  shown_ = false;
  const auto done = static_cast<double>(done_.load());
  const double seconds = std::max(options_.clock() - begin_, 1e-9);
  status_.print(fmt::format("{}: {} in {} ({})", label_, amount(done), format_seconds(seconds),
                            rate(done / seconds)));
}

std::string Progress::amount(double value) const {
  return unit_ == "bytes" ? format_bytes(value) : fmt::format("{} {}", format_count(value), unit_);
}

std::string Progress::rate(double per_second) const {
  return unit_ == "bytes" ? format_bytes(per_second) + "/s" : format_rate(per_second, unit_);
}

void Progress::draw(double now) {
  shown_ = true;
  const auto done = static_cast<double>(done_.load(std::memory_order_relaxed));
  const auto total = static_cast<double>(total_);
  const double per_second = done / std::max(now - begin_, 1e-9);
  std::string text;
  if (total_ > 0) {
    const double fraction = std::min(done / total, 1.0);
    text = fmt::format("{:3.0f}%  {} of {}  {}", 100 * fraction, amount(done), amount(total),
                       rate(per_second));
    if (done > 0 && done < total) {
      text += fmt::format("  {} left", format_seconds((total - done) / per_second));
    }
    if (status_.terminal()) {
      const int bar = progress_bar_width(status_.columns());
      const auto used = static_cast<int>(label_.size() + text.size());
      if (bar > 0 && used + bar + 3 <= status_.columns()) {
        text = progress_bar(fraction, bar) + " " + text;
      }
    }
  } else {
    text = fmt::format("{}  {}", amount(done), rate(per_second));
  }
  text = label_ + " " + text;
  if (status_.terminal()) {
    status_.show(text);
  } else {
    status_.print(text);
  }
}

}  // namespace tutti::telemetry
