// The time of every operation of a Program on one system: shape-aware roofline for products,
// bandwidth for the others, collectives by collectives.h; summed per kind of layer and pass.
//
//   product m x n x k   max(flops / (peak ratio), bytes / bandwidth), where the ratio falls with
//                       small shapes: ratio / ((1 + side (1/m + 1/n)) (1 + depth / k))
//   products of experts flops / (peak ratio / (1 + depth / k)) + bytes / bandwidth: loading the
//   next
//                       expert's weights is not hidden (grouped GEMM of 128 to 1,232 rows on B200:
//                       MooreThreads/SimuMax, configs/system/b200_bf16_ceperm.json, within 15%)
//   attention (fused)   executed flops / (peak attention_ratio) (1 + fill / (rows heads)): few rows
//                       of queries and heads do not fill the chip
//   collective          collectives.h, and its start-up time
//   everything else     bytes / (bandwidth memory_ratio) + launch
//
// Peaks are those of the data sheet times Chip::power_share.
#pragma once

#include <vector>

#include "tutti/plan/collectives.h"
#include "tutti/spec/recipe/describe.h"

namespace tutti::plan {

// Seconds of one pass, by resource. Communication is what it takes in isolation; price_program
// computes the `exposed` parts from the overlap constants.
struct Seconds {
  double products = 0;  // GEMM and attention
  double memory = 0;    // bandwidth-bound operations and launches
  double tp = 0;        // exposed communication, by axis
  double cp = 0;
  double ep = 0;
  double host = 0;  // the device waits for the host's launches
  double total() const { return products + memory + tp + cp + ep + host; }
  Seconds& operator+=(const Seconds& other);
};
Seconds operator*(double factor, const Seconds& seconds);

struct StageSeconds {  // of one virtual stage and one micro-batch
  Seconds forward;
  Seconds recompute;
  Seconds backward_input;
  Seconds backward_weight;
  double transfer = 0;  // of its output to the next stage
};

struct RankSeconds {  // of one pipeline rank, once per step (or per micro-batch, as stated)
  double gather = 0;  // all weights of the rank, full buffers
  double reduce = 0;  // all gradients of the rank
  double update = 0;  // optimizer
  double tied = 0;    // the two copies of a tied embedding
  std::vector<double> chunk_gather;  // per chunk of the rank (ZeRO 3: every micro-batch)
  std::vector<double> chunk_reduce;
};

struct Pricing {
  std::vector<StageSeconds> stages;  // per virtual stage
  std::vector<RankSeconds> ranks;    // per pipeline rank
};

double operation_seconds(const spec::Op& op, const catalog::System& system,
                         const Constants& constants, spec::Precision precision);

// One layer of each of `kinds`; transfer is 0.
std::vector<StageSeconds> price_kinds(const std::vector<spec::LayerOps>& kinds,
                                      const spec::Recipe& recipe, const catalog::System& system,
                                      const Constants& constants);

// Collectives of `recipe`'s mesh, one after another.
double price_collectives(const std::vector<spec::Op>& ops, const spec::Recipe& recipe,
                         const catalog::System& system, const Constants& constants);

Pricing price_program(const spec::Program& program, const spec::Recipe& recipe,
                      const catalog::System& system, const Constants& constants);

}  // namespace tutti::plan
