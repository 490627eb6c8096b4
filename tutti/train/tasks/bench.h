// Measurements of this machine: the GEMM peak that MFU divides by, a model's training step, single
// kernels. Every figure is compared with its peak, measured in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/json.h"
#include "tutti/engine/stream.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::train {

// Cores x nominal clock x FLOPs per cycle of the widest fused multiply-add; 0 when the clock is
// not known. bf16 counts twice where the CPU multiplies bf16 pairs.
double nominal_peak_flops(DType dtype, int threads);

struct StepBench {
  double median_seconds = 0, min_seconds = 0, max_seconds = 0;
  std::vector<double> seconds;  // of each step
  double tokens_per_second = 0;
  double model_flops_per_step = 0;
  double hardware_flops_per_step = 0;  // recomputation and padding included
  double gemm_peak_flops = 0;
  double mfu_of_gemm_peak = 0;
  int64_t peak_memory_bytes = 0;
  int64_t memory_map_bytes = 0;
  std::string recompute;
  int64_t freed_bytes = 0;  // by recomputation, of the memory map
  std::string mfu_formula;
  double host_seconds = 0;         // median of what the host takes to enqueue a step
  std::vector<std::string> notes;  // engine/notes.h
};

// Full optimizer steps of the recipe on random tokens; first two of warm-up, and on a device as
// many as fill half a second, until its clock is up.
StepBench bench_step(const spec::Recipe& recipe, int64_t steps,
                     const std::function<void(int64_t)>& progress);
Json to_json(const StepBench& bench);

// One kernel at one shape: its rate and the ceiling that bounds it.
struct KernelBench {
  std::string name;
  std::string shape;
  double median_seconds = 0;    // of one call
  std::vector<double> seconds;  // of each
  double calls_per_step = 0;
  double flops = 0, bytes = 0;  // of one call
  double rate = 0;              // FLOP/s or bytes/s
  double ceiling = 0;           // measured GEMM peak or copy bandwidth, same unit
  bool compute_bound = false;
};

// The operations of one training step of the recipe, timed in place and grouped by (operation,
// shape), each against the GEMM peak or the copy bandwidth; those that take most time first.
std::vector<KernelBench> bench_kernels(const spec::Recipe& recipe, int64_t steps);

}  // namespace tutti::train
