#include "tutti/train/session/peak_meter.h"

#include <algorithm>
#include <utility>

namespace tutti::train {
namespace {

// Steps that together show a rate: the time of a single one is that between two results, of which
// the first may have come late.
constexpr int64_t kRateSteps = 10;
constexpr double kRateSeconds = 2;

}  // namespace

double PeakMeter::add_step(double flops, double seconds) {
  if (peak_ <= 0) return 0;
  if (fixed_) return flops / seconds / peak_;
  recent_flops_ += flops;
  recent_seconds_ += seconds;
  if (++recent_steps_ >= kRateSteps && recent_seconds_ >= kRateSeconds) {
    recent_steps_ = 0;
    reach(std::exchange(recent_flops_, 0) / std::exchange(recent_seconds_, 0));
  }
  return std::min(1.0, flops / seconds / peak_);
}

bool PeakMeter::reach(double flops_per_second) {
  if (fixed_ || peak_ <= 0 || flops_per_second <= peak_) return false;
  peak_ = flops_per_second;
  raised_ = true;
  return true;
}

}  // namespace tutti::train
