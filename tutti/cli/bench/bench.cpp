#include "tutti/train/tasks/bench.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/train/memory_check.h"
#include "tutti/engine/backend.h"
#include "tutti/launch/home.h"
#include "tutti/spec/memory/fit.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/telemetry/sinks/progress_bar.h"
#include "tutti/train/step/device_memory.h"

namespace tutti::cli {
namespace {

struct BenchArguments {
  std::string model = "gpt2-124m";
  std::string precision = "bf16";
  int64_t batch = 4;
  int64_t accumulate = 1;
  int64_t sequence = 64;
  int64_t steps = 5;
  std::string device = "cpu";
  std::vector<std::string> set;
  std::string recompute = "none";
  int64_t recompute_layers = 0;
  int64_t threads = 0;
  int64_t lora = 0;
  std::string lora_targets = "qkv,output";
  double lora_dropout = 0;
  bool json = false;
};

// The mapping of a recipe: a mode, or parts separated by commas.
std::string recompute_yaml(const BenchArguments& arguments) {
  std::string yaml = "{mode: " + arguments.recompute;
  bool mode = false;
  for (const char* name : {"none", "selective", "full"}) mode = mode || arguments.recompute == name;
  if (!mode) yaml = "{parts: [" + arguments.recompute + "]";
  if (arguments.recompute_layers > 0) {
    yaml += fmt::format(", layers: {}", arguments.recompute_layers);
  }
  return yaml + "}";
}

spec::Recipe bench_recipe(const BenchArguments& arguments) {
  std::string text = fmt::format(
      "model: {}\nprecision: {}\ndevice: {}\nthreads: {}\nrecompute: {}\n"
      "batch: {{global: {}, micro: {}, sequence: {}}}\n",
      arguments.model, arguments.precision, arguments.device, arguments.threads,
      recompute_yaml(arguments), arguments.batch * arguments.accumulate, arguments.batch,
      arguments.sequence);
  if (arguments.lora > 0) {
    text += fmt::format("lora: {{rank: {}, dropout: {}, targets: [{}]}}\n", arguments.lora,
                        arguments.lora_dropout, arguments.lora_targets);
  }
  spec::Recipe recipe = spec::parse_recipe(text, "tutti bench", arguments.set,
                                           launch::models_folder(posix_file_system()));
  spec::check_executable(recipe);
  return recipe;
}

Json setting_json(const BenchArguments& arguments) {
  return {{"model", arguments.model},
          {"precision", arguments.precision},
          {"batch", arguments.batch},
          {"accumulate", arguments.accumulate},
          {"sequence", arguments.sequence},
          {"steps", arguments.steps},
          {"device", arguments.device},
          {"set", arguments.set},
          {"recompute", arguments.recompute},
          {"recompute_layers", arguments.recompute_layers},
          {"lora", arguments.lora > 0 ? Json{{"rank", arguments.lora},
                                             {"dropout", arguments.lora_dropout},
                                             {"targets", arguments.lora_targets}}
                                      : Json(nullptr)}};
}

// What the backend sees; of the processor nothing.
Json devices_json(const std::string& device) {
  Json list = Json::array();
  for (const engine::DeviceInfo& one : engine::find_backend(device).devices()) {
    list.push_back({{"name", one.name},
                    {"architecture", one.architecture},
                    {"memory_bytes", one.memory_bytes},
                    {"driver", one.driver},
                    {"runtime", one.runtime}});
  }
  return list;
}

int run_step(const BenchArguments& arguments) {
  const spec::Recipe recipe = bench_recipe(arguments);
  check_memory(recipe);
  telemetry::ProgressBar progress("measure", "steps");
  const train::StepBench bench = train::bench_step(
      recipe, arguments.steps, [&](int64_t done) { progress.update(done, arguments.steps); });
  progress.finish();
  for (const std::string& note : bench.notes) print_message(note + "\n");
  if (arguments.json) {
    Json json = train::to_json(bench);
    json["setting"] = setting_json(arguments);
    json["devices"] = devices_json(recipe.device);
    print_json(json);
    return exit_ok;
  }
  const auto bytes = [](int64_t count) { return format_bytes(static_cast<double>(count)); };
  print_text(format_pairs(
      {{"step", fmt::format("{} median ({} to {})", format_seconds(bench.median_seconds),
                            format_seconds(bench.min_seconds), format_seconds(bench.max_seconds))},
       {"host", fmt::format("{} of each step in which it enqueues or computes",
                            format_seconds(bench.host_seconds))},
       {"speed", format_rate(bench.tokens_per_second, "tokens")},
       {"MFU", fmt::format("{:.1f}% of the GEMM peak of {:.0f} GFLOP/s measured just now",
                           100 * bench.mfu_of_gemm_peak, bench.gemm_peak_flops * 1e-9)},
       {"model FLOPs", format_count(bench.model_flops_per_step) + " per step"},
       {"hardware FLOPs", format_count(bench.hardware_flops_per_step) + " per step"},
       {"memory", fmt::format("{} at most, {} in the memory map", bytes(bench.peak_memory_bytes),
                              bytes(bench.memory_map_bytes))},
       {"recompute", bench.freed_bytes == 0 ? bench.recompute
                                            : fmt::format("{}: {} less", bench.recompute,
                                                          bytes(bench.freed_bytes))}}));
  return exit_ok;
}

std::string rate_text(const train::KernelBench& kernel, double rate) {
  return fmt::format("{:.1f} {}", rate * 1e-9, kernel.compute_bound ? "GFLOP/s" : "GB/s");
}

int run_kernels(const BenchArguments& arguments) {
  const spec::Recipe recipe = bench_recipe(arguments);
  check_memory(recipe);
  const std::vector<train::KernelBench> kernels = train::bench_kernels(recipe, arguments.steps);
  if (arguments.json) {
    Json list = Json::array();
    for (const train::KernelBench& kernel : kernels) {
      list.push_back({{"name", kernel.name},
                      {"shape", kernel.shape},
                      {"median_seconds", kernel.median_seconds},
                      {"calls_per_step", kernel.calls_per_step},
                      {"bound", kernel.compute_bound ? "compute" : "memory"},
                      {"rate", kernel.rate},
                      {"ceiling", kernel.ceiling},
                      {"share_of_ceiling", kernel.rate / kernel.ceiling}});
    }
    print_json({{"setting", setting_json(arguments)}, {"kernels", std::move(list)}});
    return exit_ok;
  }
  std::vector<std::vector<std::string>> rows = {
      {"kernel", "shape", "calls", "each", "rate", "ceiling", "%"}};
  for (const train::KernelBench& kernel : kernels) {
    rows.push_back({kernel.name, kernel.shape, fmt::format("{:.0f}", kernel.calls_per_step),
                    format_seconds(kernel.median_seconds), rate_text(kernel, kernel.rate),
                    rate_text(kernel, kernel.ceiling),
                    fmt::format("{:.0f}", 100 * kernel.rate / kernel.ceiling)});
  }
  print_text(format_table(rows));
  return exit_ok;
}

// What a step would take and what there is, whether it fits or not; nothing is computed.
int run_memory(const BenchArguments& arguments) {
  const spec::Recipe recipe = bench_recipe(arguments);
  const engine::Backend& backend = engine::find_backend(recipe.device);
  if (const std::string missing = backend.missing(); !missing.empty()) {
    fail(ErrorKind::unsupported, "device: {}: {}", recipe.device, missing);
  }
  const int64_t device_bytes = train::device_memory_bytes(recipe);
  const int64_t needed = spec::fullest_memory_map(recipe, device_bytes).total_bytes();
  const int64_t room =
      &backend == &engine::cpu_backend() ? describe_machine().memory_bytes : backend.free_bytes(0);
  Json uses = Json::array();
  std::vector<std::vector<std::string>> rows = {{"use", "bytes", ""}};
  for (const spec::MemoryUse& use : spec::memory_uses(recipe, device_bytes)) {
    uses.push_back({{"name", use.name}, {"bytes", use.bytes}, {"on_host", use.on_host}});
    rows.push_back({use.name, format_bytes(static_cast<double>(use.bytes)), use.what});
  }
  if (arguments.json) {
    print_json({{"setting", setting_json(arguments)},
                {"memory_map_bytes", needed},
                {"free_bytes", room},
                {"uses", std::move(uses)},
                {"devices", devices_json(recipe.device)}});
    return exit_ok;
  }
  print_text(format_table(rows));
  print_text(fmt::format("{} of {} free\n", format_bytes(static_cast<double>(needed)),
                         format_bytes(static_cast<double>(room))));
  return exit_ok;
}

// The recipe that options are written into would name its own line.
CLI::Validator one_of(std::vector<std::string> accepted) {
  return CLI::Validator(
      [accepted = std::move(accepted)](const std::string& text) {
        const bool known = std::find(accepted.begin(), accepted.end(), text) != accepted.end();
        return known ? std::string()
                     : fmt::format("'{}' is not accepted; write one of {}", text,
                                   join(accepted, ", "));
      },
      "");
}

std::shared_ptr<BenchArguments> add_options(CLI::App& command, bool measures = true) {
  auto arguments = std::make_shared<BenchArguments>();
  command.add_option("--model", arguments->model, "Preset of recipes/models")
      ->capture_default_str();
  command.add_option("--precision", arguments->precision, "f32, bf16, fp8, mxfp8 or fp4")
      ->capture_default_str()
      ->check(one_of({"f32", "bf16", "fp8", "mxfp8", "fp4"}));
  command.add_option("--batch", arguments->batch, "Sequences per micro-batch")
      ->capture_default_str()
      ->check(at_least(1));
  command
      .add_option("--accumulate", arguments->accumulate,
                  "Micro-batches per step (gradient accumulation)")
      ->capture_default_str()
      ->check(at_least(1));
  command.add_option("--seq", arguments->sequence, "Tokens per sequence")
      ->capture_default_str()
      ->check(at_least(1));
  if (measures) {
    command.add_option("--steps", arguments->steps, "Steps to measure, after warm-up")
        ->capture_default_str()
        ->check(at_least(1));
  }
  command
      .add_option("--set", arguments->set, "Further keys of the recipe, such as model.layers=24")
      ->type_name("KEY=VALUE");
  command.add_option("--device", arguments->device, "cpu or cuda")
      ->capture_default_str()
      ->check(one_of({"cpu", "cuda"}));
  command
      .add_option("--recompute", arguments->recompute,
                  "none, selective, full, or parts: norms,attention,core,mlp,activation")
      ->capture_default_str();
  command
      .add_option("--recompute-layers", arguments->recompute_layers,
                  "Only the first N layers; 0: all")
      ->capture_default_str()
      ->check(at_least(0));
  command.add_option("--threads", arguments->threads, "Threads; 0: all cores")
      ->capture_default_str()
      ->check(at_least(0));
  command.add_option("--lora", arguments->lora, "LoRA rank; 0: train all parameters")
      ->type_name("RANK")
      ->check(at_least(0));
  command.add_option("--lora-targets", arguments->lora_targets, "Like lora.targets of a recipe")
      ->capture_default_str();
  command.add_option("--lora-dropout", arguments->lora_dropout, "LoRA dropout")
      ->check(between(0.0, 0.99));
  add_json_option(command, arguments->json);
  return arguments;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("bench", "Measure this machine against its own peak rates");
  group->require_subcommand(1);
  group->footer("Example:\n  tutti bench step --model gpt2-124m --precision bf16");

  CLI::App* kernels =
      group->add_subcommand("kernels", "The operations of a training step, one by one");
  const auto kernel_arguments = add_options(*kernels);
  kernels->footer("Example:\n  tutti bench kernels --model gpt2-124m --batch 4 --seq 1024");
  kernels->callback([kernel_arguments, &action] {
    action = [kernel_arguments] { return run_kernels(*kernel_arguments); };
  });

  CLI::App* step = group->add_subcommand("step", "Whole training steps on random tokens");
  const auto step_arguments = add_options(*step);
  step->footer(
      "Example:\n"
      "  tutti bench step --model gpt2-124m --precision bf16 --batch 4 --seq 64 --steps 5 --json");
  step->callback([step_arguments, &action] {
    action = [step_arguments] { return run_step(*step_arguments); };
  });

  CLI::App* memory = group->add_subcommand("memory", "Device memory of a training step");
  const auto memory_arguments = add_options(*memory, false);
  memory->footer(
      "Example:\n"
      "  tutti bench memory --model llama3.1-8b --set model.layers=24 --batch 1 --seq 8192");
  memory->callback([memory_arguments, &action] {
    action = [memory_arguments] { return run_memory(*memory_arguments); };
  });

  add_bench_all(*group, action);
  add_bench_collectives(*group, action);
  add_bench_pipeline(*group, action);
  add_bench_scaling(*group, action);
  add_bench_endpoint(*group, action);
  add_bench_inference(*group, action);
  add_bench_storage(*group, action);
}

}  // namespace tutti::cli
