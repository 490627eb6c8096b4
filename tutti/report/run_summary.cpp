#include "tutti/report/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/text.h"
#include "tutti/report/format.h"
#include "tutti/report/series.h"

namespace tutti::report {
namespace {

constexpr double kQuietSeconds = 120;  // that a running training may be silent at least

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += std::isfinite(value) ? value : 0;
  return total;
}

// A member of the summary that the run wrote at its end; 0 when absent.
double summary_value(const RunData& run, const char* key) {
  if (!run.finished) return 0;
  const auto found = run.finished->summary.find(key);
  return found != run.finished->summary.end() && found->is_number() ? found->get<double>() : 0;
}

RunState state_of(const RunData& run, const StepTimes& times, double now) {
  if (run.finished) return RunState::finished;
  const double usual = std::isfinite(times.longest) ? 10 * times.longest : 0;
  const double silent = now - run.parts.back().end_wall;
  return silent < std::max(kQuietSeconds, usual) ? RunState::running : RunState::broken;
}

void add_losses(const RunData& run, RunSummary& s) {
  for (size_t i = run.steps.size(); i-- > 0;) {
    if (!std::isfinite(run.steps.loss[i])) continue;
    s.final_loss = run.steps.loss[i];
    break;
  }
  for (const auto& evaluation : run.evaluations) {
    const double loss = evaluation.body.loss;
    s.evaluation_seconds += std::isfinite(evaluation.body.seconds) ? evaluation.body.seconds : 0;
    if (!std::isfinite(loss)) continue;
    s.validation_loss = loss;
    if (!s.best_validation_loss || loss < *s.best_validation_loss) {
      s.best_validation_loss = loss;
      s.best_step = evaluation.body.step;
    }
    if (s.target_loss && loss <= *s.target_loss && !s.time_to_target_seconds) {
      s.time_to_target_seconds = evaluation.train_seconds;
    }
  }
  // The run's own clock is the better one: it starts with training, not with its announcement.
  const double own = summary_value(run, "time_to_target_seconds");
  if (own > 0) s.time_to_target_seconds = own;
}

void add_speed(const RunData& run, RunSummary& s) {
  const StepSeries& steps = run.steps;
  s.step_seconds = {quantile(steps.step_seconds, 0.5), quantile(steps.step_seconds, 0.95),
                    quantile(steps.step_seconds, 0.99), quantile(steps.step_seconds, 1)};
  double tokens = 0;
  double seconds = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const double rate = steps.tokens_per_second[i];
    const double time = steps.step_seconds[i];
    if (!std::isfinite(rate) || !std::isfinite(time)) continue;
    tokens += rate * time;
    seconds += time;
  }
  if (seconds > 0) s.tokens_per_second = tokens / seconds;
  if (run.started) {
    s.flops_per_token = run.started->flops_per_token;
    // A step may have shown more than was measured at the start.
    s.gemm_peak_flops =
        std::max(run.started->gemm_peak_flops, summary_value(run, "gemm_peak_flops"));
    s.mfu_formula = run.started->mfu_formula;
  }
  if (s.mfu_formula.empty() && run.finished) {
    const auto found = run.finished->summary.find("mfu_formula");
    if (found != run.finished->summary.end() && found->is_string()) s.mfu_formula = *found;
  }
  if (s.gemm_peak_flops > 0) s.mfu = s.tokens_per_second * s.flops_per_token / s.gemm_peak_flops;
}

void add_notes(const RunData& run, RunSummary& s) {
  const auto note = [&](std::string text) { s.notes.push_back(std::move(text)); };
  if (s.state == RunState::running) {
    note(fmt::format("This run was still running when the page was made, at step {}.",
                     format_integer(s.steps)));
  }
  if (s.state == RunState::broken) {
    note(
        fmt::format("The run ended without a word after step {}: killed, crashed or out of power. "
                    "Figures that are only known at the end are missing.",
                    format_integer(s.steps)));
  }
  if (run.lines.last_line_cut) {
    note("The last line of events.jsonl is cut off; everything before it is shown.");
  }
  const int64_t damaged = run.lines.unreadable - (run.lines.last_line_cut ? 1 : 0);
  if (damaged > 0) {
    note(fmt::format("{} line{} of events.jsonl cannot be read and {} left out.",
                     format_integer(damaged), damaged == 1 ? "" : "s",
                     damaged == 1 ? "is" : "are"));
  }
  if (run.steps.size() == 0) note("No training step is recorded.");
  const int64_t first = run.steps.size() > 0 ? static_cast<int64_t>(run.steps.step.front()) : 1;
  if (first > 1) {
    note(fmt::format("The record starts with step {}; the steps before it are in no log here.",
                     format_integer(first)));
  }
  if (run.recipe_yaml.empty()) note("The run folder holds no recipe.yaml.");
}

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

}  // namespace

const char* run_state_name(RunState state) {
  switch (state) {
    case RunState::finished: return "finished";
    case RunState::running: return "running";
    case RunState::broken: return "broken";
  }
  return "unknown";
}

RunSummary summarize(const RunData& run, double now_wall_seconds) {
  RunSummary s;
  s.folder = run.folder;
  s.name = run.started && !run.started->name.empty() ? run.started->name
                                                     : std::string(base_name(run.folder));
  if (run.started) {
    s.parameters = run.started->parameters;
    s.planned_steps = run.started->steps;
    s.target_loss = run.started->target_loss;
  }
  s.tokens = run.tokens;
  s.steps = run.steps.size() > 0 ? static_cast<int64_t>(run.steps.step.back()) : 0;
  add_speed(run, s);
  s.state = state_of(run, s.step_seconds, now_wall_seconds);
  if (run.finished) s.outcome = run.finished->outcome;
  add_losses(run, s);
  if (run.steps.size() > 0) s.train_seconds = run.steps.train_seconds.back();
  if (!run.evaluations.empty()) {
    s.train_seconds = std::max(s.train_seconds, run.evaluations.back().train_seconds);
  }
  s.skipped_steps = run.skipped_steps;
  s.resumes = static_cast<int64_t>(std::count_if(
      run.parts.begin(), run.parts.end(), [](const RunPart& part) { return part.first_step > 0; }));
  s.repeated_steps = run.repeated_steps;
  s.checkpoints = static_cast<int64_t>(run.checkpoints.size());
  s.failed_checkpoints = static_cast<int64_t>(run.failed_checkpoints.size());
  for (const auto& saved : run.checkpoints) s.checkpoint_stall_seconds += saved.body.stall_seconds;
  s.data_wait_seconds = sum(run.steps.data_wait_seconds);
  s.peak_memory_bytes = run.peak_resident_bytes > 0
                            ? run.peak_resident_bytes
                            : static_cast<int64_t>(summary_value(run, "peak_memory_bytes"));
  add_notes(run, s);
  return s;
}

Json to_json(const RunSummary& s) {
  const auto finite = [](double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); };
  return Json{{"run", s.folder},
              {"name", s.name},
              {"state", run_state_name(s.state)},
              {"outcome", s.outcome.empty() ? Json(nullptr) : Json(s.outcome)},
              {"parameters", s.parameters},
              {"steps", s.steps},
              {"planned_steps", s.planned_steps},
              {"tokens", s.tokens},
              {"train_seconds", s.train_seconds},
              {"final_loss", number_or_null(s.final_loss)},
              {"validation_loss", number_or_null(s.validation_loss)},
              {"best_validation_loss", number_or_null(s.best_validation_loss)},
              {"best_step", s.best_step},
              {"target_loss", number_or_null(s.target_loss)},
              {"reached_target", s.time_to_target_seconds.has_value()},
              {"time_to_target_seconds", number_or_null(s.time_to_target_seconds)},
              {"tokens_per_second", s.tokens_per_second},
              {"mfu", s.mfu > 0 ? Json(s.mfu) : Json(nullptr)},
              {"mfu_formula", s.mfu_formula},
              {"gemm_peak_flops", s.gemm_peak_flops},
              {"step_seconds",
               {{"p50", finite(s.step_seconds.p50)},
                {"p95", finite(s.step_seconds.p95)},
                {"p99", finite(s.step_seconds.p99)},
                {"max", finite(s.step_seconds.longest)}}},
              {"skipped_steps", s.skipped_steps},
              {"resumes", s.resumes},
              {"repeated_steps", s.repeated_steps},
              {"checkpoints", s.checkpoints},
              {"failed_checkpoints", s.failed_checkpoints},
              {"checkpoint_stall_seconds", s.checkpoint_stall_seconds},
              {"data_wait_seconds", s.data_wait_seconds},
              {"evaluation_seconds", s.evaluation_seconds},
              {"peak_memory_bytes", s.peak_memory_bytes},
              {"notes", s.notes}};
}

}  // namespace tutti::report
