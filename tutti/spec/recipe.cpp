#include "tutti/spec/recipe.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/spec/narrow.h"
#include "tutti/spec/recipe_names.h"

namespace tutti::spec {
namespace {

template <typename... Args>
[[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorKind::usage, format, std::forward<Args>(args)...);
}

void check_range(const char* key, double value, double least, double most) {
  if (!(value >= least && value <= most)) {
    if (std::isinf(most)) reject("{}: {} is out of range; accepted: {} or more", key, value, least);
    reject("{}: {} is out of range; accepted: {} to {}", key, value, least, most);
  }
}

void check_at_least(const char* key, int64_t value, int64_t least) {
  if (value < least) reject("{}: {} is out of range; accepted: {} or more", key, value, least);
}

// The multiple of `unit` nearest to `value`, at least one unit.
int64_t nearest_multiple(int64_t value, int64_t unit) {
  return std::max<int64_t>(1, (value + unit / 2) / unit) * unit;
}

void validate_batch(const Recipe& recipe) {
  const BatchConfig& batch = recipe.batch;
  const Mesh& mesh = recipe.parallel;
  check_at_least("batch.global", batch.global, 1);
  check_at_least("batch.micro", batch.micro, 1);
  check_at_least("batch.sequence", batch.sequence, 1);
  const int64_t unit = batch.micro * mesh.dp;
  if (batch.global % unit != 0) {
    reject("batch.global: {} is not a multiple of batch.micro * parallel.dp = {} * {}; nearest: {}",
           batch.global, batch.micro, mesh.dp, nearest_multiple(batch.global, unit));
  }
  const ModelConfig& model = recipe.model;
  if (model.positions == Positions::learned && batch.sequence > model.context) {
    reject("batch.sequence: {} exceeds model.context {}, the rows of the learned position table",
           batch.sequence, model.context);
  }
}

// The largest divisor of every member of `sizes` that is not above `wanted`.
int64_t nearest_common_divisor(const std::vector<int64_t>& sizes, int64_t wanted) {
  for (int64_t d = wanted; d > 1; --d) {
    if (std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size % d == 0; })) {
      return d;
    }
  }
  return 1;
}

void validate_tensor_parallel(const ModelConfig& model, const Mesh& mesh,
                              const BatchConfig& batch) {
  const int64_t sequence = batch.sequence;
  if (model.heads % mesh.tp != 0) {
    reject("parallel.tp: {} does not divide model.heads {}; nearest that does: {}", mesh.tp,
           model.heads, nearest_common_divisor({model.heads, model.ffn}, mesh.tp));
  }
  if (model.kv_heads % mesh.tp != 0 && mesh.tp % model.kv_heads != 0) {
    reject("parallel.tp: {} neither divides model.kv_heads {} nor is a multiple of it", mesh.tp,
           model.kv_heads);
  }
  if (model.ffn % mesh.tp != 0) {
    reject("parallel.tp: {} does not divide model.ffn {}", mesh.tp, model.ffn);
  }
  if (model.moe.experts > 0 && model.moe.expert_ffn % mesh.tp != 0) {
    reject("parallel.tp: {} does not divide model.moe.expert_ffn {}", mesh.tp,
           model.moe.expert_ffn);
  }
  // Between the projections each rank has an equal block of a micro-batch's rows, which may begin
  // and end within a sequence.
  if (mesh.cp == 1) {
    if (batch.micro * sequence % mesh.tp != 0) {
      reject(
          "parallel.tp: {} does not divide the {} rows of a micro-batch (batch.micro {} * "
          "batch.sequence {}); nearest batch.sequence that it divides: {}",
          mesh.tp, batch.micro * sequence, batch.micro, sequence,
          nearest_multiple(sequence, mesh.tp));
    }
    return;
  }
  // Context parallel ranks take two chunks each, one from either end, so that causal work is equal.
  const int64_t pieces = (mesh.cp > 1 ? 2 * mesh.cp : 1) * mesh.tp;
  if (sequence % pieces != 0) {
    reject("batch.sequence: {} is not a multiple of {} (parallel.tp{}); nearest: {}", sequence,
           pieces, mesh.cp > 1 ? " * 2 * parallel.cp" : "", nearest_multiple(sequence, pieces));
  }
}

void validate_mesh(const Recipe& recipe) {
  const Mesh& mesh = recipe.parallel;
  const ModelConfig& model = recipe.model;
  check_at_least("parallel.dp", mesh.dp, 1);
  check_at_least("parallel.tp", mesh.tp, 1);
  check_at_least("parallel.pp", mesh.pp, 1);
  check_at_least("parallel.vpp", mesh.vpp, 1);
  check_at_least("parallel.cp", mesh.cp, 1);
  check_at_least("parallel.ep", mesh.ep, 1);
  if (mesh.zero < 0 || mesh.zero > 3) {
    reject("parallel.zero: {} is out of range; accepted: 0 to 3", mesh.zero);
  }
  if (mesh.virtual_stages() > model.layers) {
    reject("parallel.pp: {} * vpp {} stages exceed model.layers {}", mesh.pp, mesh.vpp,
           model.layers);
  }
  if (mesh.vpp > 1 && mesh.pp == 1) {
    reject("parallel.vpp: {} virtual stages need parallel.pp above 1", mesh.vpp);
  }
  if (mesh.vpp > 1 && mesh.pipeline != Pipeline::one_f_one_b) {
    reject("parallel.vpp: {} virtual stages need parallel.schedule: interleaved", mesh.vpp);
  }
  const int64_t micro_batches = recipe.batch.global / (recipe.batch.micro * mesh.dp);
  if (mesh.vpp > 1 && micro_batches % mesh.pp != 0) {
    reject(
        "batch.global: {} gives {} micro-batches per rank, but the interleaved schedule needs a "
        "multiple of parallel.pp {}; nearest: {}",
        recipe.batch.global, micro_batches, mesh.pp,
        nearest_multiple(micro_batches, mesh.pp) * recipe.batch.micro * mesh.dp);
  }
  if (mesh.ep > 1 && model.moe.experts == 0) {
    reject("parallel.ep: {} needs a mixture-of-experts model; write 1", mesh.ep);
  }
  if ((mesh.dp * mesh.cp) % mesh.ep != 0) {
    reject("parallel.ep: {} does not divide parallel.dp * parallel.cp = {}", mesh.ep,
           mesh.dp * mesh.cp);
  }
  if (mesh.expert_room_percent != 0 && mesh.expert_room_percent < 100) {
    reject(
        "parallel.expert_room_percent: {} is below the balanced load; accepted: 0, or 100 and more",
        mesh.expert_room_percent);
  }
  if (model.moe.experts % mesh.ep != 0) {
    reject("parallel.ep: {} does not divide model.moe.experts {}", mesh.ep, model.moe.experts);
  }
  validate_tensor_parallel(model, mesh, recipe.batch);
}

void validate_precision(const Recipe& recipe) {
  const NarrowConfig& narrow = recipe.narrow;
  if (!is_narrow(recipe.precision) && narrow != NarrowConfig{}) {
    reject(
        "precision.{}: has no meaning with precision.compute: {}; drop it, or write fp8, mxfp8 or "
        "fp4",
        narrow.wide_first > 0  ? "wide_first"
        : narrow.wide_last > 0 ? "wide_last"
        : narrow.head          ? "head"
                               : "stochastic_gradients",
        name_of(kPrecisionNames, recipe.precision));
  }
  if (narrow.wide_first + narrow.wide_last > recipe.model.layers) {
    reject("precision.wide_first: {} and precision.wide_last: {} exceed model.layers {}",
           narrow.wide_first, narrow.wide_last, recipe.model.layers);
  }
}

void validate_recompute(const Recipe& recipe) {
  const Recompute& recompute = recipe.recompute;
  if (recompute.parts != 0 && recompute.mode != RecomputeMode::selective) {
    reject("recompute.parts: [{}] need recompute.mode: selective, not {}",
           part_names(recompute.parts, ", "), name_of(kRecomputeNames, recompute.mode));
  }
  if (recompute.layers == 0) return;
  if (recompute.mode == RecomputeMode::none) {
    reject("recompute.layers: {} need recompute.mode: selective or full", recompute.layers);
  }
  const int64_t most = stage_layers(recipe.parallel, recipe.model.layers, 0).count;
  if (recompute.layers > most) {
    reject("recompute.layers: {} exceeds the {} layers of a stage; write all", recompute.layers,
           most);
  }
}

void validate_schedule(const ScheduleConfig& schedule, int64_t steps) {
  check_at_least("schedule.warmup_steps", schedule.warmup_steps, 0);
  check_at_least("schedule.decay_steps", schedule.decay_steps, 0);
  check_range("schedule.minimum_ratio", schedule.minimum_ratio, 0, 1);
  check_at_least("schedule.start_step", schedule.start_step, 0);
  // A benchmark's schedule may reach beyond its run, which then ends while warming up.
  if (schedule.warmup_steps > std::max(steps, schedule.decay_steps)) {
    reject("schedule.warmup_steps: {} exceeds train.steps {}", schedule.warmup_steps, steps);
  }
  switch (schedule.kind) {
    case ScheduleKind::constant:
      if (schedule.decay_steps != 0) {
        reject(
            "schedule.decay_steps: {} has no meaning with kind: constant; drop it or write "
            "linear, cosine or wsd",
            schedule.decay_steps);
      }
      break;
    case ScheduleKind::linear:
    case ScheduleKind::cosine:
      if (schedule.decay_steps < schedule.warmup_steps) {
        reject("schedule.decay_steps: {} comes before the end of the warm-up at {}",
               schedule.decay_steps, schedule.warmup_steps);
      }
      break;
    case ScheduleKind::wsd:
      if (schedule.start_step > 0) {
        reject("schedule.start_step: {} has no meaning with kind: wsd, whose decay ends the run",
               schedule.start_step);
      }
      if (schedule.decay_steps < 1) {
        reject(
            "schedule.decay_steps: wsd without a decay; give the steps of the final decay, or "
            "write kind: constant");
      }
      if (schedule.warmup_steps + schedule.decay_steps > steps) {
        reject("schedule.decay_steps: {} after a warm-up of {} exceeds train.steps {}",
               schedule.decay_steps, schedule.warmup_steps, steps);
      }
      break;
  }
}

void validate_optimizer(const Recipe& recipe) {
  const OptimizerConfig& optimizer = recipe.optimizer;
  check_range("optimizer.learning_rate", optimizer.learning_rate, 0, 1e6);
  if (!(optimizer.beta1 >= 0 && optimizer.beta1 < 1)) {
    reject("optimizer.beta1: {} is out of range; accepted: 0 to below 1", optimizer.beta1);
  }
  if (!(optimizer.beta2 >= 0 && optimizer.beta2 < 1)) {
    reject("optimizer.beta2: {} is out of range; accepted: 0 to below 1", optimizer.beta2);
  }
  check_range("optimizer.epsilon", optimizer.epsilon, 1e-30, 1);
  check_range("optimizer.weight_decay", optimizer.weight_decay, 0, 1e6);
  check_range("optimizer.clip_norm", optimizer.clip_norm, 0, INFINITY);
  if (optimizer.master == Master::none && recipe.precision == Precision::f32) {
    reject(
        "optimizer.master: none with precision: f32, whose weights are f32 without a copy; write "
        "master: f32, or precision: bf16");
  }
  if (optimizer.stochastic_rounding && optimizer.master != Master::none) {
    reject(
        "optimizer.stochastic_rounding: true with optimizer.master: f32, which keeps what rounding "
        "its copies leaves over; write master: none too, or stochastic_rounding: false");
  }
}

void validate_evaluation(const Recipe& recipe) {
  const EvaluateConfig& evaluate = recipe.evaluate;
  if (evaluate.every_steps > 0 && evaluate.every_samples > 0) {
    reject("evaluate.every_samples: {} and evaluate.every_steps: {} exclude each other; keep one",
           evaluate.every_samples, evaluate.every_steps);
  }
  check_at_least("evaluate.every_steps", evaluate.every_steps, 0);
  check_at_least("evaluate.every_samples", evaluate.every_samples, 0);
  check_at_least("evaluate.samples", evaluate.samples, 0);
  check_at_least("evaluate.skip_first", evaluate.skip_first, 0);
  const bool wanted = evaluate.every_steps > 0 || evaluate.every_samples > 0 ||
                      recipe.train.target_validation_loss.has_value();
  if (wanted && !recipe.data.train.empty() && recipe.data.validation.empty()) {
    reject("data.validation: missing, but {} needs it; give a corpus prefix",
           recipe.train.target_validation_loss ? "train.target_loss" : "evaluate");
  }
  if (recipe.train.target_validation_loss) {
    check_range("train.target_loss", *recipe.train.target_validation_loss, 0, INFINITY);
  }
}

void validate_blend(const char* key, const CorpusBlend& blend) {
  constexpr size_t kMostCorpora = 64;
  if (blend.corpora.size() > kMostCorpora) {
    reject("{}: {} corpora; accepted: up to {}", key, blend.corpora.size(), kMostCorpora);
  }
  for (size_t i = 0; i < blend.corpora.size(); ++i) {
    const CorpusShare& share = blend.corpora[i];
    if (share.prefix.empty()) reject("{}.{}.prefix: missing; give a corpus prefix", key, i);
    if (!(share.weight > 0) || std::isinf(share.weight)) {
      reject("{}.{}.weight: {} is out of range; accepted: a number above 0", key, i, share.weight);
    }
    for (size_t j = 0; j < i; ++j) {
      if (blend.corpora[j].prefix != share.prefix) continue;
      reject("{}.{}.prefix: '{}' is in the list twice; add up its weights", key, i, share.prefix);
    }
  }
}

void validate_data(const Recipe& recipe) {
  validate_blend("data.train", recipe.data.train);
  validate_blend("data.validation", recipe.data.validation);
}

void validate_mlperf(const Recipe& recipe) {
  const MlperfConfig& mlperf = recipe.mlperf;
  if (!mlperf.enabled()) return;
  const auto one_of = [](const char* key, const std::string& value,
                         const std::vector<std::string>& accepted) {
    if (std::find(accepted.begin(), accepted.end(), value) == accepted.end()) {
      reject("{}: '{}' is unknown; accepted: {}", key, value, join(accepted, ", "));
    }
  };
  one_of("mlperf.division", mlperf.division, {"closed", "open"});
  one_of("mlperf.status", mlperf.status, {"cloud", "onprem", "preview", "research"});
  if (mlperf.organization.empty()) {
    reject("mlperf.organization: empty; say who submits, or drop the key");
  }
  if (!recipe.train.target_validation_loss) {
    reject(
        "train.target_loss: missing, but an MLPerf run (mlperf.benchmark: {}) ends at its target",
        mlperf.benchmark);
  }
}

void validate_budget(const BudgetConfig& budget) {
  check_range("run.budget.hours", budget.hours, 0, INFINITY);
  check_range("run.budget.usd", budget.usd, 0, INFINITY);
  check_range("run.budget.kwh", budget.kwh, 0, INFINITY);
  check_range("run.budget.usd_per_hour", budget.usd_per_hour, 0, INFINITY);
  check_range("run.budget.average_watts", budget.average_watts, 0, INFINITY);
  if (budget.usd > 0 && budget.usd_per_hour == 0) {
    reject("run.budget.usd: {} needs run.budget.usd_per_hour, the machine's price", budget.usd);
  }
  if (budget.kwh > 0 && budget.average_watts == 0) {
    reject("run.budget.kwh: {} needs run.budget.average_watts, the machine's draw", budget.kwh);
  }
}

}  // namespace

std::string blend_text(const CorpusBlend& blend) {
  if (blend.corpora.size() == 1) return blend.corpora[0].prefix;
  double sum = 0;
  for (const CorpusShare& share : blend.corpora) sum += share.weight;
  std::string text;
  for (const CorpusShare& share : blend.corpora) {
    text += fmt::format("{}{:.4g} {}", text.empty() ? "" : " + ", share.weight / sum, share.prefix);
  }
  return text;
}

namespace {

// Puts in what the reference batches say.
void scale_to_batch(Recipe& recipe) {
  const int64_t batch = recipe.batch.global;
  OptimizerConfig& optimizer = recipe.optimizer;
  if (optimizer.reference_batch > 0) {
    // In this order: MLPerf's checker wants learning_rate * reference_batch to be exact in doubles.
    optimizer.learning_rate = optimizer.learning_rate * static_cast<double>(batch) /
                              static_cast<double>(optimizer.reference_batch);
    optimizer.reference_batch = 0;
  }
  ScheduleConfig& schedule = recipe.schedule;
  if (schedule.reference_batch > 0) {
    for (int64_t* steps : {&schedule.warmup_steps, &schedule.decay_steps, &schedule.start_step}) {
      *steps = (*steps * schedule.reference_batch + batch - 1) / batch;
    }
    schedule.reference_batch = 0;
  }
}

}  // namespace

void resolve(Recipe& recipe) {
  BatchConfig& batch = recipe.batch;
  resolve(recipe.lora);
  if (batch.sequence == 0) batch.sequence = recipe.model.context;
  if (batch.micro == 0) {
    if (batch.global % recipe.parallel.dp != 0) {
      reject("batch.global: {} is not a multiple of parallel.dp {}; nearest: {}", batch.global,
             recipe.parallel.dp, nearest_multiple(batch.global, recipe.parallel.dp));
    }
    batch.micro = batch.global / recipe.parallel.dp;
  }
  ScheduleConfig& schedule = recipe.schedule;
  scale_to_batch(recipe);
  if (schedule.decay_steps == 0) {
    if (schedule.kind == ScheduleKind::wsd) {
      schedule.decay_steps = recipe.train.steps / 5;
    } else if (schedule.kind != ScheduleKind::constant) {
      schedule.decay_steps = recipe.train.steps;
    }
  }
}

void validate(const Recipe& recipe) {
  validate(recipe.model);
  validate(recipe.lora, recipe.model);
  validate_distill(recipe);
  validate_batch(recipe);
  validate_mesh(recipe);
  validate_precision(recipe);
  validate_recompute(recipe);
  validate_offload(recipe);
  check_at_least("train.steps", recipe.train.steps, 1);
  check_at_least("train.stop_after_nonfinite", recipe.train.stop_after_nonfinite, 1);
  validate_schedule(recipe.schedule, recipe.train.steps);
  validate_optimizer(recipe);
  validate_data(recipe);
  validate_evaluation(recipe);
  check_range("checkpoint.every_seconds", recipe.checkpoint.every_seconds, 0, INFINITY);
  check_range("telemetry.gpu_every_seconds", recipe.telemetry.gpu_every_seconds, 0, INFINITY);
  validate_mlperf(recipe);
  validate_budget(recipe.run.budget);
}

}  // namespace tutti::spec
