#include "tutti/plan/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/real.h"
#include "tutti/base/text.h"
#include "tutti/plan/target.h"
#include "tutti/plan/unpublished.h"

namespace tutti::plan {
namespace {

constexpr int64_t kEnoughRows = 4;  // fewest held-out rows for a meaningful error
constexpr double kGibibyte = 1024.0 * 1024 * 1024;
constexpr double kConventionRatio = 0.05;  // FLOP counts that differ by more use another convention

bool known_metric(const std::string& metric) {
  static const std::set<std::string> known = {"iter_time_s",
                                              "tokens_per_s_per_gpu",
                                              "hw_tflops_per_gpu",
                                              "model_tflops_per_gpu",
                                              "tflops_per_gpu",
                                              "mfu",
                                              "hfu",
                                              "peak_mem_gib",
                                              "peak_alloc_gib",
                                              "activation_mem_gib",
                                              "param_opt_mem_gib",
                                              "activation_mem_pct_of_tp_baseline",
                                              "run_minutes"};
  return known.count(metric) > 0;
}

bool is_rate(const std::string& metric) {
  return metric.find("_per_") != std::string::npos || metric == "mfu" || metric == "hfu";
}

bool is_memory_metric(const std::string& metric) {
  return metric.find("_gib") != std::string::npos || metric.find("_mem_") != std::string::npos;
}

// The source without the text in parentheses.
std::string short_source(const std::string& source) {
  return std::string(trim(source.substr(0, source.find('('))));
}

// Bytes that a layer keeps of a micro-batch.
double kept_per_layer(const spec::Recipe& recipe, const spec::Profile& profile) {
  const spec::MemoryMap map = spec::memory_map(recipe, profile, 0);
  for (const spec::SlotPlan& slot : map.arena("activations").slots) {
    if (starts_with(slot.name, "block")) return real(slot.stride_bytes);
  }
  return 0;
}

}  // namespace

PreparedRow::PreparedRow(Measurement measurement, const catalog::Catalog& catalog)
    : measurement_(std::move(measurement)) {
  if (predictable() && !known_metric(measurement_.metric)) {
    measurement_.unpredictable = "metric " + measurement_.metric + " is not predicted";
  }
  if (!predictable()) return;
  system_ = &catalog.system(measurement_.system);
  const auto keep = [&](const spec::Recipe& recipe) {
    candidates_.push_back({recipe, spec::make_program(recipe, measurement_.profile)});
  };
  // Those that fit; the run did fit, so if none does, those that need least memory.
  FittingChoices choices = fitting_choices(measurement_, *system_);
  if (choices.recipes.empty()) measurement_.unpredictable = "no layout is possible";
  if (!choices.assumed.empty()) {
    if (!measurement_.inferred.empty()) measurement_.inferred += "; ";
    measurement_.inferred += choices.assumed;
  }
  for (const spec::Recipe& recipe : choices.recipes) keep(recipe);
}

bool PreparedRow::is_rate() const { return plan::is_rate(measurement_.metric); }

bool PreparedRow::is_memory() const { return is_memory_metric(measurement_.metric); }

std::string PreparedRow::group() const {
  return system_->chip.generation + "/" + measurement_.software;
}

std::string PreparedRow::layout() const {
  const spec::Recipe& recipe = measurement_.recipe;
  const spec::Mesh& mesh = recipe.parallel;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", measurement_.model, recipe.batch.sequence,
                     recipe.batch.global, recipe.batch.micro, mesh.tp, mesh.pp, mesh.vpp, mesh.cp,
                     mesh.dp, mesh.ep, measurement_.system);
}

void PreparedRow::reject(std::string reason) { measurement_.unpredictable = std::move(reason); }

double PreparedRow::predict_memory_metric(const Constants& constants) const {
  const spec::Recipe& recipe = candidates_.front().recipe;
  const MemoryPrediction memory = predict_memory(recipe, measurement_.profile, *system_, constants);
  if (measurement_.metric == "peak_mem_gib") return memory.bytes / kGibibyte;
  if (measurement_.metric == "peak_alloc_gib") return memory.allocated_bytes / kGibibyte;
  if (measurement_.metric == "activation_mem_pct_of_tp_baseline") {
    // Relative to tensor parallelism alone: no sequence parallelism, no recomputation.
    spec::Recipe baseline = recipe;
    baseline.recompute = {};
    spec::Profile plain = measurement_.profile;
    plain.sequence_parallel = false;
    return 100 * kept_per_layer(recipe, measurement_.profile) / kept_per_layer(baseline, plain);
  }
  const spec::MemoryMap map = spec::memory_map(recipe, measurement_.profile, 0);
  double activations = 0;
  double states = 0;
  for (const spec::ArenaPlan& arena : map.arenas) {
    if (arena.name == "activations") activations += real(arena.bytes);
    if (arena.name == "weights" || arena.name == "master" || arena.name == "gradients" ||
        arena.name == "moment1" || arena.name == "moment2") {
      states += real(arena.bytes);
    }
  }
  return (measurement_.metric == "activation_mem_gib" ? activations : states) / kGibibyte;
}

Constants PreparedRow::stated_constants(const Constants& chosen) const {
  TUTTI_CHECK(predictable(), "row {}: {}", measurement_.line, measurement_.unpredictable);
  Constants constants = chosen;
  for (const auto& [constant, value] : measurement_.stated) constants[constant] = value;
  cap_products(system_->chip, constants);
  return constants;
}

PreparedRow::Fastest PreparedRow::fastest(const Constants& constants) const {
  thread_local PipelineSimulator simulator;  // scratch
  Predictor predictor(*system_, constants, simulator);
  Fastest out;
  for (const Candidate& candidate : candidates_) {
    const StepPrediction step = predictor.step(candidate.recipe, candidate.program);
    if (out.candidate != nullptr && step.step_seconds >= out.step.step_seconds) continue;
    out = {&candidate, step};
  }
  return out;
}

double PreparedRow::products_share(const Constants& chosen_constants) const {
  return plan::products_share(fastest(stated_constants(chosen_constants)).step.split);
}

double PreparedRow::predict(const Constants& chosen_constants) const {
  const Constants constants = stated_constants(chosen_constants);
  if (is_memory()) return predict_memory_metric(constants);
  const Fastest found = fastest(constants);
  const StepPrediction& best = found.step;
  const Candidate* chosen = found.candidate;
  const std::string& metric = measurement_.metric;
  if (metric == "iter_time_s") return best.step_seconds;
  if (metric == "run_minutes") {
    const auto& run = measurement_.run;
    const double evaluation =
        evaluation_seconds(chosen->recipe, best, constants, run.evaluation_samples);
    return (constants[Constant::run_start_seconds] + run.steps * best.step_seconds +
            run.evaluations * evaluation) /
           60;
  }
  if (metric == "tokens_per_s_per_gpu") return best.tokens_per_second_per_chip;
  const auto flops = [&](spec::FlopConvention convention) {
    return best.tokens_per_second_per_chip *
           spec::flops_per_token(chosen->recipe.model, chosen->recipe.batch.sequence, convention);
  };
  if (metric == "hw_tflops_per_gpu") {
    const bool full = chosen->recipe.recompute.mode == spec::RecomputeMode::full;
    return flops(full ? spec::FlopConvention::hardware : spec::FlopConvention::square) / 1e12;
  }
  const double model = flops(measurement_.square_flops ? spec::FlopConvention::square
                                                       : spec::FlopConvention::causal);
  if (metric == "mfu") return model / system_->chip.bf16_flops;
  if (metric == "hfu") {
    // Selective recomputation repeats the attention core: half of two of the three passes.
    const double core = flops(spec::FlopConvention::square) +
                        best.tokens_per_second_per_chip * 4 * real(chosen->recipe.model.layers) *
                            real(chosen->recipe.model.hidden) * real(chosen->recipe.batch.sequence);
    const double hardware = chosen->recipe.recompute.mode == spec::RecomputeMode::full
                                ? flops(spec::FlopConvention::hardware)
                                : core;
    return hardware / system_->chip.bf16_flops;
  }
  return model / 1e12;
}

void reject_other_conventions(std::vector<PreparedRow>& rows) {
  for (PreparedRow& row : rows) {
    const Measurement& flops = row.measurement();
    const bool share = flops.metric == "mfu";  // of the 16-bit peak
    if (!row.predictable() || (flops.metric != "model_tflops_per_gpu" && !share)) continue;
    for (const PreparedRow& other : rows) {
      const Measurement& tokens = other.measurement();
      if (!other.predictable() || tokens.metric != "tokens_per_s_per_gpu" ||
          tokens.source != flops.source || row.layout() != other.layout()) {
        continue;
      }
      const double rate = flops.value * (share ? row.system().chip.bf16_flops : 1e12);
      const double counted = rate / tokens.value;
      const double needed = spec::flops_per_token(
          flops.recipe.model, flops.recipe.batch.sequence,
          flops.square_flops ? spec::FlopConvention::square : spec::FlopConvention::causal);
      if (std::abs(counted / needed - 1) <= kConventionRatio) continue;
      row.reject(fmt::format(
          "counts {:.1f} GFLOP per token where the model needs {:.1f}; its tokens per second are "
          "predicted",
          counted / 1e9, needed / 1e9));
      break;
    }
  }
}

std::vector<bool> fitted_half(const std::vector<PreparedRow>& rows) {
  std::map<std::string, std::map<std::string, size_t>> layouts;  // source -> layout -> number
  std::vector<bool> fitted;
  fitted.reserve(rows.size());
  for (const PreparedRow& row : rows) {
    if (!row.predictable()) {
      fitted.push_back(false);
      continue;
    }
    auto& known = layouts[row.measurement().source];
    const size_t number = known.emplace(row.layout(), known.size()).first->second;
    fitted.push_back(number % 2 == 0);
  }
  return fitted;
}

ValidatedRow validate_row(const PreparedRow& prepared, const Constants& constants, bool fitted) {
  const Measurement& measurement = prepared.measurement();
  ValidatedRow row;
  row.source = measurement.source;
  row.model = measurement.model;
  row.metric = measurement.metric;
  row.line = measurement.line;
  row.measured = measurement.value;
  row.skipped = measurement.unpredictable;
  row.inferred = measurement.inferred;
  if (!prepared.predictable()) return row;
  row.predicted = prepared.predict(constants);
  const double ratio = row.predicted / row.measured;
  row.error = is_rate(row.metric) ? 1 / ratio - 1 : ratio - 1;
  row.fitted = fitted;
  return row;
}

Validation validate_rows(const std::vector<PreparedRow>& rows, const std::vector<Constants>& sets,
                         const std::vector<bool>& fitted) {
  Validation out;
  for (size_t i = 0; i < rows.size(); ++i) {
    Constants constants;
    if (rows[i].predictable()) {
      constants = constants_for(sets, rows[i].system().chip, rows[i].measurement().software);
    }
    out.rows.push_back(validate_row(rows[i], constants, fitted[i]));
  }
  out.summary = summarize(out.rows);
  return out;
}

std::vector<SourceSummary> summarize(const std::vector<ValidatedRow>& rows) {
  std::vector<SourceSummary> out;
  std::vector<std::string> order;
  std::map<std::string, std::vector<double>> errors;
  for (const ValidatedRow& row : rows) {
    if (!row.skipped.empty() || row.fitted) continue;
    const bool memory = is_memory_metric(row.metric);
    const std::string name = short_source(row.source) + (memory ? ", memory" : ", time");
    for (const std::string& key : {name, std::string(memory ? "all memory" : "all time")}) {
      if (errors.count(key) == 0 && key == name) order.push_back(key);
      errors[key].push_back(row.error);
    }
  }
  for (const char* all : {"all memory", "all time"}) {
    if (errors.count(all) > 0) order.emplace_back(all);
  }
  for (const std::string& key : order) {
    std::vector<double> sizes;
    SourceSummary summary;
    summary.source = key;
    for (const double error : errors[key]) {
      sizes.push_back(std::abs(error));
      summary.mape += std::abs(error);
      if (std::abs(error) > std::abs(summary.worst)) summary.worst = error;
    }
    summary.rows = static_cast<int64_t>(sizes.size());
    summary.mape /= real(summary.rows);
    std::sort(sizes.begin(), sizes.end());
    summary.median = (sizes[sizes.size() / 2] + sizes[(sizes.size() - 1) / 2]) / 2;
    out.push_back(summary);
  }
  return out;
}

void set_held_out_errors(const std::vector<PreparedRow>& rows, const Validation& validation,
                         std::vector<Constants>& sets) {
  for (Constants& set : sets) {
    double sum = 0;
    int64_t count = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i].predictable() || validation.rows[i].fitted || rows[i].is_memory() ||
          rows[i].group() != set.name) {
        continue;
      }
      sum += std::abs(validation.rows[i].error);
      ++count;
    }
    if (count >= kEnoughRows) set.error = sum / real(count);
  }
}

Json to_json(const Validation& validation) {
  Json rows = Json::array();
  for (const ValidatedRow& row : validation.rows) {
    Json item = {{"source", row.source}, {"model", row.model},       {"metric", row.metric},
                 {"line", row.line},     {"measured", row.measured}, {"predicted", nullptr},
                 {"error", nullptr},     {"fitted", row.fitted},     {"skipped", nullptr}};
    if (!row.inferred.empty()) item["inferred"] = row.inferred;
    if (row.skipped.empty()) {
      item["predicted"] = row.predicted;
      item["error"] = row.error;
    } else {
      item["skipped"] = row.skipped;
    }
    rows.push_back(std::move(item));
  }
  Json summary = Json::array();
  for (const SourceSummary& source : validation.summary) {
    summary.push_back({{"source", source.source},
                       {"rows", source.rows},
                       {"mape", source.mape},
                       {"median", source.median},
                       {"worst", source.worst}});
  }
  return {{"rows", std::move(rows)}, {"summary", std::move(summary)}};
}

std::string format_validation(const Validation& validation, bool every_row) {
  std::string text;
  if (every_row) {
    std::vector<std::vector<std::string>> cells = {
        {"line", "source", "model", "metric", "measured", "predicted", "error", "half"}};
    for (const ValidatedRow& row : validation.rows) {
      if (!row.skipped.empty()) continue;
      cells.push_back({fmt::format("{}", row.line), short_source(row.source), row.model, row.metric,
                       fmt::format("{:.4g}", row.measured), fmt::format("{:.4g}", row.predicted),
                       fmt::format("{:+.1f}%", 100 * row.error),
                       row.fitted ? "fitted" : "not fitted"});
    }
    text += format_table(cells) + "\n";
  }
  std::map<std::string, std::vector<int>> reasons;  // lines
  std::map<std::string, std::vector<int>> inferred;
  int skipped = 0;
  int fitted = 0;
  for (const ValidatedRow& row : validation.rows) {
    fitted += row.fitted ? 1 : 0;
    if (row.skipped.empty() && !row.inferred.empty()) {
      inferred[short_source(row.source) + ": " + row.inferred].push_back(row.line);
    }
    if (row.skipped.empty()) continue;
    ++skipped;
    reasons[short_source(row.source) + ": " + row.skipped].push_back(row.line);
  }
  const int all = static_cast<int>(validation.rows.size());
  text += fmt::format("{} rows: {} predicted{}, {} not\n", all, all - skipped,
                      fitted > 0 ? fmt::format(" ({} of them fitted on)", fitted) : "", skipped);
  for (const auto& [reason, lines] : reasons) {
    text += fmt::format("not predicted, {} rows: {}{}\n", lines.size(), reason,
                        every_row ? fmt::format(" (lines {})", fmt::join(lines, ", ")) : "");
  }
  for (const auto& [rule, lines] : inferred) {
    text += fmt::format("not stated, {} rows: {}{}\n", lines.size(), rule,
                        every_row ? fmt::format(" (lines {})", fmt::join(lines, ", ")) : "");
  }
  std::vector<std::vector<std::string>> cells = {
      {fitted > 0 ? "held-out rows of" : "rows of", "rows", "mean error", "median", "worst"}};
  for (const SourceSummary& source : validation.summary) {
    cells.push_back(
        {source.source, fmt::format("{}", source.rows), fmt::format("{:.1f}%", 100 * source.mape),
         fmt::format("{:.1f}%", 100 * source.median), fmt::format("{:+.1f}%", 100 * source.worst)});
  }
  return text + format_table(cells);
}

}  // namespace tutti::plan
