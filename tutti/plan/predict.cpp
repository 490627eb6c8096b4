#include "tutti/plan/predict.h"

#include <algorithm>
#include <cmath>

#include "tutti/base/dtype.h"

namespace tutti::plan {
namespace {

double real(int64_t value) { return static_cast<double>(value); }

// Traffic of `alone` seconds beside `window` seconds of work of which `usable` can hide it.
double exposed(double alone, double window, double usable) {
  return std::max(0.0, alone - window * usable);
}

const char* largest_part(const Split& split) {
  const std::pair<double, const char*> parts[] = {{split.products, "matrix products"},
                                                  {split.memory, "memory bandwidth"},
                                                  {split.recompute, "recomputation"},
                                                  {split.tp, "tensor-parallel communication"},
                                                  {split.cp, "context-parallel communication"},
                                                  {split.ep, "expert-parallel communication"},
                                                  {split.pp, "pipeline transfers"},
                                                  {split.dp, "data-parallel communication"},
                                                  {split.bubble, "pipeline bubble"},
                                                  {split.optimizer, "optimizer"},
                                                  {split.host, "host and stragglers"}};
  return std::max_element(std::begin(parts), std::end(parts),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

}  // namespace

std::vector<PassSeconds> pass_seconds(const Pricing& pricing, const spec::Recipe& recipe,
                                      const Constants& constants) {
  const spec::Mesh& mesh = recipe.parallel;
  const double dp_usable = constants[Constant::dp_overlap_ratio];
  std::vector<PassSeconds> passes;
  for (size_t g = 0; g < pricing.stages.size(); ++g) {
    const StageSeconds& stage = pricing.stages[g];
    const RankSeconds& rank = pricing.ranks[g % static_cast<size_t>(mesh.pp)];
    const size_t chunk = g / static_cast<size_t>(mesh.pp);
    PassSeconds pass;
    pass.forward = stage.forward.total();
    pass.backward = stage.recompute.total() + stage.backward_input.total();
    pass.weight_gradient = stage.backward_weight.total();
    // ZeRO 3 gathers the weights for every pass, ZeRO 2 and 3 reduce every micro-batch.
    if (mesh.zero == 3) {
      pass.forward += exposed(rank.chunk_gather[chunk], pass.forward, dp_usable);
      const double window = pass.backward + pass.weight_gradient;
      pass.backward +=
          exposed(rank.chunk_gather[chunk] + rank.chunk_reduce[chunk], window, dp_usable);
    } else if (mesh.zero == 2) {
      const double window = pass.backward + pass.weight_gradient;
      pass.backward += exposed(rank.chunk_reduce[chunk], window, dp_usable);
    }
    pass.transfer = stage.transfer;
    pass.blocked = stage.transfer * (1 - constants[Constant::pp_overlap_ratio]);
    passes.push_back(pass);
  }
  return passes;
}

StepPrediction Predictor::step(const spec::Recipe& recipe, const spec::Profile& profile) {
  return step(recipe, spec::make_program(recipe, profile));
}

StepPrediction Predictor::step(const spec::Recipe& recipe, const spec::Program& program) {
  catalog::check_precision(system_.chip, recipe.precision);
  const spec::Mesh& mesh = recipe.parallel;
  const Pricing pricing = price_program(program, recipe, system_, constants_);
  const std::vector<PassSeconds> passes = pass_seconds(pricing, recipe, constants_);
  const int64_t micro_batches = recipe.batch.global / (recipe.batch.micro * mesh.dp);
  const double pipeline = simulator_.seconds(mesh, micro_batches, passes);

  // The pipeline rank with most work carries the split.
  StepPrediction out;
  double most = -1;
  size_t busiest = 0;
  for (size_t r = 0; r < static_cast<size_t>(mesh.pp); ++r) {
    double busy = 0;
    double forward = 0;
    for (size_t g = r; g < passes.size(); g += static_cast<size_t>(mesh.pp)) {
      busy += passes[g].forward + passes[g].backward + passes[g].weight_gradient;
      forward += passes[g].forward;
    }
    out.forward_seconds_per_micro_batch = std::max(out.forward_seconds_per_micro_batch, forward);
    if (busy > most) {
      most = busy;
      busiest = r;
    }
  }
  const double times = real(micro_batches);
  double forward_window = 0;
  double backward_window = 0;
  double inside = 0;  // of the rank's passes
  for (size_t g = busiest; g < passes.size(); g += static_cast<size_t>(mesh.pp)) {
    const StageSeconds& stage = pricing.stages[g];
    Split& split = out.split;
    for (const Seconds* part : {&stage.forward, &stage.backward_input, &stage.backward_weight}) {
      split.products += times * part->products;
      split.memory += times * part->memory;
      split.tp += times * part->tp;
      split.cp += times * part->cp;
      split.ep += times * part->ep;
    }
    split.recompute += times * stage.recompute.total();
    const bool sends_on = g + 1 < passes.size();
    const bool sends_back = g > 0;
    split.pp += times * passes[g].blocked * ((sends_on ? 1 : 0) + (sends_back ? 1 : 0));
    const double priced = stage.forward.total() + stage.recompute.total() +
                          stage.backward_input.total() + stage.backward_weight.total();
    const double pass = passes[g].forward + passes[g].backward + passes[g].weight_gradient;
    split.dp += times * (pass - priced);
    forward_window += passes[g].forward;
    backward_window += passes[g].backward + passes[g].weight_gradient;
    inside += times * pass;
  }
  out.forward_seconds = pipeline * forward_window / (forward_window + backward_window);
  inside += out.split.pp;
  out.split.bubble = std::max(0.0, pipeline - inside);

  // Gradients and weights of the step: hidden behind one micro-batch of the pass that makes or
  // needs them.
  const RankSeconds& rank = pricing.ranks[busiest];
  const double usable = constants_[Constant::dp_overlap_ratio];
  if (mesh.zero <= 1) out.reduce_seconds = exposed(rank.reduce, backward_window, usable);
  if (mesh.zero == 1 || mesh.zero == 2) {
    out.gather_seconds = exposed(rank.gather, forward_window, usable);
  }
  out.split.dp += out.gather_seconds + out.reduce_seconds;
  double tied = 0;
  double update = 0;
  for (const RankSeconds& each : pricing.ranks) {
    tied = std::max(tied, each.tied);
    update = std::max(update, each.update);
  }
  out.split.pp += tied;
  out.reduce_seconds += tied;
  out.split.optimizer = update;
  const double work = out.split.total();
  const double ranks = real(mesh.world());
  out.split.host = constants_[Constant::step_overhead_seconds] +
                   work * constants_[Constant::straggler_ratio] * std::log2(ranks) / 10;
  out.step_seconds = out.split.total();

  const double tokens = real(recipe.batch.global) * real(recipe.batch.sequence);
  out.tokens_per_second_per_chip = tokens / out.step_seconds / ranks;
  const catalog::Chip& chip = system_.chip;
  const double peak = catalog::product_flops(chip, recipe.precision);
  const auto rate = [&](spec::FlopConvention convention) {
    return out.tokens_per_second_per_chip *
           (spec::flops_per_token(recipe.model, recipe.batch.sequence, convention) +
            spec::teacher_flops_per_token(recipe, recipe.batch.sequence, convention));
  };
  out.model_flops_per_second_per_chip = rate(spec::FlopConvention::causal);
  out.mfu_causal = out.model_flops_per_second_per_chip / peak;
  out.mfu_square = rate(spec::FlopConvention::square) / peak;
  out.hardware_utilisation = rate(spec::FlopConvention::hardware) / peak;
  out.bottleneck = largest_part(out.split);
  return out;
}

MemoryPrediction predict_memory(const spec::Recipe& recipe, const spec::Profile& profile,
                                const catalog::System& system, const Constants& constants) {
  MemoryPrediction out;
  // Memory falls from the first stage on, but the last one also has the head.
  for (const int64_t stage : {int64_t{0}, recipe.parallel.pp - 1}) {
    const spec::MemoryMap map = spec::memory_map(recipe, profile, stage);
    const double bytes = real(map.total_bytes());
    if (bytes <= out.allocated_bytes) continue;
    out.allocated_bytes = bytes;
    out.stage = stage;
    out.kinds.clear();
    for (const spec::ArenaPlan& arena : map.arenas) {
      out.kinds.emplace_back(arena.name, real(arena.bytes));
    }
  }
  out.bytes = out.allocated_bytes * constants[Constant::memory_reserve_ratio];
  out.fits = out.bytes <= system.chip.memory_bytes;
  return out;
}

}  // namespace tutti::plan
