// `tutti plan calibrate`: a real run's recorded operations become a system of the catalog.
#include "tutti/plan/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/bench/machine_probe.h"
#include "tutti/cli/plan/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/engine/gemm_peak.h"
#include "tutti/node/copy_bandwidth.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/telemetry/event_reader.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::cli {
namespace {

constexpr size_t kRows = 15;

struct CalibrateArguments {
  std::string run;
  std::string name = "this-machine";
  std::string out = "calibrated";
  bool trace_only = false;
  bool json = false;
};

// What the run noted about itself; zeros where it did not.
struct Noted {
  double peak_bytes = 0;
  int64_t threads = 0;
  std::string cpu;
};

// A run keeps a copy of what its checkpoints hold: f32 parameters and both moments.
int64_t checkpoint_copy_bytes(const telemetry::MemoryMeasured& memory) {
  const auto bytes_of = [&](std::string_view kind) {
    for (const telemetry::MemoryByKind& each : memory.kinds) {
      if (each.kind == kind) return each.bytes;
    }
    return int64_t{0};
  };
  const int64_t master = bytes_of("master");
  return (master > 0 ? master : bytes_of("weights")) + bytes_of("moment1") + bytes_of("moment2");
}

Noted read_notes(FileSystem& files, const std::string& run) {
  Noted noted;
  const std::string path = train::events_path(run);
  if (!files.exists(path)) return noted;
  telemetry::read_events(files, path, [&](const telemetry::Event& event) {
    if (const auto* memory = std::get_if<telemetry::MemoryMeasured>(&event.body)) {
      noted.peak_bytes =
          static_cast<double>(memory->peak_resident_bytes - checkpoint_copy_bytes(*memory));
    }
    if (const auto* machine = std::get_if<telemetry::MachineDescribed>(&event.body)) {
      noted.threads = machine->threads;
      noted.cpu = machine->cpu;
    }
  });
  return noted;
}

void check_name(const std::string& name) {
  for (const char c : name) {
    const bool fine = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
    if (!fine || name.front() == '.') {
      fail(ErrorKind::usage, "--name: '{}'; accepted: small letters, digits, dashes, dots", name);
    }
  }
  if (name.empty()) fail(ErrorKind::usage, "--name: empty");
}

std::string dims_text(const std::array<int64_t, 6>& dims) {
  std::string text;
  for (const int64_t dim : dims) {
    if (dim != 0) text += (text.empty() ? "" : "x") + std::to_string(dim);
  }
  return text;
}

// The run's trace is that of one rank on the CPU.
void check_recipe(const spec::Recipe& recipe, const std::string& run) {
  if (recipe.device != "cpu") {
    fail(ErrorKind::unsupported, "{}: ran on {}; calibrate makes systems of CPUs only", run,
         recipe.device);
  }
  if (recipe.parallel.world() > 1) {
    fail(ErrorKind::unsupported,
         "{}: has {} ranks; record a run of one rank, with all threads: what ranks do that share "
         "the "
         "machine is measured apart",
         run, recipe.parallel.world());
  }
}

spec::Precision other_precision(spec::Precision precision) {
  return precision == spec::Precision::f32 ? spec::Precision::bf16 : spec::Precision::f32;
}

// Measures the other precision, which `alone` then knows, and ranks that share the machine. What
// cannot be measured, such as more ranks than fit into memory, is reported.
std::vector<plan::MeasuredRanks> measure_others(const CalibrateArguments& arguments,
                                                const spec::Recipe& recipe, int64_t threads,
                                                plan::Calibration& alone, Json& json) {
  std::vector<plan::MeasuredRanks> out;
  const spec::Precision other = other_precision(recipe.precision);
  const auto record = [&](int64_t ranks, spec::Precision precision) {
    print_message(fmt::format("measuring {} rank{} in {}\n", ranks, ranks > 1 ? "s" : "",
                              spec::name_of(spec::kPrecisionNames, precision)));
    return probe_machine(arguments.run, recipe, ranks, threads, precision);
  };
  int64_t ranks = 1;
  try {
    const plan::RankRecording single = record(1, other);
    plan::calibrate_precision(single.trace, single.recipe, arguments.name, alone);
    for (const int64_t count : probed_ranks(threads)) {
      ranks = count;
      const plan::RankRecording run = record(ranks, recipe.precision);
      plan::Calibration calibration = plan::calibrate_ranks(run, arguments.name, alone);
      const plan::RankRecording others = record(ranks, other);
      plan::calibrate_precision(others.trace, others.recipe, arguments.name, calibration);
      json[std::to_string(ranks)] = plan::to_json(calibration);
      out.push_back({ranks, calibration.ceilings, calibration.constants});
    }
  } catch (const Error& error) {
    print_message(fmt::format(
        "warning: not measured: {} rank{} and more, which use the constants of one rank: {}\n",
        ranks, ranks > 1 ? "s" : "", error.what()));
  }
  return out;
}

int run_calibrate(const CalibrateArguments& arguments) {
  FileSystem& files = posix_file_system();
  check_name(arguments.name);
  const spec::Recipe recipe = train::load_recipe(files, arguments.run);
  check_recipe(recipe, arguments.run);
  const std::string path = join_path(arguments.run, "trace.json");
  if (!files.exists(path)) {
    fail(ErrorKind::not_found,
         "{}: no such file; record operations with: tutti train RECIPE --run {} --trace 8", path,
         arguments.run);
  }
  const plan::RunTrace trace = plan::parse_trace(read_file(files, path), path);
  const Noted noted = read_notes(files, arguments.run);
  const Machine machine = describe_machine();
  if (!noted.cpu.empty() && noted.cpu != machine.cpu) {
    fail(ErrorKind::unsupported,
         "{}: recorded on '{}', this is '{}'; calibrate where the run was, since the ceilings are "
         "measured now",
         arguments.run, noted.cpu, machine.cpu);
  }

  print_message("measuring the ceilings of this machine\n");
  const std::unique_ptr<engine::Stream> stream =
      engine::make_cpu_stream(static_cast<int>(noted.threads));
  plan::MachineCeilings ceilings;
  ceilings.bf16_flops = engine::measure_gemm_peak(*stream, DType::bf16, {2048}, 5);
  ceilings.f32_flops = engine::measure_gemm_peak(*stream, DType::f32, {2048}, 5);
  ceilings.bytes_per_second = node::measure_copy_bandwidth();
  ceilings.memory_bytes = static_cast<double>(machine.memory_bytes);
  plan::Calibration calibration =
      plan::calibrate(trace, recipe, arguments.name, ceilings, noted.peak_bytes);
  const int64_t threads = std::max<int64_t>(1, noted.threads);
  std::vector<plan::MeasuredRanks> measured;
  Json measured_json = Json::object();
  if (!arguments.trace_only) {
    measured = measure_others(arguments, recipe, threads, calibration, measured_json);
  }
  ceilings = calibration.ceilings;

  const std::string source =
      fmt::format("measured: tutti plan calibrate {} on {}, {} threads", base_name(arguments.run),
                  printable(machine.cpu), noted.threads);
  const std::string date = format_utc(wall_seconds()).substr(0, 10);
  for (const auto& [file, text] : plan::machine_files(
           arguments.name, ceilings, threads, calibration.constants, source, date, measured)) {
    const std::string full = join_path(arguments.out, file);
    files.create_directories(parent_path(full));
    write_file_atomic(files, full, text);
  }

  if (calibration.spread > plan::kQuietSpread) {
    print_message(fmt::format(
        "warning: the {} recorded steps took {} to {}, {:.0f}% of their median apart: other work "
        "ran at the same time, or memory was short; record again on a quiet machine\n",
        trace.step_seconds.size(), format_seconds(calibration.least_step_seconds),
        format_seconds(calibration.most_step_seconds), 100 * calibration.spread));
  }
  const double error = calibration.fitted_step_seconds / calibration.measured_step_seconds - 1;
  if (arguments.json) {
    Json json = plan::to_json(calibration);
    json["system"] = arguments.name;
    json["catalog"] = arguments.out;
    json["ranks"] = std::move(measured_json);
    json["ceilings"] = {{"bf16_flops", ceilings.bf16_flops},
                        {"f32_flops", ceilings.f32_flops},
                        {"bytes_per_second", ceilings.bytes_per_second}};
    print_json(json);
    return exit_ok;
  }
  std::vector<std::vector<std::string>> rows = {
      {"operation", "shape", "calls", "measured", "fitted", "error", "held out"}};
  for (const plan::CalibratedGroup& group : calibration.groups) {
    if (rows.size() > kRows) break;
    rows.push_back(
        {group.name, dims_text(group.dims), fmt::format("{:.0f}", group.calls_per_step),
         format_seconds(group.measured_seconds), format_seconds(group.fitted_seconds),
         fmt::format("{:+.1f}%", 100 * (group.fitted_seconds / group.measured_seconds - 1)),
         fmt::format("{:+.1f}%", 100 * (group.held_out_seconds / group.measured_seconds - 1))});
  }
  print_text(format_table(rows));
  print_text(format_pairs(
      {{"step", fmt::format("{} measured, {} fitted ({:+.1f}%)",
                            format_seconds(calibration.measured_step_seconds),
                            format_seconds(calibration.fitted_step_seconds), 100 * error)},
       {"held-out error", fmt::format("{:.1f}%", 100 * calibration.constants.error)},
       {"written", arguments.out}}));
  print_text(
      fmt::format("\ntutti plan predict RECIPE --catalog {} --system {} --profile tutti --gpus 1\n",
                  arguments.out, arguments.name));
  return exit_ok;
}

}  // namespace

void add_plan_calibrate(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<CalibrateArguments>();
  CLI::App* command = group.add_subcommand(
      "calibrate", "Make this machine a system of the catalog from a recorded run");
  command->add_option("RUN", arguments->run, "Run folder with a trace.json (train --trace)")
      ->required();
  command->add_option("--name", arguments->name, "Name of the system")->capture_default_str();
  command->add_option("--out", arguments->out, "Catalog folder to write it to")
      ->type_name("FOLDER")
      ->capture_default_str();
  command->add_flag("--trace-only", arguments->trace_only,
                    "Measure no ranks that share the machine and not the other precision");
  add_json_option(*command, arguments->json);
  command->footer(
      "Example:\n"
      "  tutti data prepare texts/ --out mine --tokenizer byte --holdout 0.05\n"
      "  tutti train demo --run runs/a --trace 8 train.steps=60 train.target_loss=null \\\n"
      "      data.train=mine data.validation=mine-validation\n"
      "  tutti plan calibrate runs/a\n"
      "  tutti plan predict demo --catalog calibrated --system this-machine \\\n"
      "      --profile tutti --gpus 1 batch.global=32");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_calibrate(*arguments); }; });
}

}  // namespace tutti::cli
