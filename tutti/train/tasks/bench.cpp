#include "tutti/train/tasks/bench.h"

#include <algorithm>
#include <map>

#include "tutti/base/clock.h"
#include "tutti/base/machine.h"
#include "tutti/base/quantile.h"
#include "tutti/engine/arena.h"
#include "tutti/engine/gemm_peak.h"
#include "tutti/engine/notes.h"
#include "tutti/engine/recorder.h"
#include "tutti/node/copy_bandwidth.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/model/flops.h"
#include "tutti/spec/program/program.h"
#include "tutti/train/tasks/random_steps.h"

namespace tutti::train {
namespace {

constexpr int64_t kWarmupSteps = 2;
// A device that was idle starts at a fraction of its clock, and takes some 100 ms to raise it.
constexpr double kWarmupSeconds = 0.5;

DType compute_type(const spec::Recipe& recipe) {
  return recipe.precision == spec::Precision::f32 ? DType::f32 : DType::bf16;
}

void warm_up(RandomSteps& workload) {
  const bool on_device = workload.trainer().stream().memory() == engine::ArenaKind::device;
  const double begin = monotonic_seconds();
  for (int64_t i = 0; i < kWarmupSteps; ++i) workload.step();
  while (on_device && monotonic_seconds() - begin < kWarmupSeconds) workload.step();
}

}  // namespace

// An x86 core of our time starts two fused multiply-adds of its widest vectors per cycle.
double nominal_peak_flops(DType dtype, int threads) {
  const std::string isa = engine::cpu_isa();
  if (isa == "plain") return 0;
  const double lanes = isa == "avx2" ? 8 : 16;
  const double pairs = dtype == DType::bf16 && isa == "avx512_bf16" ? 2 : 1;
  const Machine machine = describe_machine();
  const int cores = threads > 0 ? std::min(threads, machine.cores) : machine.cores;
  return cores * machine.clock_hz * 2 * 2 * lanes * pairs;
}

StepBench bench_step(const spec::Recipe& recipe, int64_t steps,
                     const std::function<void(int64_t)>& progress) {
  RandomSteps workload(recipe, {}, true);
  warm_up(workload);
  std::vector<double> seconds, host_seconds;
  for (int64_t i = 0; i < steps; ++i) {
    seconds.push_back(workload.step());
    host_seconds.push_back(workload.host_seconds());
    progress(i + 1);
  }
  StepBench out;
  out.peak_memory_bytes = peak_resident_bytes();  // of the steps: the peak's operands come after
  const double peak = engine::measure_gemm_peak(workload.trainer().stream(), compute_type(recipe));
  out.median_seconds = quantile(seconds, 0.5);
  out.seconds = seconds;
  out.host_seconds = quantile(host_seconds, 0.5);
  out.notes = engine::take_notes();
  out.min_seconds = *std::min_element(seconds.begin(), seconds.end());
  out.max_seconds = *std::max_element(seconds.begin(), seconds.end());
  const auto tokens = static_cast<double>(recipe.batch.global * recipe.batch.sequence);
  out.tokens_per_second = tokens / out.median_seconds;
  out.model_flops_per_step = tokens * spec::model_flops_per_token(recipe);
  out.mfu_formula = spec::model_flops_formula(recipe);
  out.hardware_flops_per_step =
      spec::step_work(spec::make_program(recipe, spec::tutti_profile_on(recipe)),
                      spec::make_schedule(recipe), 0)
          .flops;
  out.gemm_peak_flops = peak;
  out.mfu_of_gemm_peak = out.model_flops_per_step / out.median_seconds / peak;
  out.memory_map_bytes = workload.trainer().memory().map().total_bytes();
  out.recompute = spec::recompute_text(recipe.recompute);
  out.freed_bytes = spec::bytes_freed_by_recompute(recipe);
  return out;
}

Json to_json(const StepBench& b) {
  return Json{{"step_seconds",
               {{"median", b.median_seconds}, {"min", b.min_seconds}, {"max", b.max_seconds}}},
              {"host_seconds", b.host_seconds},
              {"tokens_per_second", b.tokens_per_second},
              {"model_flops_per_step", b.model_flops_per_step},
              {"hardware_flops_per_step", b.hardware_flops_per_step},
              {"gemm_peak_flops", b.gemm_peak_flops},
              {"mfu_of_gemm_peak", b.mfu_of_gemm_peak},
              {"mfu_formula", b.mfu_formula},
              {"peak_memory_bytes", b.peak_memory_bytes},
              {"memory_map_bytes", b.memory_map_bytes},
              {"recompute", b.recompute},
              {"recompute_freed_bytes", b.freed_bytes},
              {"notes", b.notes}};
}

std::vector<KernelBench> bench_kernels(const spec::Recipe& recipe, int64_t steps) {
  RandomSteps workload(recipe);
  engine::Stream& stream = workload.trainer().stream();
  const double gemm_peak = engine::measure_gemm_peak(stream, compute_type(recipe));
  const double copy_peak = node::measure_copy_bandwidth(stream);
  warm_up(workload);
  engine::Recorder recorder;
  stream.set_recorder(&recorder);
  for (int64_t i = 0; i < steps; ++i) workload.step();
  stream.set_recorder(nullptr);

  struct Group {
    std::vector<double> seconds;
    double flops = 0, bytes = 0;
  };
  std::map<std::pair<std::string, std::array<int64_t, engine::kMaxOpDims>>, Group> groups;
  for (const engine::OpRecord& record : recorder.records()) {
    Group& group = groups[{record.op, record.dims}];
    group.seconds.push_back(record.end_seconds - record.begin_seconds);
    group.flops = record.flops;
    group.bytes = record.bytes;
  }
  std::vector<KernelBench> out;
  for (const auto& [key, group] : groups) {
    KernelBench bench;
    bench.name = key.first;
    for (const int64_t dim : key.second) {
      if (dim != 0) bench.shape += (bench.shape.empty() ? "" : "x") + std::to_string(dim);
    }
    bench.median_seconds = quantile(group.seconds, 0.5);
    bench.seconds = group.seconds;
    bench.calls_per_step = static_cast<double>(group.seconds.size()) / static_cast<double>(steps);
    bench.flops = group.flops;
    bench.bytes = group.bytes;
    // Whichever resource would take longer at its ceiling is the one that bounds the kernel.
    bench.compute_bound = group.flops / gemm_peak > group.bytes / copy_peak;
    bench.rate = (bench.compute_bound ? group.flops : group.bytes) / bench.median_seconds;
    bench.ceiling = bench.compute_bound ? gemm_peak : copy_peak;
    out.push_back(bench);
  }
  std::sort(out.begin(), out.end(), [](const KernelBench& a, const KernelBench& b) {
    return a.median_seconds * a.calls_per_step > b.median_seconds * b.calls_per_step;
  });
  return out;
}

}  // namespace tutti::train
