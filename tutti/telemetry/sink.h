// Event sinks. A Telemetry fans each event out to its sinks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/telemetry/events.h"

namespace tutti::telemetry {

// Called by one thread at a time, with events in the order in which they were emitted. An event
// whose write() threw is given again.
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
// events are dropped and their number is logged in a warning.
//
// A sink that throws is tried again, at once, then with later events and at each flush; until it
// works, its events wait. That it fails, and that it works again, is reported to the other sinks
// (on standard error when none of them shows it to a person), once each. Beyond kWaitingLimit
// waiting events StepDone events are left out for that sink, beyond twice as many all are, and it
// gets an EventsLost where they would have been. So a full disk under a log never stops training,
// and what the log lacks it says.
class Telemetry {
 public:
  static constexpr size_t kQueueLimit = 65536;
  static constexpr size_t kWaitingLimit = 16384;

  Telemetry() = default;
  ~Telemetry();  // writes what is queued, then flushes
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  void add(std::unique_ptr<Sink> sink);
  void emit(decltype(Event::body) body);
  void info(const std::string& text) { emit(Message{Level::info, text}); }
  void warn(const std::string& text) { emit(Message{Level::warning, text}); }

  // Returns when every event emitted before has been written, or has waited in vain for a sink that
  // fails, and the sinks are flushed. Must be called before other output to the terminal, and
  // before the process ends without destructors.
  void flush();

  // Events that some log lacks so far: those left out, and those that still wait. After flush().
  int64_t missing_events();

 private:
  struct Output {
    std::unique_ptr<Sink> sink;
    std::deque<Event> waiting;  // that could not be written yet, oldest first
    EventsLost lost;            // left out after them
    int64_t missing = 0;        // left out since the start
    double tried_at = 0;        // monotonic, when a write last failed
    std::string cause;          // of the last failure
    bool is_failing = false;    // and that was reported
    bool is_synced = true;      // likewise, its last flush
  };

  void work();
  void deliver(const Event& event);
  void write(Output& output, const Event& event);
  bool write_waiting(Output& output);
  template <typename Action>
  bool attempt(Output& output, const Action& action);
  void keep(Output& output, const Event& event);
  void note_gap(Output& output);
  void recovered(Output& output);
  void log_output_changes();

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
  std::deque<Output> outputs_;
  std::vector<std::string> pending_warnings_;  // what changed about them
};

}  // namespace tutti::telemetry
