// Constants that a data sheet does not contain: the share of each peak that a chip reaches with one
// generation of software. A set is fitted on published or own measurements (fit.h), or assumed;
// predictions state which. Sets are files of kind `constants` in catalog/constants/, named
// CHIP-GENERATION/SOFTWARE, where software is FAMILY-RELEASE ("bridge-25.11"). Software `any` is
// fitted on the rows of all families with equal weight, generation `any` on those of all chips.
//
// Software without a set of its own uses the nearest (constants_for): another release of the family
// on the same generation, the family on another generation, `any` of the generation, any/any. The
// error of each of these fallbacks is measured by holding such rows out (left_out.h).
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/catalog/chips.h"
#include "tutti/plan/chip_limits.h"

namespace tutti::plan {

enum class Constant : size_t {
  gemm_ratio,        // share of the 16-bit (or 32-bit) peak of a large product
  gemm_fp8_ratio,    // of the 8-bit peak (fp8 and mxfp8)
  gemm_fp4_ratio,    // of the 4-bit peak
  gemm_side_count,   // rows and columns: time grows by count (1/m + 1/n)
  gemm_depth_count,  // inner dimension: time grows by count / k
  attention_ratio,   // of the 16-bit peak, fused attention, forward
  attention_backward_ratio,
  attention_fill_count,     // rows of queries times heads: time grows by count / (rows heads)
  batched_ratio,            // of the 16-bit peak, small batched products
  memory_ratio,             // of the memory bandwidth
  launch_microseconds,      // per operation, on the device's time line
  host_microseconds,        // host time to launch an operation: the device may wait
  link_ratio,               // of the scale-up link's bandwidth, collectives
  network_ratio,            // of the network's bandwidth, collectives
  rail_ratio,               // share of a node's uplinks that further members of a group can use
  node_rail_ratio,          // the same if the group has all ranks of the node
  collective_microseconds,  // start-up of a collective, on the device's time line
  tp_overlap_ratio,         // of tensor-parallel communication, hidden behind products
  dp_overlap_ratio,  // share of the backward (forward) pass that can hide gradient (weight) traffic
  pp_overlap_ratio,  // of a pipeline transfer, hidden
  cp_overlap_ratio,  // of context-parallel communication, hidden behind attention
  ep_overlap_ratio,  // of expert-parallel communication, hidden behind products
  expert_imbalance_ratio,  // load of the fullest rank over the mean
  straggler_ratio,  // slowdown of a step at 1,024 ranks against 1, growing with log2; assumed: the
                    // loss in MegaScale, figure 9, from 2,240 to 11,200 GPUs
  step_overhead_seconds,     // host work of a step that is never hidden
  run_start_seconds,         // start of a whole run on the clock, until steps reach their pace
  evaluation_start_seconds,  // from training to evaluation and back
  process_gigabytes,         // memory of a process besides its allocations
  memory_reserve_ratio,      // allocator's reserve relative to the allocations
};
inline constexpr size_t kConstants = 29;

struct ConstantInfo {
  const char* name = "";
  double assumed = 0;
  double least = 0;
  double most = 0;
};
const std::array<ConstantInfo, kConstants>& constant_table();

inline constexpr double kLeastOperationRatio = 1e-4;
inline constexpr double kMostOperationRatio = 100;
std::string operation_ratio_name(const std::string& operation);  // name of the quantity

enum class Origin { assumed, fitted, measured };
const char* origin_name(Origin origin);

enum class Nearness { exact, release, family, generation, pooled, assumed };
const char* nearness_text(Nearness nearness);

inline constexpr const char* kAny = "any";
inline constexpr double kAssumedInterval = 0.4;

// Standard deviations of the parts of an error (anchor.h): common to all rows of a family, shared
// by similar rows, and of a single row.
struct ErrorSpread {
  double family = 0;
  double alike = 0;
  double own = 0;
};

struct Constants {
  std::string name = "assumed";
  std::string chip_generation;
  std::string software;
  std::array<double, kConstants> value{};
  std::array<Origin, kConstants> origin{};
  // Measured shares of the memory bandwidth of single operations (calibrate.h); quantities
  // operation_NAME_ratio. Above 1: from a cache.
  std::vector<std::pair<std::string, double>> operation_ratios;
  double error = 0;  // mean absolute error of step time on held-out rows; 0: unknown
  // Of the logarithm of measured over predicted time: 80% are within plus or minus this value, for
  // rows that the set is made for (interval), and for another release or chip (far_interval); 0:
  // unknown. If rest_ratio is not 0 they hold for steps of products alone, and grow with the rest
  // by rest_ratio (interval.h).
  double interval = 0;
  double far_interval = 0;
  double anchored_interval = 0;  // with a measured row of the software; of any/any
  double rest_ratio = 0;
  ChipLimits limits;                    // of the chips that it was fitted on, mean over the rows
  ErrorSpread spread;                   // of any/any
  Nearness nearness = Nearness::exact;  // to the requested chip and software (constants_for)

  double operator[](Constant constant) const { return value[static_cast<size_t>(constant)]; }
  // Of `operation`; memory_ratio if it has none of its own.
  double bandwidth_ratio(std::string_view operation) const {
    for (const auto& [own, ratio] : operation_ratios) {
      if (own == operation) return ratio;
    }
    return (*this)[Constant::memory_ratio];
  }
  double& operator[](Constant constant) { return value[static_cast<size_t>(constant)]; }
};

Constants assumed_constants();
// At most the measured ratios of the chip (Chip::best_product_ratio and best_fp8_product_ratio). If
// they are below the assumed ratio, the ratio of attention is reduced likewise.
Constants assumed_constants(const catalog::Chip& chip);

// Limits large products to the best measurement on the chip, plus what infinitely large shapes gain
// over the measured ones (5%).
void cap_products(const catalog::Chip& chip, Constants& constants);

// From an entry of kind constants: quantities by the names above; absent ones are assumed. Throws
// usage for unknown names and values outside the table's range.
Constants constants_from(const catalog::Entry& entry);
// The file that constants_from reads.
std::string to_yaml(const Constants& constants, const std::string& source, const std::string& date);

// All sets of `folders`; later ones replace earlier ones of the same name.
std::vector<Constants> load_constants(FileSystem& files, const std::vector<std::string>& folders);

// "bridge" of "bridge-25.11".
std::string software_family(const std::string& software);

// The nearest set, as above; among several releases the one with the nearest number, among
// generations the one with the least error. A generation without an `any` set yields the set with
// the least error, because a measured machine has only its own software. nullptr: none.
const Constants* find_constants(const std::vector<Constants>& sets,
                                const std::string& chip_generation, const std::string& software,
                                Nearness* nearness = nullptr);
// That set with nearness and the matching interval, transferred to the chip if it comes from others
// (chip_limits.h), and limited to the chip's measured ratios; or the chip's assumed constants.
Constants constants_for(const std::vector<Constants>& sets, const catalog::Chip& chip,
                        const std::string& software);

}  // namespace tutti::plan
