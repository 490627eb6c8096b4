#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/units.h"
#include "tutti/report/bars.h"
#include "tutti/report/gantt.h"
#include "tutti/report/html.h"
#include "tutti/report/line_chart.h"
#include "tutti/report/run_sections.h"

namespace tutti::report {
namespace {

constexpr size_t kShownParts = 200;  // resumes and lanes are many only where a machine is broken

double tokens_per_step(const RunData& run) {
  return run.started ? static_cast<double>(run.started->tokens_per_step) : 0;
}

std::vector<Mark> resume_marks(const RunData& run) {
  std::vector<Mark> marks;
  for (const RunPart& part : run.parts) {
    if (part.first_step > 0 && marks.size() < kShownParts) {
      marks.push_back({static_cast<double>(part.first_step), "resumed"});
    }
  }
  return marks;
}

// A chart of one value per step.
LineChart step_chart(const RunData& run, const char* id, const char* title, std::string subtitle,
                     const std::vector<double>& values, Quantity quantity, int color) {
  LineChart chart;
  chart.id = id;
  chart.title = title;
  chart.subtitle = std::move(subtitle);
  chart.y_quantity = quantity;
  chart.tokens_per_step = tokens_per_step(run);
  chart.vertical = resume_marks(run);
  Curve curve;
  curve.name = title;
  curve.x = run.steps.step;
  curve.y = values;
  curve.color = color;
  curve.smoothed = true;
  chart.curves.push_back(std::move(curve));
  return chart;
}

std::string smoothing_note(const RunData& run) {
  return fmt::format("Smoothed: exponential mean over about {} steps.",
                     format_integer(std::llround(smoothing_span(run.steps.size()))));
}

bool any_positive(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double x) { return x > 0; });
}

Histogram step_times(const RunData& run, const RunSummary& summary) {
  const StepTimes& times = summary.step_seconds;
  Histogram histogram;
  histogram.id = "chart-step-time";
  histogram.title = "Step time";
  histogram.quantity = Quantity::seconds;
  histogram.what = "steps";
  histogram.values = run.steps.step_seconds;
  const auto text = [](double x) { return format_value(Quantity::seconds, x); };
  histogram.subtitle = fmt::format(
      "Half of the steps take {} or less, 95% {}, 99% {}; the longest "
      "took {}.",
      text(times.p50), text(times.p95), text(times.p99), text(times.longest));
  histogram.marks = {{times.p50, "p50 " + text(times.p50)},
                     {times.p95, "p95 " + text(times.p95)},
                     {times.p99, "p99 " + text(times.p99)}};
  histogram.clip = times.p50 + 1.6 * (times.p99 - times.p50) + 0.05 * times.p50;
  return histogram;
}

Bars memory_bars(const RunData& run, const RunSummary& summary) {
  Bars bars;
  bars.id = "chart-memory";
  bars.title = "Memory by kind";
  double total = 0;
  for (const telemetry::MemoryByKind& part : run.memory) {
    bars.bars.push_back({part.kind, static_cast<double>(part.bytes), 0});
    total += static_cast<double>(part.bytes);
  }
  // Older runs record it in their summary only.
  if (run.memory.empty() && run.finished) {
    const auto memory = run.finished->summary.find("memory");
    if (memory != run.finished->summary.end() && memory->is_object()) {
      for (const auto& [key, value] : memory->items()) {
        if (!value.is_number()) continue;
        const std::string suffix = "_bytes";
        const bool cut = key.size() > suffix.size() && key.ends_with(suffix);
        bars.bars.push_back(
            {cut ? key.substr(0, key.size() - suffix.size()) : key, value.get<double>(), 0});
        total += value.get<double>();
      }
    }
  }
  if (total > 0) {
    bars.subtitle =
        fmt::format("Arenas as described and allocated, {} in all.", format_bytes(total));
  }
  if (summary.peak_memory_bytes > 0) {
    bars.subtitle += fmt::format(" Peak of the process: {}.",
                                 format_bytes(static_cast<double>(summary.peak_memory_bytes)));
  }
  return bars;
}

}  // namespace

std::string loss_section(const RunData& run, const RunSummary& summary) {
  LineChart chart =
      step_chart(run, "chart-loss", "training", "", run.steps.loss, Quantity::loss, 0);
  chart.title = "Loss";
  chart.subtitle = "Nats per token. " + smoothing_note(run);
  chart.wide = true;
  chart.offers_log = true;
  Curve validation;
  validation.name = "validation";
  validation.color = 1;
  validation.style = Curve::Style::dots;
  for (const auto& evaluation : run.evaluations) {
    validation.x.push_back(static_cast<double>(evaluation.body.step));
    validation.y.push_back(evaluation.body.loss);
  }
  chart.curves.push_back(std::move(validation));
  if (run.started && run.started->teacher) {
    const auto part = [&](const char* name, const std::vector<double>& values, int color) {
      Curve curve = chart.curves.front();
      curve.name = name;
      curve.y = values;
      curve.color = color;
      chart.curves.push_back(std::move(curve));
    };
    part("cross-entropy", run.steps.cross_entropy, 2);
    part("divergence from the teacher", run.steps.divergence, 3);
  }
  if (summary.target_loss) {
    chart.horizontal.push_back(
        {*summary.target_loss, "target " + format_value(Quantity::loss, *summary.target_loss)});
  }
  return draw(chart);
}

std::string speed_section(const RunData& run, const RunSummary& summary) {
  std::string out = "<div class=\"grid2\">";
  LineChart rate = step_chart(run, "chart-tokens-per-second", "Tokens per second",
                              "Of training steps, evaluation and checkpoints left out.",
                              run.steps.tokens_per_second, Quantity::rate, 2);
  rate.from_zero = true;
  out += draw(rate);
  if (any_positive(run.steps.mfu)) {
    LineChart mfu =
        step_chart(run, "chart-mfu", "MFU", "Share of the measured matrix-product peak.",
                   run.steps.mfu, Quantity::ratio, 2);
    mfu.from_zero = true;
    out += draw(mfu);
  }
  out += draw(step_times(run, summary));
  out += draw(memory_bars(run, summary));
  if (any_positive(run.steps.data_wait_seconds)) {
    out += draw(step_chart(run, "chart-data-wait", "Waiting for data",
                           "Time per step that training waited for its tokens.",
                           run.steps.data_wait_seconds, Quantity::seconds, 4));
  }
  out += "</div>";
  if (summary.mfu > 0) {
    out += fmt::format(
        "<p class=\"note\">MFU = tokens per second × model FLOPs per token ÷ peak. Model FLOPs per "
        "token: {}{}. Peak: {}, the matrix-product rate measured on this machine before "
        "training, in the precision of the run.</p>\n",
        summary.mfu_formula.empty() ? "" : escape_html(summary.mfu_formula) + " = ",
        format_count(summary.flops_per_token), format_flops(summary.gemm_peak_flops));
  }
  return out;
}

std::string optimizer_section(const RunData& run, const RunSummary& /*summary*/) {
  LineChart norm = step_chart(run, "chart-gradient-norm", "Gradient norm", "Before clipping.",
                              run.steps.gradient_norm, Quantity::number, 3);
  norm.offers_log = true;
  norm.from_zero = true;
  LineChart rate =
      step_chart(run, "chart-learning-rate", "Learning rate", "As the schedule set it.",
                 run.steps.learning_rate, Quantity::number, 4);
  rate.curves[0].smoothed = false;
  rate.from_zero = true;
  return "<div class=\"grid2\">" + draw(norm) + draw(rate) + "</div>";
}

std::string timeline_section(const RunData& run) {
  Gantt gantt;
  gantt.id = "chart-timeline";
  gantt.title = "Timeline";
  gantt.subtitle = "Wall-clock time since the run first started. Gaps between sessions are pauses.";
  Lane sessions{"sessions", {}, 0};
  for (const RunPart& part : run.parts) {
    if (sessions.spans.size() >= kShownParts) break;
    sessions.spans.push_back({part.begin_wall, part.end_wall,
                              fmt::format("steps {} to {}", format_integer(part.first_step + 1),
                                          format_integer(part.last_step))});
  }
  Lane evaluations{"evaluation", {}, 1};
  for (const auto& evaluation : run.evaluations) {
    const double seconds = std::isfinite(evaluation.body.seconds) ? evaluation.body.seconds : 0;
    evaluations.spans.push_back({evaluation.wall - seconds, evaluation.wall,
                                 "after step " + format_integer(evaluation.body.step)});
  }
  Lane checkpoints{"checkpoints", {}, 2};
  for (const auto& saved : run.checkpoints) {
    checkpoints.spans.push_back({saved.wall - saved.body.write_seconds, saved.wall,
                                 "step " + format_integer(saved.body.step)});
  }
  for (Lane* lane : {&sessions, &evaluations, &checkpoints}) {
    if (!lane->spans.empty()) gantt.lanes.push_back(std::move(*lane));
  }
  return draw(gantt);
}

}  // namespace tutti::report
