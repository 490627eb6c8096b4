#include "tutti/spec/recipe/recipe.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/spec/mesh/checks.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/spec/recipe/checks.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/spec/recipe/sizes.h"

namespace tutti::spec {
namespace {

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
  const int64_t layers = recipe.model.layers;
  if (narrow.wide_first > layers || narrow.wide_last > layers - narrow.wide_first) {
    reject("precision.wide_first: {} and precision.wide_last: {} exceed model.layers {}",
           narrow.wide_first, narrow.wide_last, layers);
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
      if (schedule.warmup_steps > steps - schedule.decay_steps) {
        reject("schedule.decay_steps: {} after a warm-up of {} exceeds train.steps {}",
               schedule.decay_steps, schedule.warmup_steps, steps);
      }
      break;
  }
}

void validate_optimizer(const Recipe& recipe) {
  const OptimizerConfig& optimizer = recipe.optimizer;
  check_range("optimizer.learning_rate", optimizer.learning_rate, 0, 1e6);
  // The update computes in f32, where a beta that rounds to 1 would forget nothing and learn
  // nothing.
  for (const auto& [key, beta] :
       {std::pair{"beta1", optimizer.beta1}, {"beta2", optimizer.beta2}}) {
    if (!(beta >= 0 && static_cast<float>(beta) < 1)) {
      reject("optimizer.{}: {} is out of range; accepted: 0 to below 1, such as 0.9999999", key,
             beta);
    }
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
  const char* wanting = recipe.train.target_validation_loss ? "train.target_loss" : "evaluate";
  const bool prepared = recipe.data.train.empty() && recipe.data.prepare.enabled();
  if (wanted && !recipe.data.train.empty() && recipe.data.validation.empty()) {
    reject("data.validation: missing, but {} needs it; give a corpus prefix", wanting);
  }
  if (wanted && prepared && recipe.data.validation.empty() && recipe.data.prepare.holdout == 0) {
    reject(
        "data.prepare.holdout: 0 leaves nothing to evaluate, but {} needs it; write a share such "
        "as 0.05",
        wanting);
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

void validate_prepare(const PrepareConfig& prepare) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  const std::string& hash = prepare.xxh3;
  if (!hash.empty() && (hash.size() != 16 || !std::all_of(hash.begin(), hash.end(), is_digit))) {
    reject(
        "data.prepare.xxh3: '{}' is not a hash; accepted: 16 hexadecimal digits in lower case, or "
        "nothing",
        hash);
  }
  if (!(prepare.holdout >= 0 && prepare.holdout < 1)) {
    reject("data.prepare.holdout: {} is out of range; accepted: 0 to below 1, such as 0.05",
           prepare.holdout);
  }
}

void validate_data(const Recipe& recipe) {
  validate_blend("data.train", recipe.data.train);
  validate_blend("data.validation", recipe.data.validation);
  validate_prepare(recipe.data.prepare);
}

void validate_store(const CheckpointConfig& checkpoint) {
  constexpr std::string_view kScheme = "s3://";
  const std::string& store = checkpoint.store;
  if (store.empty() || (starts_with(store, kScheme) && store.size() > kScheme.size())) return;
  fail(ErrorKind::usage,
       "checkpoint.store: '{}' does not name a bucket; expected s3://BUCKET/PREFIX, or nothing for "
       "checkpoints in the run folder",
       store);
}

// data.train, data.validation, checkpoint.store, checkpoint.initialize_from and distill.teacher may
// lead to an object store.
void validate_local_paths(const Recipe& recipe) {
  const PrepareConfig& prepare = recipe.data.prepare;
  const std::pair<const char*, const std::string&> paths[] = {
      {"data.prepare.source", prepare.source},
      {"data.prepare.tokenizer", prepare.tokenizer},
      {"data.prepare.folder", prepare.folder},
      {"data.cache", recipe.data.cache},
      {"checkpoint.key_file", recipe.checkpoint.key_file}};
  for (const auto& [key, path] : paths) {
    if (!starts_with(path, "s3:")) continue;
    reject("{}: '{}' is in an object store; this key takes a local path", key, path);
  }
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
    reject("mlperf.organization: empty; name the submitter, or drop the key");
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
    for (const auto& [key, steps] : {std::pair{"warmup_steps", &schedule.warmup_steps},
                                     {"decay_steps", &schedule.decay_steps},
                                     {"start_step", &schedule.start_step}}) {
      if (*steps > (INT64_MAX - batch) / schedule.reference_batch) {
        reject("schedule.reference_batch: {} times schedule.{} {} is out of range; write less",
               schedule.reference_batch, key, *steps);
      }
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
  check_sizes(recipe);
  validate(recipe.lora, recipe.model);
  validate_distill(recipe);
  validate_batch(recipe);
  validate_store(recipe.checkpoint);
  validate_local_paths(recipe);
  validate_mesh(recipe);
  validate_precision(recipe);
  validate_recompute(recipe);
  validate_offload(recipe);
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
