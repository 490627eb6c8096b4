// A progress bar for work of known (or unknown) size: preparing data, verifying checkpoints. Shows
// nothing before two seconds have passed; on a terminal a bar with rate and time left, elsewhere a
// line every few seconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "tutti/telemetry/sinks/console.h"

namespace tutti::telemetry {

struct ProgressOptions {
  Console console = stderr_console();
  std::function<double()> clock;  // monotonic seconds; empty: the machine's
  double quiet_seconds = 2;       // short work shows nothing
  double terminal_interval_seconds = 0.1;
  double plain_interval_seconds = 5;
};

// `unit` is "bytes" or the plural of what is counted ("documents", "shards"). total <= 0: unknown.
class Progress {
 public:
  Progress(std::string label, int64_t total, std::string unit, ProgressOptions options = {});
  ~Progress();  // removes an unfinished bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(int64_t amount);  // from any thread; cheap
  void finish();  // leaves one line with amount, time and rate, if anything was ever shown

 private:
  std::string amount(double value) const;
  std::string rate(double per_second) const;
  void draw(double now);

  const std::string label_;
  const int64_t total_;
  const std::string unit_;
  const ProgressOptions options_;
  const double begin_;
  std::atomic<int64_t> done_ = 0;
  std::atomic<double> next_draw_;
  std::mutex mutex_;  // guards what follows
  StatusLine status_;
  bool shown_ = false;
};

}  // namespace tutti::telemetry
