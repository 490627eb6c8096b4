// What passes of inference take on a machine. A pass moves w bytes of weights and cache and
// computes f FLOPs (spec/program/inference_work.h):
//
//   seconds    w / B + f / F + p
//
// with B the bytes per second that are reached, F the FLOP/s of products, one for passes of few
// rows and one for those of many, and p what a pass costs whatever it computes. Sums and not the
// greater of the two: reading and computing overlap only in part. On n chips that split every
// matrix (tensor parallelism) w and f are those of one of them, and each layer ends two sums over
// all, of the rows' activations (plan/collectives.h).
//
// The three rates are fitted to what `tutti bench inference` measured, or, of systems on which
// nothing has been measured, assumed to be shares of the data sheet's: see assumed_rates().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/catalog/systems.h"
#include "tutti/spec/program/inference_work.h"

namespace tutti::plan {

inline constexpr int64_t kFewServedRows = 24;  // as engine::kFewRows: more are a product of many

struct ServingRates {
  double bytes_per_second = 0;
  double few_row_flops = 0;
  double many_row_flops = 0;
  double pass_seconds = 0;  // p
};

// Of a chip of the catalog on which nothing has been measured: 0.7 of its memory's bytes per
// second, 0.5 of its dense 16-bit peak, and 10 launches of 4 microseconds for each layer. Assumed,
// not validated. Throws unsupported for a chip whose memory or peak is not published.
ServingRates assumed_rates(const catalog::Chip& chip, const spec::ModelConfig& model);

// A measured pass, or several in a row that were timed together.
struct MeasuredPasses {
  std::vector<spec::InferenceWork> passes;
  double seconds = 0;
};
// Few-row passes of one stream and of several decide B and the first F, with the least squares of
// relative errors; then prompts decide the other F. p is 0: it is in what was measured. Throws
// usage where nothing was measured of one of the two.
ServingRates fitted_rates(std::span<const MeasuredPasses> few,
                          std::span<const MeasuredPasses> many);

// One chip or several that share every matrix.
class ServingCost {
 public:
  ServingCost(const ServingRates& rates, const spec::ModelConfig& model,
              const catalog::System* system = nullptr, int64_t chips = 1);

  double pass_seconds(const spec::InferenceWork& work) const;

 private:
  ServingRates rates_;
  double hidden_bytes_ = 0;  // of a row of activations
  double layers_ = 0;
  const catalog::System* system_;
  int64_t chips_;
};

// Memory of all chips together, of which a tenth is left to buffers and the runtime; null where it
// is not published.
struct ServingMemory {
  double weight_bytes = 0;
  double cache_bytes = 0;  // that are left for keys and values; negative: the weights do not fit
  int64_t cache_tokens = 0;
};
ServingMemory serving_memory(const spec::InferenceProgram& program, double chip_memory_bytes,
                             int64_t chips);

}  // namespace tutti::plan
