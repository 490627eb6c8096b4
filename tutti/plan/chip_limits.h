// The shares of their peaks that chips reach, measured independently of any training software, and
// how shares that were fitted on one chip are transferred to another.
//
//   products   1 / ratio is the time of large products over that at the peak. 1 / best of it is due
//              to the chip: the best large product measured on it (power, caches). The software
//              adds the rest, and adds it on other chips too:
//                1 / ratio' = 1 / best' + max(0, 1 / ratio - 1 / best)
//   attention  products, and the exponential of each score, which other units of a chip compute.
//              In heads of 128 columns a score takes 512 FLOPs forward and 1,280 backward, so that
//              both take, relative to the products at the peak, 1 / best + s and 1 / best + 0.4 s
//              with
//                s = bf16 peak / (512 exponentials per second)
//              about 0.25 on an A100, 0.5 on an H100 (Shah et al. 2024, FlashAttention-3, section
//              3.2), 0.9 on a B200, 0.4 on a B300. Kernels overlap them partly; the share of the
//              sum that they reach is a property of the software, and is transferred unchanged.
#pragma once

#include <vector>

#include "tutti/catalog/chips.h"

namespace tutti::plan {

struct ChipLimits {
  double product = 0;      // best, of the 16-bit peak; 0: unknown
  double fp8_product = 0;  // of the 8-bit peak; of the 16-bit peak if only that was measured
  double softmax = 0;      // s; 0: unknown
};

ChipLimits limits_of(const catalog::Chip& chip);
// The mean of each over the chips that have it, one per row that was fitted on.
ChipLimits mean_limits(const std::vector<const catalog::Chip*>& chips);

// `ratio` of products on a chip that reaches `best`, transferred to one that reaches `other_best`;
// all above 0.
double carried_product_ratio(double ratio, double best, double other_best);

// The factor of attention's share of the peak from one chip to another. s is ignored unless it is
// known for both. `product` of both is above 0.
double attention_gain(const ChipLimits& from, const ChipLimits& to, bool backward);

}  // namespace tutti::plan
