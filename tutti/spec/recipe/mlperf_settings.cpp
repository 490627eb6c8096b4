#include "tutti/spec/recipe/mlperf_settings.h"

#include <cmath>

#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/names.h"

namespace tutti::spec {
namespace {

bool counts_tokens(const Recipe& recipe) { return recipe.mlperf.benchmark == "gpt3"; }

std::string optimizer_name(const Recipe& recipe) {
  return recipe.mlperf.benchmark == "gpt3" ? "adam" : "adamw";
}

int64_t logged_decay_steps(const Recipe& recipe) {
  const ScheduleConfig& schedule = recipe.schedule;
  const bool with_warmup = recipe.mlperf.benchmark == "gpt3";
  return with_warmup ? schedule.decay_steps : schedule.decay_steps - schedule.warmup_steps;
}

std::string schedule_name(ScheduleKind kind) {
  if (kind == ScheduleKind::cosine) return "cosine with linear warmup";
  return name_of(kScheduleNames, kind) + " with linear warmup";
}

// As MLPerf logs name precisions from ruleset 6.0 on; eight bits with block scales are fp8 there.
std::string precision_name(Precision precision) {
  switch (precision) {
    case Precision::f32: return "fp32";
    case Precision::bf16: return "bfloat16";
    case Precision::fp8: return "fp8";
    case Precision::mxfp8: return "fp8";
    case Precision::fp4: return "nvfp4";
  }
  return "?";
}

// Megatron-LM's moe_aux_loss_coeff: its loss is 1 where the experts are balanced, here it is top_k,
// and it is summed over the routed layers, here averaged. Rounded, since checkers compare doubles.
double aux_loss_coefficient(const ModelConfig& model) {
  const auto layers = static_cast<double>(model.layers - model.moe.first_dense_layers);
  const auto top_k = static_cast<double>(model.moe.top_k);
  constexpr double kDigits = 1e12;
  return std::round(model.moe.balance_loss * top_k / layers * kDigits) / kDigits;
}

}  // namespace

std::vector<std::pair<std::string, Json>> mlperf_submission(const Recipe& recipe,
                                                            const std::string& machine) {
  const MlperfConfig& mlperf = recipe.mlperf;
  return {{"submission_benchmark", mlperf.benchmark},
          {"submission_org", mlperf.organization},
          {"submission_division", mlperf.division},
          {"submission_status", mlperf.status},
          {"submission_platform", mlperf.platform.empty() ? machine : mlperf.platform}};
}

std::vector<std::pair<std::string, Json>> mlperf_settings(const Recipe& recipe) {
  const BatchConfig& batch = recipe.batch;
  const OptimizerConfig& optimizer = recipe.optimizer;
  const ScheduleConfig& schedule = recipe.schedule;
  const Mesh& mesh = recipe.parallel;
  const std::string adam = "opt_" + optimizer_name(recipe);
  std::vector<std::pair<std::string, Json>> out = {
      {"seed", recipe.train.seed},
      {"global_batch_size", batch.global},
      {"gradient_accumulation_steps", batch.global / (batch.micro * mesh.dp)},
      {"max_sequence_length", batch.sequence},
      {"max_steps", recipe.train.steps},
      {"parameters", param_table(recipe.model, recipe.lora).count()},
      {"init_checkpoint_step", schedule.start_step},
      {"opt_name", optimizer_name(recipe)},
      {"opt_base_learning_rate", optimizer.learning_rate},
      {"opt_end_learning_rate", optimizer.learning_rate * schedule.minimum_ratio},
      {"opt_learning_rate_warmup_steps", schedule.warmup_steps},
      {"opt_learning_rate_decay_steps", logged_decay_steps(recipe)},
      {"opt_learning_rate_training_steps", schedule.decay_steps},
      {"opt_learning_rate_decay_schedule", schedule_name(schedule.kind)},
      {adam + "_beta_1", optimizer.beta1},
      {adam + "_beta_2", optimizer.beta2},
      {adam + "_epsilon", optimizer.epsilon},
      {adam + "_weight_decay", optimizer.weight_decay},
      {"opt_gradient_clip_norm", optimizer.clip_norm}};
  if (recipe.model.moe.experts > 0) {
    out.emplace_back("moe_aux_loss_coeff", aux_loss_coefficient(recipe.model));
  }
  if (recipe.lora.enabled()) {
    out.emplace_back("lora_rank", recipe.lora.rank);
    out.emplace_back("lora_alpha", recipe.lora.alpha);
  }
  if (recipe.train.target_validation_loss) {
    out.emplace_back("target_accuracy", *recipe.train.target_validation_loss);
  }
  out.emplace_back("micro_batch_size", batch.micro);
  out.emplace_back("tensor_parallelism", mesh.tp);
  out.emplace_back("pipeline_parallelism", mesh.pp);
  out.emplace_back("context_parallelism", mesh.cp);
  out.emplace_back("expert_parallelism", mesh.ep);
  const std::string precision = precision_name(recipe.precision);
  out.emplace_back("lowest_numerical_precision_in_linear", precision);
  out.emplace_back("lowest_numerical_precision_in_attn",
                   recipe.precision == Precision::fp8 ? "bfloat16" : precision);
  // Below bf16 only products are computed: what travels between ranks is bf16 or wider.
  out.emplace_back("lowest_numerical_precision_in_comm",
                   recipe.precision == Precision::f32 ? "fp32" : "bfloat16");
  out.emplace_back("config_filename", "recipe.yaml");  // of the run folder, resolved
  return out;
}

Json mlperf_progress(const Recipe& recipe, int64_t samples) {
  return {{"samples_count", samples},
          {"epoch_num", counts_tokens(recipe) ? samples * recipe.batch.sequence : samples}};
}

}  // namespace tutti::spec
