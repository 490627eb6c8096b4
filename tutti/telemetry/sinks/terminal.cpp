#include "tutti/telemetry/sinks/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tutti/base/text.h"
#include "tutti/base/units.h"

namespace tutti::telemetry {
namespace {

constexpr int kPlainColumns = 1000;  // where nothing needs to be left out

std::string format_loss(double loss) { return fmt::format("{:.4f}", loss); }

}  // namespace

TerminalSink::TerminalSink(TerminalOptions options)
    : options_(std::move(options)), status_(options_.console) {}

TerminalSink::~TerminalSink() { status_.clear(); }

void TerminalSink::write(const Event& event) {
  now_ = event.wall_seconds;
  std::visit([this](const auto& body) { show(body); }, event.body);
}

void TerminalSink::show(const RunStarted& event) {
  run_ = event;
  std::string text = fmt::format("training {}", event.name.empty() ? event.run : event.name);
  if (event.parameters > 0) {
    text += fmt::format(", {} parameters", format_count(static_cast<double>(event.parameters)));
  }
  if (event.steps > 0) {
    text += fmt::format(", {} steps", format_count(static_cast<double>(event.steps)));
  }
  if (event.target_loss) text += fmt::format(", to loss {}", format_loss(*event.target_loss));
  status_.print(text);
}

void TerminalSink::show(const StepDone& event) {
  step_ = event;
  step_time_ = now_;
  step_is_shown_ = false;
  if (pace_step_ == 0) {
    pace_step_ = event.step;
    pace_time_ = now_;
  }
  if (now_ >= next_draw_) draw();
}

void TerminalSink::show(const EvaluationDone& event) {
  validation_loss_ = event.loss;
  const bool reached = run_.target_loss && event.loss <= *run_.target_loss;
  const bool best = best_validation_loss_ && event.loss < *best_validation_loss_;
  if (std::isfinite(event.loss) && (best || !best_validation_loss_)) {
    best_validation_loss_ = event.loss;
  }
  const char* remark = reached ? ", target reached" : best ? ", best so far" : "";
  status_.print(fmt::format("step {}: validation loss {}{}, {}", event.step,
                            format_loss(event.loss), remark, format_seconds(event.seconds)),
                reached ? Tint::good : Tint::plain);
}

void TerminalSink::show(const CheckpointSaved& event) {
  status_.print(fmt::format("step {}: checkpoint {} saved, {} in {}, training waited {}",
                            event.step, event.path, format_bytes(static_cast<double>(event.bytes)),
                            format_seconds(event.write_seconds),
                            format_seconds(event.stall_seconds)));
}

void TerminalSink::show(const CheckpointFailed& event) {
  status_.print(
      fmt::format("warning: step {}: checkpoint not saved: {}", event.step, event.message),
      Tint::warning);
}

void TerminalSink::show(const TextGenerated& event) {
  status_.print(fmt::format("step {}: the model writes", event.step));
  const std::string text = event.prompt + event.text;
  for (const std::string_view line : split(text, '\n')) status_.print("  | " + std::string(line));
}

void TerminalSink::show(const NonFinite& event) {
  status_.print(
      fmt::format("warning: step {}: gradient of {} is not finite, step skipped ({} in a row)",
                  event.step, event.tensor, event.in_a_row),
      Tint::warning);
}

void TerminalSink::show(const BudgetExceeded& event) {
  status_.print(fmt::format("warning: budget exceeded: {:.6g} {} used, {:.6g} allowed", event.used,
                            event.what, event.limit),
                Tint::warning);
}

void TerminalSink::show(const Message& event) {
  const bool warning = event.level == Level::warning;
  for (const std::string_view line : split(event.text, '\n')) {
    status_.print((warning ? "warning: " : "") + std::string(line),
                  warning ? Tint::warning : Tint::plain);
  }
}

void TerminalSink::show(const RunFinished& event) {
  if (step_ && !step_is_shown_ && !status_.terminal()) draw();
  status_.clear();
  std::string outcome = event.outcome;
  std::replace(outcome.begin(), outcome.end(), '_', ' ');
  status_.print("finished: " + outcome,
                event.outcome == "target_reached" ? Tint::good : Tint::plain);
}

// A bar, then fields in order of importance; the last ones are left out when `columns` are too few.
std::string TerminalSink::progress_text(int columns) const {
  const StepDone& step = *step_;
  const int bar = status_.terminal() && run_.steps > 0 ? progress_bar_width(columns) : 0;
  std::vector<std::string> fields;
  if (bar > 0) {
    const double fraction = static_cast<double>(step.step) / static_cast<double>(run_.steps);
    fields.push_back(fmt::format("{} {}/{}", progress_bar(fraction, bar), step.step, run_.steps));
  } else {
    fields.push_back(run_.steps > 0 ? fmt::format("step {}/{}", step.step, run_.steps)
                                    : fmt::format("step {}", step.step));
  }
  fields.push_back("loss " + format_loss(step.loss));
  if (run_.steps > step.step) {
    const auto paced = static_cast<double>(step.step - pace_step_);
    const double per_step = paced > 0 ? (step_time_ - pace_time_) / paced : step.step_seconds;
    fields.push_back(format_seconds(per_step * static_cast<double>(run_.steps - step.step)) +
                     " left");
  }
  fields.push_back(format_rate(step.tokens_per_second, "tokens"));
  if (step.mfu > 0) fields.push_back(fmt::format("MFU {:.1f}%", 100 * step.mfu));
  if (validation_loss_) fields.push_back("val " + format_loss(*validation_loss_));

  std::string text = fields.front();
  for (size_t i = 1; i < fields.size(); ++i) {
    if (static_cast<int>(text.size() + 2 + fields[i].size()) > columns) break;
    text += "  " + fields[i];
  }
  return text;
}

void TerminalSink::draw() {
  step_is_shown_ = true;
  if (status_.terminal()) {
    status_.show(progress_text(status_.columns() - 1));
    next_draw_ = now_ + options_.terminal_interval_seconds;
  } else {
    status_.print(progress_text(kPlainColumns));
    next_draw_ = now_ + options_.plain_interval_seconds;
  }
}

}  // namespace tutti::telemetry
