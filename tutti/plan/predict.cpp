#include "tutti/plan/predict.h"

#include <algorithm>
#include <cmath>

#include "tutti/base/dtype.h"
#include "tutti/base/real.h"
#include "tutti/plan/offload_cost.h"

namespace tutti::plan {
namespace {

// Share of the layers whose forward pass is recomputed.
double repeated_share(const spec::Recipe& recipe) {
  if (recipe.recompute.mode != spec::RecomputeMode::full) return 0;
  if (recipe.recompute.layers == 0) return 1;
  const double repeated = real(recipe.recompute.layers * recipe.parallel.virtual_stages());
  return std::min(1.0, repeated / real(recipe.model.layers));
}

const char* largest_part(const Split& split) {
  return std::max_element(split_parts().begin(), split_parts().end(),
                          [&](const SplitPart& a, const SplitPart& b) {
                            return split.*a.seconds < split.*b.seconds;
                          })
      ->label;
}

}  // namespace

double products_share(const Split& split) {
  const double total = split.total();
  return total > 0 ? (split.products + split.recompute) / total : 1;
}

const std::array<SplitPart, 12>& split_parts() {
  static const std::array<SplitPart, 12> parts = {{
      {"products", "matrix products", &Split::products},
      {"memory", "memory bandwidth", &Split::memory},
      {"recompute", "recomputation", &Split::recompute},
      {"tp", "tensor-parallel communication", &Split::tp},
      {"cp", "context-parallel communication", &Split::cp},
      {"ep", "expert-parallel communication", &Split::ep},
      {"pp", "pipeline transfers", &Split::pp},
      {"dp", "data-parallel communication", &Split::dp},
      {"bubble", "pipeline bubble", &Split::bubble},
      {"optimizer", "optimizer", &Split::optimizer},
      {"offload", "offloading to the host", &Split::offload},
      {"host", "host and stragglers", &Split::host},
  }};
  return parts;
}

PassSeconds with_weight_traffic(PassSeconds pass, int64_t zero, double chunk_gather,
                                double chunk_reduce, const Constants& constants) {
  if (zero < 2) return pass;
  const double usable = constants[Constant::dp_overlap_ratio];
  const double window = pass.backward + pass.weight_gradient;
  const double gather = zero == 3 ? chunk_gather : 0;
  pass.forward += exposed_seconds(gather, pass.forward, usable);
  pass.backward += exposed_seconds(gather + chunk_reduce, window, usable);
  return pass;
}

double host_seconds(double work, int64_t ranks, const Constants& constants) {
  return constants[Constant::step_overhead_seconds] +
         work * constants[Constant::straggler_ratio] * std::log2(real(ranks)) / 10;
}

std::vector<PassSeconds> pass_seconds(const Pricing& pricing, const spec::Recipe& recipe,
                                      const spec::Profile& profile, const Constants& constants) {
  const spec::Mesh& mesh = recipe.parallel;
  const int64_t zero = spec::held_zero(mesh, profile);
  std::vector<PassSeconds> passes;
  for (size_t g = 0; g < pricing.stages.size(); ++g) {
    const StageSeconds& stage = pricing.stages[g];
    const RankSeconds& rank = pricing.ranks[g % static_cast<size_t>(mesh.pp)];
    const size_t chunk = g / static_cast<size_t>(mesh.pp);
    PassSeconds pass;
    pass.forward = stage.forward.total();
    pass.backward = stage.recompute.total() + stage.backward_input.total();
    pass.weight_gradient = stage.backward_weight.total();
    pass = with_weight_traffic(pass, zero, rank.chunk_gather[chunk], rank.chunk_reduce[chunk],
                               constants);
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
  const spec::Profile& profile = spec::find_profile(program.profile);
  const std::vector<PassSeconds> passes = pass_seconds(pricing, recipe, profile, constants_);
  const int64_t micro_batches = recipe.batch.global / (recipe.batch.micro * mesh.dp);
  const double pipeline = simulator_.seconds(mesh, micro_batches, passes);

  // The busiest pipeline rank supplies the split.
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
  double inside = 0;  // the rank's passes
  for (size_t g = busiest; g < passes.size(); g += static_cast<size_t>(mesh.pp)) {
    const StageSeconds& stage = pricing.stages[g];
    Split& split = out.split;
    for (const Seconds* part : {&stage.forward, &stage.backward_input, &stage.backward_weight}) {
      split.products += times * part->products;
      split.memory += times * part->memory;
      split.tp += times * part->tp;
      split.cp += times * part->cp;
      split.ep += times * part->ep;
      split.host += times * part->host;
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

  // Gradients and weights of the step: hidden behind the passes that produce or need them.
  const RankSeconds& rank = pricing.ranks[busiest];
  const double usable = constants_[Constant::dp_overlap_ratio];
  const int64_t zero = spec::held_zero(mesh, profile);
  if (zero <= 1) {
    out.reduce_seconds =
        exposed_reduce(mesh, profile, micro_batches, rank.reduce, backward_window, usable);
  }
  if (zero == 1 || zero == 2) {
    out.gather_seconds = exposed_traffic(mesh, rank.gather, forward_window, usable);
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
  if (recipe.offload.enabled()) {
    const auto stage = static_cast<int64_t>(busiest);
    const spec::MemoryMap map = spec::memory_map(recipe, profile, stage);
    const OffloadSeconds exposed =
        price_offload(recipe, stage, map, system_.chip, {forward_window, backward_window, update});
    out.split.offload = exposed.state + times * exposed.activations;
  }
  const double work = out.split.total();
  const double ranks = real(mesh.world());
  out.split.host += host_seconds(work, mesh.world(), constants_);
  out.step_seconds = out.split.total();

  const double tokens = real(recipe.batch.global) * real(recipe.batch.sequence);
  out.tokens_per_second_per_chip = tokens / out.step_seconds / ranks;
  const catalog::Chip& chip = system_.chip;
  const double peak = catalog::product_flops(chip, recipe.precision);
  const int64_t sequence = recipe.batch.sequence;
  const double causal = spec::model_flops_per_token(recipe);
  // The full square of attention is the causal half of twice the sequence.
  const double square = spec::model_flops(recipe, 1, 2 * sequence);
  const double again =
      spec::flops_per_token(recipe.model, sequence, spec::FlopConvention::hardware) -
      spec::flops_per_token(recipe.model, sequence, spec::FlopConvention::square);
  out.model_flops_per_second_per_chip = out.tokens_per_second_per_chip * causal;
  out.mfu_causal = out.model_flops_per_second_per_chip / peak;
  out.mfu_square = out.tokens_per_second_per_chip * square / peak;
  out.hardware_utilisation =
      out.tokens_per_second_per_chip * (square + repeated_share(recipe) * again) / peak;
  out.bottleneck = largest_part(out.split);
  return out;
}

std::vector<int64_t> memory_stages(const spec::Recipe& recipe) {
  const spec::Mesh& mesh = recipe.parallel;
  const int64_t dense =
      recipe.model.moe.experts > 0 ? recipe.model.moe.first_dense_layers : recipe.model.layers;
  // Number of dense and of routed layers in virtual stage `g`.
  const auto sorts = [&](int64_t g) {
    const spec::LayerRange range = spec::stage_layers(mesh, recipe.model.layers, g);
    const int64_t plain = std::clamp<int64_t>(dense - range.first, 0, range.count);
    return std::pair(plain, range.count - plain);
  };
  std::vector<int64_t> stages;
  for (int64_t stage = 0; stage < mesh.pp; ++stage) {
    bool fresh = stage == 0 || stage == mesh.pp - 1;
    for (int64_t g = stage; g < mesh.virtual_stages() && !fresh; g += mesh.pp) {
      fresh = sorts(g) != sorts(g - 1);
    }
    // Only stage 0 has the embedding.
    if (fresh || stage == 1) stages.push_back(stage);
  }
  return stages;
}

spec::Profile profile_on(const spec::Profile& profile, const spec::Recipe& recipe,
                         const catalog::Chip& chip) {
  if (!profile.executable) return profile;
  return spec::tutti_profile_on(recipe, static_cast<int64_t>(chip.memory_bytes));
}

MemoryPrediction predict_memory(const spec::Recipe& recipe, const spec::Profile& profile,
                                const catalog::System& system, const Constants& constants) {
  MemoryPrediction out;
  for (const int64_t stage : memory_stages(recipe)) {
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
  out.bytes = out.allocated_bytes * constants[Constant::memory_reserve_ratio] +
              constants[Constant::process_gigabytes] * 1e9;
  out.fits = out.bytes <= system.chip.memory_bytes;
  return out;
}

}  // namespace tutti::plan
