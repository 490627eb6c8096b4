#include "tutti/train/tasks/reproduce.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::train {
namespace {

constexpr size_t kShownTensors = 5;

void compare_number(const char* what, int64_t step, double was, double is,
                    std::optional<NumberDifference>& first, bool& same) {
  if (same_bits(was, is)) return;
  same = false;
  // Steps come in order; an evaluation belongs to the step before it.
  if (!first || step < first->step) first = NumberDifference{step, what, was, is};
}

void compare_numbers(const RunRecord& was, const RunRecord& is, Reproduction& out) {
  for (const auto& [step, numbers] : was.steps) {
    const auto other = is.steps.find(step);
    if (step > out.wanted_steps || other == is.steps.end()) continue;
    bool same = numbers.skipped == other->second.skipped;
    compare_number("learning rate", step, numbers.learning_rate, other->second.learning_rate,
                   out.first, same);
    compare_number("loss", step, numbers.loss, other->second.loss, out.first, same);
    compare_number("gradient norm", step, numbers.gradient_norm, other->second.gradient_norm,
                   out.first, same);
    ++out.steps;
    if (!same) ++out.unequal_steps;
  }
  for (const auto& [step, loss] : was.evaluations) {
    const auto other = is.evaluations.find(step);
    if (step > out.wanted_steps || other == is.evaluations.end()) continue;
    bool same = true;
    compare_number("validation loss", step, loss, other->second, out.first, same);
    ++out.evaluations;
  }
}

CheckpointComparison compare_tensors(int64_t step, checkpoint::Reader& was,
                                     checkpoint::Reader& is) {
  CheckpointComparison out;
  out.step = step;
  for (const checkpoint::TensorRecord& tensor : was.manifest().tensors) {
    const bool same = is.contains(tensor.name) && is.tensor(tensor.name).dtype == tensor.dtype &&
                      is.tensor(tensor.name).shape == tensor.shape &&
                      was.bytes(tensor.name) == is.bytes(tensor.name);
    ++out.tensors;
    if (!same) out.unequal.push_back(tensor.name);
  }
  for (const checkpoint::TensorRecord& tensor : is.manifest().tensors) {
    if (!was.contains(tensor.name)) out.unequal.push_back(tensor.name);
  }
  return out;
}

void compare_checkpoints(FileSystem& files, Reproduction& out) {
  std::map<int64_t, std::string> ours;
  for (const auto& info : checkpoint::list_checkpoints(files, find_checkpoints(files, out.out))) {
    if (info.valid) ours[info.step] = info.path;
  }
  for (const auto& info : checkpoint::list_checkpoints(files, find_checkpoints(files, out.run))) {
    const auto other = ours.find(info.step);
    if (other == ours.end()) continue;
    try {
      checkpoint::Reader was(files, info.path);
      checkpoint::Reader is(files, other->second);
      out.checkpoints.push_back(compare_tensors(info.step, was, is));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::corrupt) throw;
      out.notes.push_back(
          fmt::format("a checkpoint of step {} was not compared: {}", info.step, error.what()));
    }
  }
  if (out.checkpoints.empty()) {
    out.notes.emplace_back("parameters were not compared: no step has a checkpoint in both");
  }
}

bool all_equal(const CheckpointComparison& checkpoint) { return checkpoint.unequal.empty(); }

std::vector<std::string> names(const std::vector<Factor>& factors, FactorState state) {
  std::vector<std::string> out;
  for (const Factor& factor : factors) {
    if (factor.state == state) out.push_back(factor.name);
  }
  return out;
}

std::string plural(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string compared_text(const Reproduction& r) {
  std::vector<std::string> parts = {fmt::format("loss, gradient norm and learning rate of {}",
                                                plural(static_cast<size_t>(r.steps), "step"))};
  if (r.evaluations > 0) {
    parts.push_back(
        fmt::format("{} validation loss{}", r.evaluations, r.evaluations == 1 ? "" : "es"));
  }
  if (!r.checkpoints.empty()) {
    parts.push_back(fmt::format("{} tensors in {}", r.checkpoints.back().tensors,
                                plural(r.checkpoints.size(), "checkpoint")));
  }
  return join(parts, ", ");
}

std::string verdict_text(const Reproduction& r) {
  const auto differing = names(r.factors, FactorState::differs);
  const auto unknown = names(r.factors, FactorState::unknown);
  if (r.equal) {
    std::string text = "bitwise equal: " + compared_text(r);
    if (!differing.empty())
      text += fmt::format(", although these differ: {}", join(differing, ", "));
    return text;
  }
  const bool numbers_equal = !r.first && r.unequal_steps == 0 &&
                             std::all_of(r.checkpoints.begin(), r.checkpoints.end(), all_equal);
  if (numbers_equal) {
    return fmt::format("incomplete: {} of {} steps were compared, and they are bitwise equal",
                       r.steps, r.wanted_steps);
  }
  std::string text = "not equal: ";
  if (r.first) {
    text += fmt::format("from step {} on ({} {} in the run, {} now)", r.first->step, r.first->what,
                        r.first->was, r.first->is);
  } else {
    text += "losses agree, but tensors of a checkpoint do not";
  }
  if (!differing.empty()) {
    text += fmt::format("; suspect: {}", join(differing, ", "));
  } else if (!unknown.empty()) {
    text += fmt::format("; no recorded factor differs, but the run did not record all of: {}",
                        join(unknown, ", "));
  } else {
    text +=
        "; no factor differs: this is nondeterminism in the program, please report it with both "
        "run folders";
  }
  return text;
}

Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

std::string set_of_run(FileSystem& files, const std::string& run) {
  const std::string runs = parent_path(files.resolve(run));
  const std::string set = parent_path(runs);
  return base_name(runs) == "runs" && files.exists(join_path(set, "runs.json")) ? set : "";
}

namespace {

// The set of runs that a folder, which need not exist, is or lies in; "" when there is none.
std::string set_around(FileSystem& files, const std::string& folder) {
  std::string at = join_path(files.resolve(parent_path(folder)), base_name(folder));
  while (true) {
    if (files.exists(join_path(at, "runs.json")) && files.is_directory(join_path(at, "runs"))) {
      return at;
    }
    std::string above = parent_path(at);
    if (above == at || above.empty()) return {};
    at = std::move(above);
  }
}

}  // namespace

ReproductionPlan plan_reproduction(FileSystem& files, const ReproduceOptions& options,
                                   const std::function<void(int64_t, int64_t)>& on_progress) {
  ReproductionPlan plan;
  plan.run = options.run;
  load_recipe(files, options.run);  // names a folder that is not a run
  const std::string path = recipe_path(options.run);
  plan.recipe = spec::parse_recipe(read_file(files, path), path, options.overrides, "");
  // What is run again is not a result: it clears no caches and writes no log.
  plan.recipe.mlperf.benchmark.clear();
  plan.record = read_run_record(files, options.run);
  plan.steps = plan.record.last_step;
  if (options.steps > plan.steps) {
    fail(ErrorKind::usage, "--steps: the run '{}' has {} steps, not {}", options.run, plan.steps,
         options.steps);
  }
  if (options.steps > 0) plan.steps = options.steps;
  if (files.exists(recipe_path(options.out)) || files.exists(events_path(options.out))) {
    fail(ErrorKind::usage, "--out: '{}' holds a run already; name a new folder", options.out);
  }
  if (const std::string set = set_around(files, options.out); !set.empty()) {
    fail(ErrorKind::usage,
         "--out: '{}' is in the set '{}', whose runs were fixed before the first of them; name a "
         "folder outside",
         options.out, set);
  }
  plan.factors = compare_factors(plan.record, describe_now(files, plan.recipe, on_progress));
  plan.options.run_folder = options.out;
  plan.options.measure_peak = false;
  plan.options.stop_after_step = plan.steps;
  return plan;
}

Reproduction compare_reproduction(FileSystem& files, const ReproductionPlan& plan) {
  Reproduction out;
  out.run = plan.run;
  out.out = plan.options.run_folder;
  out.factors = plan.factors;
  out.wanted_steps = plan.steps;
  compare_numbers(plan.record, read_run_record(files, out.out), out);
  compare_checkpoints(files, out);
  out.complete = out.steps == out.wanted_steps;
  if (static_cast<int64_t>(plan.record.steps.size()) < plan.record.last_step) {
    out.notes.push_back(fmt::format("the run recorded {} of its {} steps", plan.record.steps.size(),
                                    plan.record.last_step));
  }
  if (plan.record.unequal_repeat) {
    out.notes.push_back(fmt::format(
        "the run itself took step {} twice, after going back to a checkpoint, with other numbers "
        "the second time",
        *plan.record.unequal_repeat));
  }
  out.equal = out.complete && out.unequal_steps == 0 && !out.first &&
              std::all_of(out.checkpoints.begin(), out.checkpoints.end(), all_equal);
  if (!out.equal) {
    for (const FactorState state : {FactorState::differs, FactorState::unknown}) {
      for (const std::string& name : names(out.factors, state)) out.suspects.push_back(name);
    }
  }
  out.verdict = verdict_text(out);
  return out;
}

Json to_json(const Reproduction& r) {
  Json factors = Json::array();
  for (const Factor& factor : r.factors) {
    factors.push_back({{"factor", factor.name},
                       {"state", factor_state_name(factor.state)},
                       {"details", factor.details}});
  }
  Json checkpoints = Json::array();
  for (const CheckpointComparison& checkpoint : r.checkpoints) {
    checkpoints.push_back({{"step", checkpoint.step},
                           {"tensors", checkpoint.tensors},
                           {"unequal", checkpoint.unequal}});
  }
  Json first = nullptr;
  if (r.first) {
    first = {{"step", r.first->step},
             {"what", r.first->what},
             {"was", number_json(r.first->was)},
             {"is", number_json(r.first->is)}};
  }
  return {{"equal", r.equal},
          {"complete", r.complete},
          {"verdict", r.verdict},
          {"run", r.run},
          {"out", r.out},
          {"steps", r.steps},
          {"wanted_steps", r.wanted_steps},
          {"unequal_steps", r.unequal_steps},
          {"evaluations", r.evaluations},
          {"first_difference", std::move(first)},
          {"checkpoints", std::move(checkpoints)},
          {"factors", std::move(factors)},
          {"suspects", r.suspects},
          {"notes", r.notes}};
}

std::string format_factors(const std::vector<Factor>& factors) {
  std::string text;
  for (const Factor& factor : factors) {
    text += fmt::format("{:<16} {}\n", factor.name, factor_state_name(factor.state));
    for (const std::string& line : factor.details) text += "  " + line + "\n";
  }
  return text;
}

std::string format_reproduction(const Reproduction& r) {
  std::string text;
  for (const CheckpointComparison& checkpoint : r.checkpoints) {
    if (checkpoint.unequal.empty()) continue;
    const size_t shown = std::min(kShownTensors, checkpoint.unequal.size());
    text += fmt::format("checkpoint of step {}: {} of {} tensors differ: {}{}\n", checkpoint.step,
                        checkpoint.unequal.size(), checkpoint.tensors,
                        join({checkpoint.unequal.begin(),
                              checkpoint.unequal.begin() + static_cast<std::ptrdiff_t>(shown)},
                             ", "),
                        shown < checkpoint.unequal.size() ? ", ..." : "");
  }
  for (const std::string& note : r.notes) text += "note: " + note + "\n";
  return text + r.verdict + "\n";
}

}  // namespace tutti::train
