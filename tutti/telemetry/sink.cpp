#include "tutti/telemetry/sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include "tutti/base/clock.h"

namespace tutti::telemetry {
namespace {

constexpr double kRetrySeconds = 0.1;
constexpr int kFlushAttempts = 3;

}  // namespace

Telemetry::~Telemetry() {
  flush();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (worker_.joinable()) worker_.join();
}

void Telemetry::add(std::unique_ptr<Sink> sink) {
  const std::lock_guard lock(sinks_mutex_);
  outputs_.emplace_back().sink = std::move(sink);
}

void Telemetry::emit(decltype(Event::body) body) {
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() >= kQueueLimit && std::holds_alternative<StepDone>(body)) {
      ++left_out_;
      return;
    }
    queue_.push_back({wall_seconds(), std::move(body)});
    ++emitted_;
    if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  }
  wake_.notify_one();
}

void Telemetry::flush() {
  {
    std::unique_lock lock(mutex_);
    const uint64_t target = emitted_;
    written_.wait(lock, [&] { return done_ >= target; });
  }
  const std::lock_guard lock(sinks_mutex_);
  for (Output& output : outputs_) {
    for (int again = 1; !write_waiting(output) && again < kFlushAttempts; ++again) {
      sleep_seconds(kRetrySeconds);
    }
  }
  log_output_changes();
  for (Output& output : outputs_) {
    if (!output.waiting.empty()) continue;  // that it fails is known
    const bool synced = attempt(output, [](Sink& sink) { sink.flush(); });
    if (std::exchange(output.is_synced, synced) && !synced) {
      pending_warnings_.push_back(
          fmt::format("a log may not survive a power cut: {}; the run continues", output.cause));
    }
  }
  log_output_changes();
}

int64_t Telemetry::missing_events() {
  const std::lock_guard lock(sinks_mutex_);
  int64_t most = 0;
  for (const Output& output : outputs_) {
    most = std::max(most, output.missing + static_cast<int64_t>(output.waiting.size()));
  }
  return most;
}

void Telemetry::work() {
  std::vector<Event> batch;  // swapped with the queue, so that emit() seldom allocates
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    batch.clear();
    batch.swap(queue_);
    const auto count = static_cast<uint64_t>(batch.size());
    if (left_out_ > 0) {
      batch.push_back(
          {wall_seconds(),
           Message{Level::warning,
                   fmt::format("events were written too slowly: {} steps are missing from the logs",
                               std::exchange(left_out_, 0))}});
    }
    lock.unlock();
    for (const Event& event : batch) deliver(event);
    lock.lock();
    done_ += count;
    written_.notify_all();
  }
}

void Telemetry::deliver(const Event& event) {
  const std::lock_guard lock(sinks_mutex_);
  for (Output& output : outputs_) write(output, event);
  log_output_changes();
}

void Telemetry::write(Output& output, const Event& event) {
  const bool is_due = monotonic_seconds() - output.tried_at >= kRetrySeconds;
  if (!output.waiting.empty() && is_due) write_waiting(output);
  if (output.waiting.empty()) {
    const auto put = [&](Sink& sink) { sink.write(event); };
    // What has failed once may be over a moment later.
    const bool wrote = attempt(output, put) || attempt(output, put);
    if (wrote) return recovered(output);
  }
  keep(output, event);
}

// False: not all of them, for now.
bool Telemetry::write_waiting(Output& output) {
  while (!output.waiting.empty()) {
    if (!attempt(output, [&](Sink& sink) { sink.write(output.waiting.front()); })) return false;
    output.waiting.pop_front();
    if (output.waiting.empty()) note_gap(output);
    if (output.waiting.empty()) recovered(output);
  }
  return true;
}

template <typename Action>
bool Telemetry::attempt(Output& output, const Action& action) {
  try {
    action(*output.sink);
    return true;
  } catch (const std::exception& error) {
    output.cause = error.what();
  }
  output.tried_at = monotonic_seconds();
  return false;
}

void Telemetry::keep(Output& output, const Event& event) {
  const auto* step = std::get_if<StepDone>(&event.body);
  const size_t limit = step != nullptr ? kWaitingLimit : 2 * kWaitingLimit;
  if (output.waiting.size() >= limit) {
    ++output.lost.events;
    ++output.missing;
    if (step != nullptr) {
      if (output.lost.first_step == 0) output.lost.first_step = step->step;
      output.lost.last_step = step->step;
    }
  } else {
    note_gap(output);
    output.waiting.push_back(event);
  }
  if (std::exchange(output.is_failing, true)) return;
  pending_warnings_.push_back(
      fmt::format("a log cannot be written: {}; the run continues and retries", output.cause));
}

// What was left out stands between what waits and what comes.
void Telemetry::note_gap(Output& output) {
  if (output.lost.events == 0) return;
  output.lost.cause = output.cause;
  output.waiting.push_back({wall_seconds(), std::exchange(output.lost, {})});
}

void Telemetry::recovered(Output& output) {
  if (!std::exchange(output.is_failing, false)) return;
  pending_warnings_.push_back(
      fmt::format("a log is written again ({}); {}", output.cause,
                  output.missing == 0 ? std::string("nothing is missing")
                                      : fmt::format("{} events are missing", output.missing)));
}

// Those that fail get it like any event, and may then report more: each only once.
void Telemetry::log_output_changes() {
  while (!pending_warnings_.empty()) {
    const std::vector<std::string> texts = std::exchange(pending_warnings_, {});
    const bool shown = std::any_of(outputs_.begin(), outputs_.end(), [](const Output& output) {
      return output.sink->shows_messages() && !output.is_failing;
    });
    for (const std::string& text : texts) {
      if (!shown) fmt::print(stderr, "warning: {}\n", text);
      const Event event{wall_seconds(), Message{Level::warning, text}};
      for (Output& output : outputs_) write(output, event);
    }
  }
}

}  // namespace tutti::telemetry
