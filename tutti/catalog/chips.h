// Accelerators: what a data sheet promises. Peaks are dense; a sparse peak (2:4 structured
// sparsity, twice the dense one on paper) is kept apart and never used as a rate.
#pragma once

#include <string>

#include "tutti/catalog/entry.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::catalog {

struct Chip {
  std::string name;
  std::string vendor;
  std::string generation;  // of the architecture: "ampere", "hopper", "blackwell", ...
  // Dense peaks in FLOP/s; 0: not supported.
  double f32_flops = 0;
  double bf16_flops = 0;  // 0: not published, and no step can be priced
  double fp8_flops = 0;
  double fp4_flops = 0;
  double sparse_fp4_flops = 0;  // 0: not published
  double memory_bytes = 0;      // of the accelerator, as it reports it to programs
  double memory_bytes_per_second = 0;
  double link_bytes_per_second = 0;  // scale-up link, one direction
  double board_watts = 0;            // 0: not published
  // Of the dense peaks, measured: products of 16 bits, best by anybody, and of 8 bits; 0: not
  // known.
  double best_product_ratio = 0;
  double best_fp8_product_ratio = 0;
  double exponentials_per_second = 0;  // of f32 numbers, peak; 0: not known
  // Of the rate at which the chip sustains products, what is left below its usual power: at one
  // energy per FLOP the power less what it draws idle, a fifth of the usual one.
  double power_share = 1;
  Entry entry;  // where each number comes from
};

// The peak that products of a precision run at; 0: the chip has none. Of f32 the 16-bit peak where
// no own is known.
double product_flops(const Chip& chip, spec::Precision precision);
// Throws unsupported naming the precisions that the chip has, or that its 16-bit rate is not
// published: attention and what products leave wide run in 16 bits under every precision.
void check_precision(const Chip& chip, spec::Precision precision);

// From an entry of kind chip: dense_f32_tflops, dense_bf16_tflops, dense_fp8_tflops,
// dense_fp4_tflops, sparse_fp4_tflops, memory_gigabytes (10^9, of the data sheet, whose gigabytes
// are often 2^30), reported_memory_gigabytes (10^9, what nvidia-smi and its like print; counts
// where it is known), memory_terabytes_per_second, link_gigabytes_per_second,
// host_link_gigabytes_per_second (of its own link to its host, one direction; kept in `entry`),
// board_power_watts, usual_power_watts (of boards limited to less than the chip's own),
// best_product_ratio, best_fp8_product_ratio, exponential_tflops (of f32 exponentials, peak).
// Throws usage for a quantity it does not know.
Chip chip_from(const Entry& entry);

}  // namespace tutti::catalog
