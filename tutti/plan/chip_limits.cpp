#include "tutti/plan/chip_limits.h"

#include <algorithm>

namespace tutti::plan {
namespace {

constexpr double kForwardFlops = 512;  // per score, heads of 128
constexpr double kBackwardShare = 0.4;

}  // namespace

ChipLimits limits_of(const catalog::Chip& chip) {
  ChipLimits out;
  out.product = chip.best_product_ratio;
  if (chip.fp8_flops > 0) {
    out.fp8_product =
        chip.best_fp8_product_ratio > 0 ? chip.best_fp8_product_ratio : chip.best_product_ratio;
  }
  if (chip.exponentials_per_second > 0) {
    out.softmax = chip.bf16_flops / (kForwardFlops * chip.exponentials_per_second);
  }
  return out;
}

ChipLimits mean_limits(const std::vector<const catalog::Chip*>& chips) {
  ChipLimits out;
  for (double ChipLimits::*limit :
       {&ChipLimits::product, &ChipLimits::fp8_product, &ChipLimits::softmax}) {
    double sum = 0;
    double count = 0;
    for (const catalog::Chip* chip : chips) {
      const double one = limits_of(*chip).*limit;
      if (one <= 0) continue;
      sum += one;
      ++count;
    }
    if (count > 0) out.*limit = sum / count;
  }
  return out;
}

double carried_product_ratio(double ratio, double best, double other_best) {
  return 1 / (1 / other_best + std::max(0.0, 1 / ratio - 1 / best));
}

double attention_gain(const ChipLimits& from, const ChipLimits& to, bool backward) {
  const bool known = from.softmax > 0 && to.softmax > 0;
  const double share = known ? (backward ? kBackwardShare : 1) : 0;
  return (1 / from.product + share * from.softmax) / (1 / to.product + share * to.softmax);
}

}  // namespace tutti::plan
