#include "tutti/plan/cost.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "tutti/base/check.h"
#include "tutti/base/real.h"
#include "tutti/spec/program/narrow.h"

namespace tutti::plan {
namespace {

using spec::Axis;
using spec::LayerOps;
using spec::Op;

// Ranks of an axis and their stride: tp varies fastest, then cp, dp, pp.
Group group_of(const spec::Mesh& mesh, Axis axis, int64_t ranks) {
  switch (axis) {
    case Axis::tp: return {ranks, 1};
    case Axis::cp: return {ranks, mesh.tp};
    case Axis::ep: return {ranks, mesh.tp};  // taken from dp * cp, nearest first
    case Axis::dp:  // gradients and weights use dp * cp; those of experts dp * cp / ep
      if (ranks == mesh.world()) return {ranks, 1};
      return {ranks, ranks == spec::replicas(mesh) ? mesh.tp : mesh.tp * mesh.ep};
    case Axis::pp:  // the first and last stage: near if the whole pipeline is
      return {ranks, std::max<int64_t>(1, mesh.tp * mesh.cp * mesh.dp * mesh.pp / 2)};
  }
  return {ranks, 1};
}

Constant ratio_of(spec::Precision precision) {
  switch (precision) {
    case spec::Precision::fp8:
    case spec::Precision::mxfp8: return Constant::gemm_fp8_ratio;
    case spec::Precision::fp4: return Constant::gemm_fp4_ratio;
    case spec::Precision::f32:
    case spec::Precision::bf16: break;
  }
  return Constant::gemm_ratio;
}

struct Prices {
  const catalog::System& system;
  const Constants& constants;
  const spec::Mesh& mesh;
  Network network;
  spec::Precision precision;
};

Prices prices_of(const spec::Recipe& recipe, const catalog::System& system,
                 const Constants& constants) {
  return {system,
          constants,
          recipe.parallel,
          {&system, constants[Constant::link_ratio], constants[Constant::network_ratio],
           constants[Constant::rail_ratio], constants[Constant::node_rail_ratio]},
          recipe.precision};
}

double collective_seconds(const Op& op, const Prices& at) {
  const int64_t ranks = op.dims[1] > 0 ? op.dims[1] : at.mesh.size(op.axis);
  const Group group = group_of(at.mesh, op.axis, ranks);
  if (ranks <= 1) return 0;
  const double start = at.constants[Constant::collective_microseconds] * 1e-6;
  const std::string_view name = op.name;
  if (name == "all_reduce") return start + all_reduce_seconds(at.network, group, op.bytes);
  if (name == "all_to_all") {
    const double fullest = op.axis == Axis::ep ? at.constants[Constant::expert_imbalance_ratio] : 1;
    return start + all_to_all_seconds(at.network, group, op.bytes, real(op.dims[2])) * fullest;
  }
  // In a ring a rank receives while it sends.
  if (name == "receive" && op.axis == Axis::cp) return 0;
  if (name == "send" || name == "receive") {
    // Neighbours have the stride of the axis, and all of them wait for the two that are farthest
    // apart.
    const int64_t span = op.axis == Axis::pp ? at.mesh.world() - at.mesh.world() / at.mesh.pp
                                             : group.stride * (ranks - 1);
    return start + send_seconds(at.network, span, op.bytes);
  }
  return start + gather_seconds(at.network, group, op.bytes);
}

struct PassTimes {
  Seconds seconds;
  double collective[5] = {};  // in isolation, by axis
};

PassTimes price_pass(const std::vector<Op>& ops, const Prices& at) {
  PassTimes out;
  double attention = 0;
  for (const Op& op : ops) {
    if (op.collective) {
      out.collective[static_cast<size_t>(op.axis)] += collective_seconds(op, at);
      continue;
    }
    const double seconds = operation_seconds(op, at.system, at.constants, at.precision);
    const std::string_view name = op.name;
    if (op.flops > 0 && name != "squared_norm") {
      out.seconds.products += seconds;
      if (name.substr(0, 9) == "attention") attention += seconds;
    } else {
      out.seconds.memory += seconds;
    }
  }
  const auto exposed = [&](Axis axis, Constant overlap, double window) {
    const double alone = out.collective[static_cast<size_t>(axis)];
    return alone - std::min(alone, window) * at.constants[overlap];
  };
  // Dispatch of tokens overlaps with any product, also one of another micro-batch.
  out.seconds.tp = exposed(Axis::tp, Constant::tp_overlap_ratio, out.seconds.products);
  out.seconds.cp = exposed(Axis::cp, Constant::cp_overlap_ratio, attention);
  out.seconds.ep = exposed(Axis::ep, Constant::ep_overlap_ratio, out.seconds.products);
  // The host launches operations one after another, ahead of the device if it can.
  const double launching =
      real(static_cast<int64_t>(ops.size())) * at.constants[Constant::host_microseconds] * 1e-6;
  out.seconds.host = std::max(0.0, launching - out.seconds.total());
  return out;
}

double sum_collectives(const std::vector<Op>& ops, const Prices& at) {
  double seconds = 0;
  for (const Op& op : ops) seconds += collective_seconds(op, at);
  return seconds;
}

}  // namespace

Seconds& Seconds::operator+=(const Seconds& other) {
  products += other.products;
  memory += other.memory;
  tp += other.tp;
  cp += other.cp;
  ep += other.ep;
  host += other.host;
  return *this;
}

Seconds operator*(double factor, const Seconds& seconds) {
  return {factor * seconds.products, factor * seconds.memory, factor * seconds.tp,
          factor * seconds.cp,       factor * seconds.ep,     factor * seconds.host};
}

double operation_seconds(const Op& op, const catalog::System& system, const Constants& constants,
                         spec::Precision precision) {
  const catalog::Chip& chip = system.chip;
  const double bandwidth = chip.memory_bytes_per_second * constants[Constant::memory_ratio];
  const double launch = constants[Constant::launch_microseconds] * 1e-6;
  const double traffic = op.bytes / bandwidth;
  const std::string_view name = op.name;
  const double side = constants[Constant::gemm_side_count];
  const double depth = constants[Constant::gemm_depth_count];
  const auto plain_product = [&](double k) {
    const spec::Precision operands =
        spec::is_narrow(precision) && !op.narrow ? spec::Precision::bf16 : precision;
    const double peak =
        chip.power_share * catalog::product_flops(chip, operands) * constants[ratio_of(operands)];
    return op.flops / peak * (1 + depth / k);
  };
  const auto product = [&](double m, double n, double k) {
    return plain_product(k) + plain_product(k) * side * (1 / m + 1 / n);
  };
  if (name == "gemm" || name == "narrow_gemm") {
    return std::max(product(real(op.dims[0]), real(op.dims[1]), real(op.dims[2])), traffic) +
           launch;
  }
  if (name == "grouped_gemm" || name == "grouped_gemm_weight") {
    return (plain_product(real(op.dims[3])) + traffic) *
               constants[Constant::expert_imbalance_ratio] +
           launch;
  }
  if (name == "batched_gemm") {
    const double peak = chip.power_share * chip.bf16_flops * constants[Constant::batched_ratio];
    return std::max(op.flops / peak, traffic) + launch;
  }
  if (name.starts_with("attention_")) {
    const Constant ratio =
        name.ends_with("forward") ? Constant::attention_ratio : Constant::attention_backward_ratio;
    const double rows = std::max(1.0, real(op.dims[0]) * real(op.dims[1]) * real(op.dims[2]));
    const double filled = 1 + constants[Constant::attention_fill_count] / rows;
    const double peak =
        chip.power_share * catalog::product_flops(chip, precision == spec::Precision::f32
                                                            ? precision
                                                            : spec::Precision::bf16);
    return std::max(op.flops / (peak * constants[ratio]) * filled, traffic) + launch;
  }
  return op.bytes / (chip.memory_bytes_per_second * constants.bandwidth_ratio(name)) + launch;
}

std::vector<StageSeconds> price_kinds(const std::vector<LayerOps>& kinds,
                                      const spec::Recipe& recipe, const catalog::System& system,
                                      const Constants& constants) {
  const Prices at = prices_of(recipe, system, constants);
  std::vector<StageSeconds> prices;
  prices.reserve(kinds.size());
  for (const LayerOps& kind : kinds) {
    prices.push_back({price_pass(kind.forward, at).seconds, price_pass(kind.recompute, at).seconds,
                      price_pass(kind.backward_input, at).seconds,
                      price_pass(kind.backward_weight, at).seconds, 0});
  }
  return prices;
}

double price_collectives(const std::vector<Op>& ops, const spec::Recipe& recipe,
                         const catalog::System& system, const Constants& constants) {
  return sum_collectives(ops, prices_of(recipe, system, constants));
}

Pricing price_program(const spec::Program& program, const spec::Recipe& recipe,
                      const catalog::System& system, const Constants& constants) {
  const spec::Mesh& mesh = recipe.parallel;
  const Prices at = prices_of(recipe, system, constants);
  const std::vector<StageSeconds> kinds = price_kinds(program.kinds, recipe, system, constants);
  Pricing pricing;
  pricing.ranks.resize(static_cast<size_t>(mesh.pp));
  for (size_t g = 0; g < program.stages.size(); ++g) {
    const spec::StageProgram& stage = program.stages[g];
    StageSeconds seconds;
    for (const spec::LayerRun& run : stage.runs) {
      const StageSeconds& kind = kinds[run.kind];
      const double times = real(run.repeats);
      seconds.forward += times * kind.forward;
      seconds.recompute += times * kind.recompute;
      seconds.backward_input += times * kind.backward_input;
      seconds.backward_weight += times * kind.backward_weight;
    }
    seconds.transfer = sum_collectives(stage.transfer, at);
    RankSeconds& rank = pricing.ranks[g % static_cast<size_t>(mesh.pp)];
    rank.chunk_gather.push_back(sum_collectives(stage.gather, at));
    rank.chunk_reduce.push_back(sum_collectives(stage.reduce, at));
    rank.gather += rank.chunk_gather.back();
    rank.reduce += rank.chunk_reduce.back();
    pricing.stages.push_back(seconds);
  }
  for (size_t r = 0; r < program.updates.size(); ++r) {
    RankSeconds& rank = pricing.ranks[r];
    const spec::UpdateOps& ops = program.updates[r];
    rank.tied = sum_collectives(ops.tied_table, at);
    for (const std::vector<Op>* list : {&ops.tensor_copies, &ops.norm, &ops.update, &ops.quantize,
                                        &ops.router_loads, &ops.selection_bias}) {
      for (const Op& op : *list) {
        rank.update += op.collective ? collective_seconds(op, at)
                                     : operation_seconds(op, system, constants, recipe.precision);
      }
    }
  }
  return pricing;
}

}  // namespace tutti::plan
