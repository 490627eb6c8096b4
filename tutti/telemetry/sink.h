// Where events go. A Telemetry fans each event out to its sinks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/telemetry/events.h"

namespace tutti::telemetry {

// Called by one thread at a time, with events in the order in which they were emitted.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(const Event& event) = 0;
  virtual void flush() {}
  // True when a person reads the Messages that this sink is given.
  virtual bool shows_messages() const { return false; }
};

// Thread-safe, and never in training's way: emit() only queues, and a thread of its own writes to
// the sinks, so a slow disk delays no step. When sinks fall kQueueLimit events behind, StepDone
// events are left out and their number is told in a warning. A sink that throws is dropped, with
// one warning to the remaining sinks (on standard error when none of them shows it to a person):
// a full disk under a log never stops training.
class Telemetry {
 public:
  static constexpr size_t kQueueLimit = 65536;

  Telemetry() = default;
  ~Telemetry();  // writes what is queued, then flushes
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  void add(std::unique_ptr<Sink> sink);
  void emit(decltype(Event::body) body);
  void info(const std::string& text) { emit(Message{Level::info, text}); }
  void warn(const std::string& text) { emit(Message{Level::warning, text}); }

  // Returns when every event emitted before has been written and the sinks are flushed. Must be
  // called before other output to the terminal, and before the process ends without destructors.
  void flush();

 private:
  void work();
  void deliver(const Event& event);
  template <typename Action>
  void for_each_sink(const Action& action);

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::condition_variable written_;
  std::vector<Event> queue_;
  uint64_t emitted_ = 0;  // events ever put into the queue
  uint64_t done_ = 0;     // and written
  int64_t left_out_ = 0;
  bool stop_ = false;
  std::thread worker_;

  std::mutex sinks_mutex_;  // guards what follows; may be held long
  std::vector<std::unique_ptr<Sink>> sinks_;
};

}  // namespace tutti::telemetry
