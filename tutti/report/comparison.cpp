#include "tutti/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/report/html.h"
#include "tutti/report/line_chart.h"

namespace tutti::report {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;
using Runs = std::vector<RunData>;
using Summaries = std::vector<RunSummary>;

// What a run was made of, as text by key.
Pairs ingredients(const RunData& run) {
  Pairs pairs = run.recipe;
  std::erase_if(pairs, [](const auto& pair) { return pair.first == "run.name"; });
  if (run.machine) {
    const telemetry::MachineDescribed& m = *run.machine;
    pairs.emplace_back("machine.host", m.host);
    pairs.emplace_back("machine.cpu", m.cpu);
    pairs.emplace_back("machine.cores", std::to_string(m.cores));
    pairs.emplace_back("machine.threads", std::to_string(m.threads));
    pairs.emplace_back("machine.instruction_set", m.instruction_set);
    pairs.emplace_back("machine.version", m.version);
  }
  for (const telemetry::CorpusDescribed& corpus : run.corpora) {
    pairs.emplace_back("corpus." + corpus.role + ".hash", corpus.hash);
    pairs.emplace_back("corpus." + corpus.role + ".tokens", std::to_string(corpus.tokens));
  }
  return pairs;
}

std::string find_value(const Pairs& pairs, const std::string& key) {
  for (const auto& [name, value] : pairs) {
    if (name == key) return value;
  }
  return {};
}

using Values = std::function<const std::vector<double>&(const RunData&)>;

LineChart overlay(const Runs& runs, const std::vector<std::string>& labels, const char* id,
                  const char* title, const char* subtitle, Quantity quantity,
                  const Values& values) {
  LineChart chart;
  chart.id = id;
  chart.title = title;
  chart.subtitle = subtitle;
  chart.y_quantity = quantity;
  chart.points = runs.size() > 4 ? 500 : 1000;
  for (size_t i = 0; i < runs.size(); ++i) {
    Curve curve;
    curve.name = labels[i];
    curve.x = runs[i].steps.step;
    curve.y = values(runs[i]);
    curve.color = static_cast<int>(i);
    curve.smoothed = true;
    chart.curves.push_back(std::move(curve));
  }
  return chart;
}

// The losses of evaluations over steps, or over the run's own clock.
LineChart validation_chart(const Runs& runs, const Summaries& summaries,
                           const std::vector<std::string>& labels, bool over_time) {
  LineChart chart;
  chart.id = over_time ? "chart-validation-time" : "chart-validation";
  chart.title = over_time ? "Validation loss over time" : "Validation loss over steps";
  chart.subtitle = over_time ? "Training and evaluation, without pauses." : "Nats per token.";
  chart.y_quantity = Quantity::loss;
  chart.offers_log = true;
  if (over_time) {
    chart.x_name = "time";
    chart.x_quantity = Quantity::seconds;
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    Curve curve;
    curve.name = labels[i];
    curve.color = static_cast<int>(i);
    curve.style = Curve::Style::dots;
    for (const auto& evaluation : runs[i].evaluations) {
      curve.x.push_back(over_time ? evaluation.train_seconds
                                  : static_cast<double>(evaluation.body.step));
      curve.y.push_back(evaluation.body.loss);
    }
    chart.curves.push_back(std::move(curve));
  }
  // A target that all share.
  const auto& target = summaries.front().target_loss;
  if (target && std::all_of(summaries.begin(), summaries.end(),
                            [&](const RunSummary& s) { return s.target_loss == target; })) {
    chart.horizontal.push_back({*target, "target " + format_value(Quantity::loss, *target)});
  }
  return chart;
}

// "1.4987", and how far from the first run's: "1.4987 (+2.1%)".
std::vector<std::string> compared(const Summaries& summaries, Quantity quantity,
                                  const std::function<double(const RunSummary&)>& value) {
  std::vector<std::string> cells;
  const double first = value(summaries.front());
  for (const RunSummary& s : summaries) {
    const double x = value(s);
    std::string cell = format_value(quantity, x);
    const bool comparable = std::isfinite(x) && std::isfinite(first) && first != 0 && x != first;
    if (&s != &summaries.front() && comparable) {
      cell += fmt::format(" ({:+.1f}%)", 100 * (x / first - 1));
    }
    cells.push_back(std::move(cell));
  }
  return cells;
}

double or_nan(const std::optional<double>& value) { return value.value_or(std::nan("")); }
double known(double value) { return value > 0 ? value : std::nan(""); }

std::string figures_table(const Summaries& summaries, const std::vector<std::string>& labels) {
  Table table{"Figures", false, {{""}}, {}};
  for (const std::string& label : labels) table.columns.push_back({label, true});
  const auto row = [&](const char* name, std::vector<std::string> cells) {
    cells.insert(cells.begin(), name);
    table.rows.push_back(std::move(cells));
  };
  const auto measure = [&](const char* name, Quantity quantity,
                           const std::function<double(const RunSummary&)>& value) {
    row(name, compared(summaries, quantity, value));
  };
  std::vector<std::string> outcomes;
  for (const RunSummary& s : summaries) {
    std::string text = s.outcome.empty() ? run_state_name(s.state) : s.outcome;
    std::replace(text.begin(), text.end(), '_', ' ');
    outcomes.push_back(text);
  }
  row("Outcome", std::move(outcomes));
  measure("Validation loss", Quantity::loss,
          [](const RunSummary& s) { return or_nan(s.validation_loss); });
  measure("Best validation loss", Quantity::loss,
          [](const RunSummary& s) { return or_nan(s.best_validation_loss); });
  measure("Training loss, last step", Quantity::loss,
          [](const RunSummary& s) { return or_nan(s.final_loss); });
  measure("Target", Quantity::loss, [](const RunSummary& s) { return or_nan(s.target_loss); });
  measure("Time to target", Quantity::seconds,
          [](const RunSummary& s) { return or_nan(s.time_to_target_seconds); });
  measure("Training time", Quantity::seconds, [](const RunSummary& s) { return s.train_seconds; });
  measure("Steps", Quantity::integer,
          [](const RunSummary& s) { return static_cast<double>(s.steps); });
  measure("Tokens", Quantity::rate,
          [](const RunSummary& s) { return static_cast<double>(s.tokens); });
  measure("Parameters", Quantity::rate,
          [](const RunSummary& s) { return static_cast<double>(s.parameters); });
  measure("Tokens per second", Quantity::rate,
          [](const RunSummary& s) { return known(s.tokens_per_second); });
  measure("MFU", Quantity::ratio, [](const RunSummary& s) { return known(s.mfu); });
  measure("Step time, median", Quantity::seconds,
          [](const RunSummary& s) { return s.step_seconds.p50; });
  measure("Step time, 99%", Quantity::seconds,
          [](const RunSummary& s) { return s.step_seconds.p99; });
  measure("Waiting for checkpoints", Quantity::seconds,
          [](const RunSummary& s) { return s.checkpoint_stall_seconds; });
  measure("Waiting for data", Quantity::seconds,
          [](const RunSummary& s) { return s.data_wait_seconds; });
  measure("Memory, peak", Quantity::bytes,
          [](const RunSummary& s) { return known(static_cast<double>(s.peak_memory_bytes)); });
  measure("Skipped steps", Quantity::integer,
          [](const RunSummary& s) { return static_cast<double>(s.skipped_steps); });
  return html_card("Figures",
                   html_table(table) + fmt::format("<p class=\"note\">Differences are to {}.</p>\n",
                                                   escape_html(labels.front())));
}

std::string difference_table(const Runs& runs, const std::vector<std::string>& labels) {
  Table table{"What differs", false, {{"Key", false, true}}, {}};
  for (const std::string& label : labels) table.columns.push_back({label});
  for (const Difference& difference : differences(runs)) {
    std::vector<std::string> row = {difference.key};
    for (const std::string& value : difference.values) row.push_back(value.empty() ? "–" : value);
    table.rows.push_back(std::move(row));
  }
  return html_card("Recipe, machine and data",
                   table.rows.empty()
                       ? "<p class=\"empty\">Nothing: the runs were made the same way.</p>\n"
                       : html_table(table));
}

std::string lead_text(const Summaries& summaries, const std::vector<std::string>& labels) {
  size_t best = summaries.size();
  size_t fastest = summaries.size();
  for (size_t i = 0; i < summaries.size(); ++i) {
    const auto& loss = summaries[i].best_validation_loss;
    if (loss && (best == summaries.size() || *loss < *summaries[best].best_validation_loss)) {
      best = i;
    }
    if (summaries[i].tokens_per_second > 0 &&
        (fastest == summaries.size() ||
         summaries[i].tokens_per_second > summaries[fastest].tokens_per_second)) {
      fastest = i;
    }
  }
  std::string text;
  if (best < summaries.size()) {
    text = fmt::format("The lowest validation loss is {}, of {}.",
                       format_value(Quantity::loss, *summaries[best].best_validation_loss),
                       labels[best]);
  }
  if (fastest < summaries.size()) {
    text += fmt::format("{}The fastest is {} with {} tokens per second.", text.empty() ? "" : " ",
                        labels[fastest],
                        format_value(Quantity::rate, summaries[fastest].tokens_per_second));
  }
  return text;
}

}  // namespace

std::vector<Difference> differences(const std::vector<RunData>& runs) {
  std::vector<Pairs> all;
  std::vector<std::string> keys;
  for (const RunData& run : runs) {
    all.push_back(ingredients(run));
    for (const auto& [key, value] : all.back()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  std::vector<Difference> out;
  for (const std::string& key : keys) {
    Difference difference{key, {}};
    for (const Pairs& pairs : all) difference.values.push_back(find_value(pairs, key));
    const auto& values = difference.values;
    const bool same = std::all_of(values.begin(), values.end(),
                                  [&](const std::string& value) { return value == values[0]; });
    if (!same) out.push_back(std::move(difference));
  }
  return out;
}

std::vector<std::string> run_labels(const std::vector<RunSummary>& summaries) {
  using Naming = std::string (*)(const RunSummary&);
  const Naming by_name = [](const RunSummary& s) { return s.name; };
  const Naming by_base = [](const RunSummary& s) { return std::string(base_name(s.folder)); };
  const Naming by_path = [](const RunSummary& s) { return s.folder; };
  std::vector<std::string> labels;
  for (const Naming naming : {by_name, by_base, by_path}) {
    labels.clear();
    for (const RunSummary& s : summaries) labels.push_back(naming(s));
    if (std::set<std::string>(labels.begin(), labels.end()).size() == labels.size()) break;
  }
  return labels;
}

Page comparison_page(const std::vector<RunData>& runs, const std::vector<RunSummary>& summaries,
                     double made_wall_seconds) {
  const std::vector<std::string> labels = run_labels(summaries);
  Page page;
  page.kind = "Comparison of training runs";
  page.title =
      runs.size() == 2 ? labels[0] + " and " + labels[1] : fmt::format("{} runs", runs.size());
  page.lead = lead_text(summaries, labels);
  for (size_t i = 0; i < summaries.size(); ++i) {
    for (const std::string& note : summaries[i].notes)
      page.notes.push_back(labels[i] + ": " + note);
  }
  LineChart training = overlay(
      runs, labels, "chart-loss", "Training loss", "Nats per token.", Quantity::loss,
      [](const RunData& r) -> auto& { return r.steps.loss; });
  training.wide = true;
  training.offers_log = true;
  LineChart rate = overlay(
      runs, labels, "chart-tokens-per-second", "Tokens per second",
      "Of training steps, evaluation and checkpoints left out.", Quantity::rate,
      [](const RunData& r) -> auto& { return r.steps.tokens_per_second; });
  rate.from_zero = true;
  LineChart norm = overlay(
      runs, labels, "chart-gradient-norm", "Gradient norm", "Before clipping.", Quantity::number,
      [](const RunData& r) -> auto& { return r.steps.gradient_norm; });
  norm.offers_log = true;
  page.sections = {
      {"differences", "What differs",
       figures_table(summaries, labels) + difference_table(runs, labels)},
      {"loss", "Loss",
       "<div class=\"grid2\">" + draw(training) +
           draw(validation_chart(runs, summaries, labels, false)) +
           draw(validation_chart(runs, summaries, labels, true)) + "</div>"},
      {"speed", "Speed and optimizer",
       "<div class=\"grid2\">" + draw(rate) + draw(norm) + "</div>"},
  };
  std::vector<std::string> folders;
  for (const RunData& run : runs) folders.push_back(run.folder);
  page.footer = fmt::format("Made {} from {}", format_utc(made_wall_seconds), join(folders, ", "));
  return page;
}

}  // namespace tutti::report
