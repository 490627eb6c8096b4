#include "tutti/plan/reliability.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/catalog/known_quantities.h"
#include "tutti/plan/bill.h"

namespace tutti::plan {
namespace {

constexpr int64_t kGpusPerNode = 8;
constexpr int64_t kManyNodes = 64;  // jobs of this size have the full per_job rate

// "16384", ">10000" or "" (0).
int64_t nodes_of(const CsvTable& table, size_t row) {
  std::string text = table.field(row, "gpus");
  if (!text.empty() && text.front() == '>') text.erase(0, 1);
  return std::max<int64_t>(0, std::strtoll(text.c_str(), nullptr, 10) / kGpusPerNode);
}

double value_of(const CsvTable& table, size_t row) { return table.number(row, "value", 0); }

// The number before `word` in a text; empty if there is none.
std::optional<double> number_before(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  if (at == std::string::npos) return std::nullopt;
  size_t begin = at;
  while (begin > 0 && (std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0 ||
                       text[begin - 1] == '.' || text[begin - 1] == ' ')) {
    --begin;
  }
  const std::string number(trim(text.substr(begin, at - begin)));
  if (number.empty()) return std::nullopt;
  return std::strtod(number.c_str(), nullptr);
}

// Interruptions per day of a measured job; empty if the row has none.
std::optional<double> job_rate(const CsvTable& table, size_t row) {
  const std::string& metric = table.field(row, "metric");
  const std::string& note = table.field(row, "note");
  if (!(value_of(table, row) > 0)) return std::nullopt;
  if (metric == "mttf_hours" && note.find("projected") == std::string::npos) {
    return 24 / value_of(table, row);
  }
  if (metric == "restarts") {
    const std::optional<double> days = number_before(note, " ideal days");
    if (days) return value_of(table, row) / *days;
  }
  return std::nullopt;
}

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

// 90% interval of a mean time instead of a count.
InterruptionInterval hours_interval(const FailureModel& model, int64_t nodes) {
  // A long observation: chance averages out, clusters differ.
  constexpr double kDays = 1e4;
  const InterruptionInterval count = interruption_interval(model, nodes, kDays);
  return {24 * kDays / count.high, 24 * kDays / count.expected, 24 * kDays / count.low};
}

double goodput(const FailureModel& model, int64_t nodes) {
  return forecast_failures(model, nodes, 30 * kSecondsPerDay).goodput;
}

void predict(const CsvTable& table, size_t at, const FailureModel& model,
             const catalog::Catalog& catalog, ReliabilityRow& out) {
  ValidatedRow& row = out.row;
  const std::string& metric = row.metric;
  const std::string& note = table.field(at, "note");
  const int64_t nodes = nodes_of(table, at);
  const auto inside = [&] {
    out.inside = row.measured >= out.interval->low && row.measured <= out.interval->high;
  };
  if (!std::isfinite(row.measured) || row.measured <= 0) {
    row.skipped = "the measured value is missing or not above zero";
    return;
  }
  if (metric == "failures_per_1000_node_days") {
    const double spread = std::exp(1.645 * model.spread_ratio);
    row.predicted = 1000 * model.per_node_per_day;
    out.interval = {row.predicted / spread, row.predicted, row.predicted * spread};
    inside();
  } else if ((metric == "mttf_hours" || metric == "mtti_hours_unexpected") && nodes > 0) {
    out.interval = hours_interval(model, nodes);
    row.predicted = out.interval->expected;
    inside();
  } else if (metric == "restarts" && nodes > 0 && number_before(note, " ideal days")) {
    out.interval = interruption_interval(model, nodes, *number_before(note, " ideal days"));
    row.predicted = out.interval->expected;
    inside();
  } else if (starts_with(metric, "interruptions_unexpected_") && nodes > 0) {
    const double days = std::strtod(metric.c_str() + metric.rfind('_') + 1, nullptr);
    out.interval = interruption_interval(model, nodes, days);
    row.predicted = out.interval->expected;
    inside();
  } else if ((metric == "effective_training_time_min" || metric == "ettr") && nodes > 0) {
    row.predicted = goodput(model, nodes);
    if (metric != "ettr") out.inside = row.predicted > row.measured;
  } else if (metric == "node_power" && note.find("rated node") == std::string::npos) {
    const catalog::System& system = catalog.system("dgx-h100");
    StepPrediction step;  // chips that never wait
    step.step_seconds = step.split.products = 1;
    const Bill bill = bill_of(system, catalog.site("us-average"), nullptr,
                              catalog::PriceKind::on_demand, step, kGpusPerNode, kSecondsPerDay);
    row.predicted =
        row.measured < 1 ? bill.node_watts / system.node_rated_watts : bill.node_watts / 1e3;
  } else {
    static const std::map<std::string, std::string> reasons = {
        {"interruptions_total_54d", "planned interruptions are not predicted"},
        {"interruptions_by_cause", "causes are not distinguished"},
        {"node_power", "the rated power is an input"},
    };
    const auto reason = reasons.find(metric);
    row.skipped = reason != reasons.end() ? reason->second
                                          : "needs a layout and a number of tokens: plan predict";
    if (note.find("not metered") != std::string::npos) {
      row.skipped = "the source's arithmetic, not a measurement";
    }
    return;
  }
  row.error = row.predicted / row.measured - 1;
}

}  // namespace

bool is_reliability_table(const CsvTable& table) {
  if (table.column("metric") < 0 || table.column("value") < 0) return false;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const std::string& metric = table.field(row, "metric");
    if (metric == "mttf_hours" || metric == "failures_per_1000_node_days") return true;
  }
  return false;
}

FailureModel failure_model_from(const catalog::Entry& entry) {
  catalog::check_quantities(
      entry, {"job_interruptions_per_day", "job_nodes_count", "node_interruptions_per_day",
              "spread_ratio", "restart_seconds", "save_seconds"});
  FailureModel model;
  model.per_job_per_day = entry.number("job_interruptions_per_day");
  model.job_nodes = entry.number("job_nodes_count");
  model.per_node_per_day = entry.number("node_interruptions_per_day");
  model.spread_ratio = entry.number("spread_ratio");
  model.restart_seconds = entry.number("restart_seconds");
  model.save_seconds = entry.number("save_seconds");
  return model;
}

FailureModel load_failure_model(FileSystem& files, const std::vector<std::string>& folders) {
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    const std::string path = join_path(*folder, "failures/published.yaml");
    if (files.exists(path)) return failure_model_from(catalog::load_entry(files, path));
  }
  fail(ErrorKind::not_found, "no failures/published.yaml in {}", join(folders, ", "));
}

FailureModel fit_failures(const CsvTable& table, const FailureModel& start,
                          const std::string& left_out) {
  std::vector<double> clusters;  // interruptions per node and day
  struct Job {
    double nodes = 0;
    double per_day = 0;
  };
  std::vector<Job> large;
  std::optional<Job> small;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    if (!left_out.empty() && starts_with(table.field(row, "source"), left_out)) continue;
    if (table.field(row, "metric") == "failures_per_1000_node_days" && value_of(table, row) > 0) {
      clusters.push_back(value_of(table, row) / 1000);
      continue;
    }
    const std::optional<double> rate = job_rate(table, row);
    const int64_t nodes = nodes_of(table, row);
    if (!rate || nodes == 0) continue;
    const Job job = {static_cast<double>(nodes), *rate};
    if (nodes >= kManyNodes) {
      large.push_back(job);
    } else if (!small) {
      small = job;
    }
  }
  if (clusters.empty() || large.empty()) {
    fail(ErrorKind::usage,
         "{}: a fit needs a row of failures_per_1000_node_days and a job on {} "
         "nodes or more (mttf_hours, or restarts with \"ideal days\")",
         table.origin, kManyNodes);
  }
  FailureModel model = start;
  model.per_node_per_day = geometric_mean(clusters);
  std::vector<double> rates;
  std::vector<double> sizes;
  for (const Job& job : large) {
    rates.push_back(job.per_day);
    sizes.push_back(job.nodes);
  }
  const double beyond = geometric_mean(rates) - geometric_mean(sizes) * model.per_node_per_day;
  model.per_job_per_day = std::max(0.0, beyond);
  model.job_nodes = 0;
  if (small && small->per_day > small->nodes * model.per_node_per_day) {
    const double per_node = small->per_day / small->nodes - model.per_node_per_day;
    model.job_nodes = model.per_job_per_day / per_node;
  }
  double squares = 0;
  for (const double rate : clusters) {
    squares += std::pow(std::log(rate / model.per_node_per_day), 2);
  }
  for (const Job& job : large) {
    const double predicted =
        interruptions_per_second(model, static_cast<int64_t>(job.nodes)) * kSecondsPerDay;
    squares += std::pow(std::log(job.per_day / predicted), 2);
  }
  model.spread_ratio = std::sqrt(squares / static_cast<double>(clusters.size() + large.size()));
  return model;
}

std::vector<ReliabilityRow> validate_reliability(const CsvTable& table, const FailureModel& model,
                                                 const catalog::Catalog& catalog) {
  std::vector<ReliabilityRow> out;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    ReliabilityRow one;
    one.row.source = table.field(row, "source");
    one.row.model = table.field(row, "model");
    one.row.metric = table.field(row, "metric");
    one.row.line = table.lines[row];
    one.row.measured = value_of(table, row);
    predict(table, row, model, catalog, one);
    out.push_back(std::move(one));
  }
  return out;
}

Json to_json(const std::vector<ReliabilityRow>& rows, const FailureModel& model) {
  Validation validation;
  for (const ReliabilityRow& row : rows) validation.rows.push_back(row.row);
  validation.summary = summarize(validation.rows);
  Json json = to_json(validation);
  for (size_t i = 0; i < rows.size(); ++i) {
    Json& item = json["rows"][i];
    if (rows[i].interval) {
      item["interval"] = {{"low", rows[i].interval->low}, {"high", rows[i].interval->high}};
    }
    if (rows[i].inside) item["inside"] = *rows[i].inside;
  }
  json["failure_model"] = {{"job_interruptions_per_day", model.per_job_per_day},
                           {"job_nodes", model.job_nodes},
                           {"node_interruptions_per_day", model.per_node_per_day},
                           {"spread_ratio", model.spread_ratio},
                           {"restart_seconds", model.restart_seconds},
                           {"save_seconds", model.save_seconds}};
  return json;
}

std::string format_reliability(const std::vector<ReliabilityRow>& rows, const FailureModel& model) {
  std::vector<std::vector<std::string>> cells = {
      {"line", "source", "metric", "measured", "predicted", "90% of clusters", "inside"}};
  std::map<std::string, int> reasons;
  for (const ReliabilityRow& one : rows) {
    const ValidatedRow& row = one.row;
    if (!row.skipped.empty()) {
      ++reasons[row.metric + ": " + row.skipped];
      continue;
    }
    cells.push_back(
        {fmt::format("{}", row.line), row.source.substr(0, row.source.find('(')), row.metric,
         fmt::format("{:.4g}", row.measured), fmt::format("{:.4g}", row.predicted),
         one.interval ? fmt::format("{:.4g} to {:.4g}", one.interval->low, one.interval->high) : "",
         one.inside ? (*one.inside ? "yes" : "NO") : ""});
  }
  std::string text = format_table(cells) + "\n";
  for (const auto& [reason, count] : reasons) {
    text += fmt::format("not predicted, {} rows: {}\n", count, reason);
  }
  return text +
         fmt::format(
             "interruptions per day: {:.2f} of a job on {:.0f} nodes or more, {:.2g} of each "
             "node; spread between clusters {:.2f} (of the logarithm); restart {:.0f} s, "
             "save {:.0f} s\n",
             model.per_job_per_day, model.job_nodes, model.per_node_per_day, model.spread_ratio,
             model.restart_seconds, model.save_seconds);
}

}  // namespace tutti::plan
