// The peak that a session's MFU counts against. Steps consist of more than matrix products: when
// they are faster than these were, others computed while the products were measured, and the steps
// raise the peak.
#pragma once

#include <cstdint>

namespace tutti::train {

class PeakMeter {
 public:
  PeakMeter() = default;  // of no peak: every MFU is 0
  // `fixed`: steps do not raise it, and may exceed it. So on a device, whose steps may compute in
  // narrower types than the products.
  PeakMeter(double peak_flops_per_second, bool fixed)
      : peak_(peak_flops_per_second), fixed_(fixed) {}

  double peak_flops_per_second() const { return peak_; }

  // The MFU of a step: at most 1 unless the peak is fixed.
  double add_step(double flops, double seconds);
  // A rate that steps have reached over a while. True where it raised the peak.
  bool reach(double flops_per_second);
  bool was_raised() const { return raised_; }

 private:
  double peak_ = 0;
  bool fixed_ = false;
  bool raised_ = false;
  double recent_flops_ = 0;
  double recent_seconds_ = 0;
  int64_t recent_steps_ = 0;
};

}  // namespace tutti::train
