// `tutti bench all` and `bench history`: a small set of measurements, remembered.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/train/memory_check.h"
#include "tutti/launch/home.h"
#include "tutti/telemetry/sinks/progress_bar.h"
#include "tutti/train/tasks/bench.h"
#include "tutti/train/tasks/bench_history.h"
#include "tutti_version.h"

namespace tutti::cli {
namespace {

struct HistoryArguments {
  std::string model = "gpt2-124m";
  int64_t steps = 5;
  std::vector<std::string> set;
  std::string history;
  bool json = false;
};

constexpr size_t kHistoryKernels = 8;  // that do most of a step's work
constexpr size_t kHistoryColumns = 5;  // of the printed history
constexpr int64_t kKernelLayers = 2;   // kernels are those of the whole model, and there are enough

struct MeasuredStep {
  const char* precision;
  int64_t batch, sequence;
};
constexpr MeasuredStep kMeasuredSteps[] = {{"bf16", 4, 64}, {"bf16", 1, 1024}, {"f32", 4, 64}};

// $XDG_STATE_HOME/tutti/bench.jsonl, else below $HOME/.local/state.
std::string history_path(const std::string& given) {
  if (!given.empty()) return given;
  constexpr const char* kName = "tutti/bench.jsonl";
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state != '\0') {
    return join_path(state, kName);
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return join_path(join_path(home, ".local/state"), kName);
  }
  fail(ErrorKind::not_found, "no folder for the history: set HOME, or give --history FILE");
}

spec::Recipe measured_recipe(const HistoryArguments& arguments, const MeasuredStep& step) {
  spec::Recipe recipe = spec::parse_recipe(
      fmt::format("model: {}\nprecision: {}\n"
                  "batch: {{global: {}, micro: {}, sequence: {}}}\n",
                  arguments.model, step.precision, step.batch, step.batch, step.sequence),
      "tutti bench all", arguments.set, launch::models_folder(posix_file_system()));
  spec::check_executable(recipe);
  check_memory(recipe);
  return recipe;
}

std::vector<double> inverse_times(double factor, const std::vector<double>& seconds) {
  std::vector<double> out;
  out.reserve(seconds.size());
  for (const double one : seconds) out.push_back(factor / one);
  return out;
}

void measure_step(const HistoryArguments& arguments, const MeasuredStep& step,
                  train::BenchRow& row) {
  const std::string name =
      fmt::format("{}{}{} {} {}x{}", arguments.model, arguments.set.empty() ? "" : " ",
                  join(arguments.set, " "), step.precision, step.batch, step.sequence);
  telemetry::ProgressBar progress("measure " + name, "steps");
  const train::StepBench bench =
      train::bench_step(measured_recipe(arguments, step), arguments.steps,
                        [&](int64_t done) { progress.update(done, arguments.steps); });
  progress.finish();
  const double flops = bench.model_flops_per_step / bench.gemm_peak_flops;
  const auto tokens = static_cast<double>(step.batch * step.sequence);
  row.figures[name + ", share of GEMM peak"] =
      train::bench_figure(inverse_times(flops, bench.seconds));
  row.figures[name + ", tokens/s"] = train::bench_figure(inverse_times(tokens, bench.seconds));
  row.figures[fmt::format("GEMM peak {}, GFLOP/s", step.precision)] = {bench.gemm_peak_flops * 1e-9,
                                                                       0};
}

// The same figures every time, so the kernels are chosen by what they do and not by how long they
// took. A byte counts as much as the FLOPs that take about as long.
double work_per_step(const train::KernelBench& kernel) {
  constexpr double kFlopsPerByte = 20;
  return kernel.calls_per_step * std::max(kernel.flops, kFlopsPerByte * kernel.bytes);
}

void measure_kernels(const HistoryArguments& arguments, train::BenchRow& row) {
  const MeasuredStep& step = kMeasuredSteps[0];
  print_message("measure kernels\n");
  spec::Recipe recipe = measured_recipe(arguments, step);
  recipe.model.layers = std::min(recipe.model.layers, kKernelLayers);
  std::vector<train::KernelBench> kernels = train::bench_kernels(recipe, arguments.steps);
  std::sort(
      kernels.begin(), kernels.end(), [](const train::KernelBench& a, const train::KernelBench& b) {
        const double more = work_per_step(a), less = work_per_step(b);
        return more != less ? more > less : std::tie(a.name, a.shape) < std::tie(b.name, b.shape);
      });
  for (size_t i = 0; i < std::min(kHistoryKernels, kernels.size()); ++i) {
    const train::KernelBench& kernel = kernels[i];
    const double share = kernel.rate / kernel.ceiling * kernel.median_seconds;
    row.figures[fmt::format("{} {}, share of ceiling", kernel.name, kernel.shape)] =
        train::bench_figure(inverse_times(share, kernel.seconds));
  }
}

// "0.6312", "27130", whatever the size.
std::string figure_text(double value) { return fmt::format("{:.4g}", value); }

std::string signed_percent(double share) { return fmt::format("{:+.1f}%", 100 * share); }

std::string changed_software(const Json& before, const Json& now) {
  std::vector<std::string> changes;
  for (const auto& [key, value] : now.items()) {
    if (before.contains(key) && before.at(key) != value) {
      changes.push_back(fmt::format("{} {} -> {}", key, before.at(key).dump(), value.dump()));
    }
  }
  return join(changes, ", ");
}

void print_judgements(const std::vector<train::BenchJudgement>& judgements) {
  std::vector<std::vector<std::string>> table = {
      {"figure", "now", "before", "change", "noise", "rows", "verdict"}};
  for (const train::BenchJudgement& one : judgements) {
    const bool first = one.verdict == train::BenchVerdict::first;
    table.push_back({one.figure, figure_text(one.value), first ? "-" : figure_text(one.reference),
                     first ? "-" : signed_percent(one.change),
                     first ? "-" : fmt::format("{:.1f}%", 100 * one.limit),
                     fmt::format("{}", one.rows), train::bench_verdict_name(one.verdict)});
  }
  print_text(format_table(table));
}

void print_conclusion(const std::vector<train::BenchJudgement>& judgements,
                      const std::vector<train::BenchRow>& before, const train::BenchRow& now) {
  bool compared = false, slower = false;
  for (const train::BenchJudgement& one : judgements) {
    compared = compared || one.verdict != train::BenchVerdict::first;
    if (one.verdict != train::BenchVerdict::slower) continue;
    slower = true;
    print_text(fmt::format("slower than noise: {}: {} ({} before, {}; noise up to {:.1f}%)\n",
                           one.figure, figure_text(one.value), figure_text(one.reference),
                           signed_percent(one.change), 100 * one.limit));
  }
  if (!compared) {
    print_text("first row of this kind of machine: nothing to compare with yet\n");
  } else if (!slower) {
    print_text("nothing is slower than noise\n");
  }
  const auto last = std::find_if(before.rbegin(), before.rend(), [&](const train::BenchRow& row) {
    return train::same_kind(row.machine, now.machine);
  });
  if (last == before.rend()) return;
  const std::string changes = changed_software(last->machine, now.machine);
  if (!changes.empty()) print_text("changed since the last row: " + changes + "\n");
}

int run_bench_all(const HistoryArguments& arguments) {
  FileSystem& files = posix_file_system();
  const std::string path = history_path(arguments.history);
  const std::vector<train::BenchRow> before = train::read_bench_history(files, path);
  train::BenchRow row;
  row.version = TUTTI_VERSION;
  row.machine = train::bench_machine();
  for (const MeasuredStep& step : kMeasuredSteps) measure_step(arguments, step, row);
  measure_kernels(arguments, row);
  row.time = format_utc(wall_seconds());
  train::append_bench_row(files, path, row);
  const std::vector<train::BenchJudgement> judgements = train::judge_bench(before, row);
  if (arguments.json) {
    Json list = Json::array();
    for (const train::BenchJudgement& one : judgements) {
      list.push_back({{"figure", one.figure},
                      {"value", one.value},
                      {"reference", one.rows > 0 ? Json(one.reference) : Json(nullptr)},
                      {"change", one.change},
                      {"limit", one.limit},
                      {"rows", one.rows},
                      {"verdict", train::bench_verdict_name(one.verdict)}});
    }
    print_json({{"row", to_json(row)}, {"judgements", std::move(list)}, {"history", path}});
    return exit_ok;
  }
  print_judgements(judgements);
  print_conclusion(judgements, before, row);
  print_message(fmt::format("The history is in {}\n", path));
  return exit_ok;
}

// The newest rows of this kind of machine, one column each.
int run_history(const HistoryArguments& arguments) {
  const std::string path = history_path(arguments.history);
  const std::vector<train::BenchRow> rows = train::read_bench_history(posix_file_system(), path);
  if (arguments.json) {
    Json list = Json::array();
    for (const train::BenchRow& row : rows) list.push_back(to_json(row));
    print_json({{"history", path}, {"rows", std::move(list)}});
    return exit_ok;
  }
  const Json machine = train::bench_machine();
  std::vector<const train::BenchRow*> shown;
  for (auto row = rows.rbegin(); row != rows.rend() && shown.size() < kHistoryColumns; ++row) {
    if (train::same_kind(row->machine, machine)) shown.insert(shown.begin(), &*row);
  }
  if (shown.empty()) {
    print_text(
        fmt::format("no rows of this kind of machine in {}; `tutti bench all` adds one\n", path));
    return exit_ok;
  }
  std::vector<std::vector<std::string>> table = {{"figure"}, {"version"}};
  for (const train::BenchRow* row : shown) {
    table[0].push_back(row->time);
    table[1].push_back(row->version);
  }
  for (const auto& [name, unused] : shown.back()->figures) {
    std::vector<std::string> line = {name};
    for (const train::BenchRow* row : shown) {
      const auto found = row->figures.find(name);
      line.push_back(found == row->figures.end() ? "-" : figure_text(found->second.value));
    }
    table.push_back(std::move(line));
  }
  print_text(format_table(table));
  return exit_ok;
}

void add_history_options(CLI::App& command, HistoryArguments& arguments) {
  command
      .add_option("--history", arguments.history,
                  "Default: tutti/bench.jsonl in $XDG_STATE_HOME, else in ~/.local/state")
      ->type_name("FILE");
  add_json_option(command, arguments.json);
}

}  // namespace

void add_bench_all(CLI::App& bench, Action& action) {
  const auto arguments = std::make_shared<HistoryArguments>();
  CLI::App* all = bench.add_subcommand(
      "all", "Steps and kernels, compared with and added to this machine's history");
  all->add_option("--model", arguments->model, "Preset of recipes/models")->capture_default_str();
  all->add_option("--steps", arguments->steps, "Steps of each measurement, after two of warm-up")
      ->capture_default_str()
      ->check(at_least(1));
  all->add_option("--set", arguments->set, "Further keys of the recipe, such as model.layers=24")
      ->type_name("KEY=VALUE");
  add_history_options(*all, *arguments);
  all->footer(
      "Every figure is a ratio to a peak measured in the same run, or a speed; higher is better.\n"
      "A figure is slower when it is below the median of the last 12 rows of the same processor,\n"
      "cores and memory by more than 3 standard deviations of those rows.\n\n"
      "Example:\n  tutti bench all --history bench.jsonl");
  all->callback(
      [arguments, &action] { action = [arguments] { return run_bench_all(*arguments); }; });

  const auto shown = std::make_shared<HistoryArguments>();
  CLI::App* history =
      bench.add_subcommand("history", "The last rows of `bench all` on this kind of machine");
  add_history_options(*history, *shown);
  history->footer("Example:\n  tutti bench history --history bench.jsonl");
  history->callback([shown, &action] { action = [shown] { return run_history(*shown); }; });
}

}  // namespace tutti::cli
