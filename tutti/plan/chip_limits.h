// What chips reach of their peaks, measured apart from any training software, and how shares of
// peaks that were fitted on one chip are carried to another.
//
//   products   1 / ratio is the time of large products over that at the peak. 1 / best of it is the
//              chip's: the best large product that anybody measured (power, caches). The rest is
//              what the software adds, and adds on other chips too:
//                1 / ratio' = 1 / best' + max(0, 1 / ratio - 1 / best)
//   attention  products, and the exponential of each score, which other units of a chip compute.
//              Of heads of 128 numbers a score takes 512 FLOPs forward and 1,280 backward, so that
//              both take, over the products at the peak, 1 / best + s and 1 / best + 0.4 s with
//                s = bf16 peak / (512 exponentials per second)
//              about 0.25 on an A100, 0.5 on an H100 (Shah et al. 2024, FlashAttention-3, section
//              3.2), 0.9 on a B200, 0.4 on a B300. Kernels overlap a part of it; what share of the
//              sum they reach is the software's, and stays.
#pragma once

#include <vector>

#include "tutti/catalog/chips.h"

namespace tutti::plan {

struct ChipLimits {
  double product = 0;      // best, of the 16-bit peak; 0: unknown
  double fp8_product = 0;  // of the 8-bit peak; that of 16 bits where only those were measured
  double softmax = 0;      // s; 0: unknown
};

ChipLimits limits_of(const catalog::Chip& chip);
// Of each its mean over the chips that have it, one for each row that was fitted on.
ChipLimits mean_limits(const std::vector<const catalog::Chip*>& chips);

// `ratio` of products on a chip that reaches `best`, on one that reaches `other_best`; all above 0.
double carried_product_ratio(double ratio, double best, double other_best);

// By what the attention's share of the peak is to be multiplied from one chip to another. Where s
// is not known of both it is left out. `product` of both is above 0.
double attention_gain(const ChipLimits& from, const ChipLimits& to, bool backward);

}  // namespace tutti::plan
