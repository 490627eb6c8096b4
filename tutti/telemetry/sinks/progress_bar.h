// A progress bar for callbacks that report work done and work in all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "tutti/telemetry/sinks/progress.h"

namespace tutti::telemetry {

// Not thread-safe. `unit` as in telemetry/sinks/progress.h.
class ProgressBar {
 public:
  ProgressBar(std::string label, std::string unit)
      : label_(std::move(label)), unit_(std::move(unit)) {}

  // `done` never falls; `total` is the same at every call.
  void update(int64_t done, int64_t total) {
    if (!bar_) bar_.emplace(label_, total, unit_);
    bar_->advance(done - done_);
    done_ = done;
  }

  void finish() {
    if (bar_) bar_->finish();
  }

 private:
  std::string label_;
  std::string unit_;
  int64_t done_ = 0;
  std::optional<telemetry::Progress> bar_;
};

}  // namespace tutti::telemetry
