// Progress of a run on standard error: on a terminal a status line with a bar, step, loss,
// validation loss, tokens/s, MFU and time left, and above it one line per evaluation, checkpoint
// and warning; elsewhere the same as plain lines every few seconds. The summary is the command's to
// print.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/telemetry/sink.h"
#include "tutti/telemetry/sinks/console.h"

namespace tutti::telemetry {

struct TerminalOptions {
  Console console = stderr_console();
  double terminal_interval_seconds = 0.1;
  double plain_interval_seconds = 5;
};

// Time comes from the events, so that output is a function of them.
class TerminalSink final : public Sink {
 public:
  explicit TerminalSink(TerminalOptions options = {});
  ~TerminalSink() override;
  void write(const Event& event) override;
  bool shows_messages() const override { return true; }

 private:
  void show(const RunStarted& event);
  // These appear in the log and the report instead.
  void show(const MachineDescribed& /*event*/) {}
  void show(const CorpusDescribed& /*event*/) {}
  void show(const MemoryMeasured& /*event*/) {}
  void show(const GpuMeasured& /*event*/) {}
  void show(const StepDone& event);
  void show(const EvaluationDone& event);
  void show(const CheckpointSaved& event);
  void show(const CheckpointFailed& event);
  void show(const TextGenerated& event);
  void show(const NonFinite& event);
  void show(const BudgetExceeded& event);
  void show(const Message& event);
  void show(const EventsLost& /*event*/) {}
  void show(const MlperfLine& /*event*/) {}
  void show(const RunFinished& event);
  std::string progress_text(int columns) const;
  void draw();

  TerminalOptions options_;
  StatusLine status_;
  double now_ = 0;  // wall time of the event being written, seconds
  RunStarted run_;
  std::optional<StepDone> step_;
  double step_time_ = 0;  // its wall time
  bool step_is_shown_ = false;
  std::optional<double> validation_loss_;
  std::optional<double> best_validation_loss_;
  // The pace counts from the end of the first step of this process, so evaluations and stalls are
  // in it and warm-up is not.
  int64_t pace_step_ = 0;
  double pace_time_ = 0;
  double next_draw_ = 0;
};

}  // namespace tutti::telemetry
