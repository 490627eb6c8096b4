// Repeated measurements of workloads, from MLPerf logs or from folders of runs: how fast each was,
// where its time went, and whether it counts at all.
//
// The time of a repeat, from its start to its end, is split without rest:
//
//   steady      samples / steady rate (timeline.h)
//   start       what the slow stretches at its beginning took beyond that
//   tail        what all others took beyond it: stragglers; may be slightly negative by jitter
//   evaluation  as logged
//   stalls      between stretches: checkpoints, and unlogged time
//
// A stretch is a step of a run, and what lies between two evaluations of a log.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/catalog/benchmarks.h"
#include "tutti/mlperf/timeline.h"

namespace tutti::mlperf {

struct TimeParts {
  double steady = 0;
  double start = 0;
  double tail = 0;
  double evaluation = 0;
  double stalls = 0;

  double sum() const { return steady + start + tail + evaluation + stalls; }
};

// All five parts of stretches in order; their sum is total_seconds. `steady_seconds_per_sample` is
// that of logged step times; 0: the median of the stretches (timeline.h).
TimeParts split_time(const std::vector<Stretch>& stretches, double total_seconds,
                     double steady_seconds_per_sample = 0);

struct Repeat {
  std::string name;        // path of the log or run folder
  std::string invalid;     // why it does not count; empty when it does
  double samples = 0;      // trained; a run counts tokens
  double steady_rate = 0;  // samples per second
  TimeParts seconds;
  double data_wait_seconds = 0;  // within steps; 0 where it is not recorded

  double seconds_per_sample() const { return seconds.sum() / samples; }
};

// One benchmark on one system at one size with one set of hyperparameters.
struct Workload {
  std::string benchmark;  // as in the catalog's titles, or the size of the model
  // Of MLPerf results: submitter, system; of runs: host, processor, cores, GPUs. "": not recorded.
  std::string system;
  std::optional<int64_t> accelerators;
  std::string unit;                             // of samples: "samples", "tokens"
  std::map<std::string, std::string> settings;  // hyperparameters
  std::vector<Repeat> repeats;

  std::string name() const;  // "Llama 2 70B LoRA x 512"
};

// Everything at or below `path`: folders of runs (events.jsonl, recipe.yaml) where there are any,
// else results (result_N.txt). Invalid are runs with NaN or infinities in losses or gradients, with
// skipped steps, that were interrupted, did not end or, of MLPerf, missed the target. Throws
// not_found when there is neither.
std::vector<Workload> read_workloads(FileSystem& files, const std::string& path,
                                     const std::vector<catalog::Benchmark>& benchmarks,
                                     const std::function<void(int64_t, int64_t)>& on_progress = {});

}  // namespace tutti::mlperf
