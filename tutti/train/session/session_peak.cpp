// The peak that a session's MFU counts against: the best that the run has seen on its machines.
#include <algorithm>
#include <utility>

#include "tutti/base/machine.h"
#include "tutti/engine/backend.h"
#include "tutti/engine/gemm_peak.h"
#include "tutti/node/cpu_wait.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/train/session/peak_record.h"
#include "tutti/train/session/session_internal.h"
#include "tutti/train/tasks/bench.h"

namespace tutti::train {
namespace {

constexpr int kPeakAttempts = 2;     // to measure the peak of a busy machine
constexpr double kBusyShare = 0.05;  // of the processor time asked for: lost to others

}  // namespace

// Of all ranks together.
void Session::measure_peaks() {
  const DType compute = spec::compute_type(recipe_.precision);
  const bool on_device = trainer_.stream().memory() == engine::ArenaKind::device;
  struct Peaks {
    double nominal = 0;
    double measured = 0;
    double lost = 0;  // of the processor time that measuring asked for
  };
  Peaks mine;
  if (!on_device) mine.nominal = nominal_peak_flops(compute, trainer_.recipe().threads);
  if (options_.measure_peak) {
    // Smaller where cores are few, or several ranks may share them: that fills them too, in less
    // than a second.
    constexpr int64_t kFewThreads = 4;
    const bool few = consensus_.size() > 1 || trainer_.stream().threads() <= kFewThreads;
    const int64_t size = few ? 1024 : 2048;
    // Where others compute, too, the best of several times is nearer to what the machine can do.
    for (int attempt = 0; attempt < kPeakAttempts; ++attempt) {
      const node::CpuUse before = node::read_cpu_use();
      mine.measured =
          std::max(mine.measured, engine::measure_gemm_peak(trainer_.stream(), compute, {size}, 5));
      mine.lost = on_device ? 0 : node::lost_share(before, node::read_cpu_use());
      if (mine.lost <= kBusyShare) break;
    }
  }
  Peaks all;
  for (const Peaks& rank : consensus_.exchange(mine)) {
    all.nominal += rank.nominal;
    all.measured += rank.measured;
    all.lost = std::max(all.lost, rank.lost);
  }
  summary_.nominal_peak_flops = all.nominal;
  keep_peak(all.measured, all.lost);
}

// Of what the run's sessions have measured on these machines the best counts.
void Session::keep_peak(double measured, double lost) {
  const bool on_device = trainer_.stream().memory() == engine::ArenaKind::device;
  const Machine machine = describe_machine();
  const auto devices = engine::find_backend(recipe_.device).devices();
  const std::string what = devices.empty() ? machine.cpu : devices.front().name;
  PeakMachine mine = {fmt::format("{} ({})", machine.host, what),
                      on_device ? 1 : int64_t{trainer_.stream().threads()}};
  std::vector<PeakMachine> machines;
  const std::vector<int64_t> threads = consensus_.exchange(mine.threads);
  const std::vector<std::string> names = consensus_.exchange_text(mine.name);
  machines.reserve(names.size());
  for (size_t rank = 0; rank < names.size(); ++rank) {
    machines.push_back({names[rank], threads[rank]});
  }
  peak_key_ = peak_key(spec::compute_type(recipe_.precision), machines);
  double best = measured;
  if (measured > 0 && consensus_.leads()) {
    best = best_peak(files_, options_.run_folder, peak_key_, measured);
  }
  summary_.gemm_peak_flops = consensus_.of_leader(best);
  peak_ = PeakMeter(summary_.gemm_peak_flops, on_device);
  if (lost <= kBusyShare) return;
  telemetry_.warn(
      fmt::format("the machine is busy: while the peak was measured, {:.0f}% of the processor time "
                  "that was asked for went to others (programs, ranks, a quota); MFU counts "
                  "against the best that the run has seen, {:.3g} GFLOP/s",
                  100 * lost, summary_.gemm_peak_flops * 1e-9));
}

double Session::mfu_of_step(double flops, double seconds) {
  const double mfu = peak_.add_step(flops, seconds);
  note_peak();
  return mfu;
}

// The steps may have raised the peak.
void Session::note_peak() {
  const double before = std::exchange(summary_.gemm_peak_flops, peak_.peak_flops_per_second());
  if (summary_.gemm_peak_flops == before || std::exchange(peak_warned_, true)) return;
  telemetry_.warn(
      fmt::format("steps up to {} reached {:.3g} GFLOP/s, more than the {:.3g} GFLOP/s of matrix "
                  "products that were measured before, when the machine was busy: MFU counts "
                  "against the fastest steps from here on",
                  state_.step, summary_.gemm_peak_flops * 1e-9, before * 1e-9));
}

}  // namespace tutti::train
