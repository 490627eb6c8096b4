#include "tutti/telemetry/sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <exception>
#include <utility>

#include "tutti/base/clock.h"

namespace tutti::telemetry {

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
  sinks_.push_back(std::move(sink));
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
  for_each_sink([](Sink& sink) { sink.flush(); });
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
  for_each_sink([&](Sink& sink) { sink.write(event); });
}

template <typename Action>
void Telemetry::for_each_sink(const Action& action) {
  const std::lock_guard lock(sinks_mutex_);
  std::deque<std::string> failures;
  const auto apply = [&](const auto& what) {
    for (auto& sink : sinks_) {
      try {
        what(*sink);
      } catch (const std::exception& error) {
        failures.emplace_back(error.what());
        sink.reset();
      }
    }
    std::erase(sinks_, nullptr);
  };
  apply(action);
  // Each failure removes a sink, so this ends.
  while (!failures.empty()) {
    const std::string text =
        fmt::format("a log is no longer written: {}; the run goes on", failures.front());
    failures.pop_front();
    const bool shown = std::any_of(sinks_.begin(), sinks_.end(),
                                   [](const auto& sink) { return sink->shows_messages(); });
    if (!shown) fmt::print(stderr, "warning: {}\n", text);
    const Event event{wall_seconds(), Message{Level::warning, text}};
    apply([&](Sink& sink) { sink.write(event); });
  }
}

}  // namespace tutti::telemetry
