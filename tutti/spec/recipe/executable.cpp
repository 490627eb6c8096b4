// What of all that can be described this build can also train (recipe.h, check_executable).
#include <fmt/format.h>

#include <utility>

#include "tutti/base/error.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::spec {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  fail(ErrorKind::unsupported, "{}; it can be described and planned, but not executed yet",
       message);
}

void check_pipeline(const Recipe& recipe) {
  const Mesh& mesh = recipe.parallel;
  if (mesh.pp == 1) return;
  if (mesh.pipeline == Pipeline::zero_bubble && recipe.recompute.mode != RecomputeMode::none &&
      mesh.zero == 3) {
    refuse(
        "parallel.schedule: zero-bubble with recompute and parallel.zero: 3, whose delayed weight "
        "gradients would need again the weights that were dropped");
  }
}

void check_experts(const Recipe& recipe) {
  const Mesh& mesh = recipe.parallel;
  // Frozen weights are divided among all replicas, which have different experts.
  if (recipe.lora.enabled() && mesh.ep > 1 && mesh.zero == 3) {
    refuse(fmt::format("lora: adapters with experts on parallel.ep: {} with parallel.zero: 3",
                       mesh.ep));
  }
}

// A scale belongs to an operand as one rank has it: parts of a tensor on several ranks would have
// scales of their own, and a layout other results.
void check_precision(const Recipe& recipe) {
  if (!is_narrow(recipe.precision)) return;
  const Mesh& mesh = recipe.parallel;
  const std::string& name = name_of(kPrecisionNames, recipe.precision);
  if (mesh.tp > 1 || mesh.cp > 1) {
    refuse(
        fmt::format("precision: {} with parallel.{} {}, whose ranks have parts of the tensors "
                    "that share a scale; take dp, pp or zero, or precision: bf16",
                    name, mesh.tp > 1 ? "tp" : "cp", mesh.tp > 1 ? mesh.tp : mesh.cp));
  }
  if (recipe.model.moe.experts > 0) {
    refuse(fmt::format("precision: {} with {} experts; write precision: bf16", name,
                       recipe.model.moe.experts));
  }
}

// The biases that balance experts change by far less than half of a bf16's last bit.
void check_optimizer(const Recipe& recipe) {
  if (recipe.optimizer.master == Master::none && recipe.model.moe.router_bias) {
    refuse(
        "optimizer.master: none with model.moe.router_bias, whose small steps need f32; write "
        "optimizer.master: f32");
  }
}

void check_zero(const Recipe& recipe) {
  const Mesh& mesh = recipe.parallel;
  if (mesh.zero != 0 && replicas(mesh) == 1) {
    refuse(fmt::format("parallel.zero: {} shards nothing on one rank; write 0", mesh.zero));
  }
  if (mesh.zero < 2 || mesh.pipeline != Pipeline::gpipe) return;
  // All losses come before the first backward pass.
  const int64_t micro_batches = make_schedule(recipe).micro_batches;
  if (micro_batches > 1) {
    refuse(fmt::format(
        "parallel.schedule: gpipe with parallel.zero: {}, whose ranks buffer the head's "
        "gradients of one micro-batch, not of {}; write parallel.schedule: 1f1b, or parallel.zero: "
        "1",
        mesh.zero, micro_batches));
  }
}

void check_distillation(const Recipe& recipe) {
  if (!recipe.distill.enabled()) return;
  if (!recipe.distill.model) return;
  if (recipe.distill.model->attention == Attention::latent) {
    refuse("distill.model.attention: latent");
  }
  if (recipe.distill.model->prediction_layers > 0) {
    refuse(fmt::format("distill.model.prediction_layers: {}",
                       recipe.distill.model->prediction_layers));
  }
}

// Latent attention is the CPU's, of whole sequences and of 16 bits and more.
void check_latent(const Recipe& recipe) {
  if (recipe.model.attention != Attention::latent) return;
  const Mesh& mesh = recipe.parallel;
  if (mesh.cp > 1) {
    refuse(fmt::format("model.attention: latent with parallel.cp: {}; take dp, tp, pp or ep",
                       mesh.cp));
  }
  if (mesh.pipeline == Pipeline::zero_bubble) {
    refuse(
        "model.attention: latent with parallel.schedule: zero-bubble, which delays gradients of "
        "weights; write parallel.schedule: 1f1b");
  }
  if (is_narrow(recipe.precision)) {
    refuse(fmt::format("model.attention: latent with precision: {}; write precision: bf16",
                       name_of(kPrecisionNames, recipe.precision)));
  }
}

void check_model(const ModelConfig& model) {
  if (model.prediction_layers > 0) {
    refuse(fmt::format("model.prediction_layers: {}", model.prediction_layers));
  }
}

// Parts that only one rank, or only the CPU, computes; `key` is where the recipe has the model.
void check_parts(const Recipe& recipe, const ModelConfig& model, const char* key) {
  const Mesh& mesh = recipe.parallel;
  if (model.query_key_norm == QueryKeyNorm::whole && mesh.tp > 1) {
    refuse(
        fmt::format("{}.query_key_norm: whole with parallel.tp: {}, whose ranks have some of the "
                    "heads that are "
                    "normed together; take dp, pp or cp",
                    key, mesh.tp));
  }
  if (recipe.device == "cpu") return;
  const ModelConfig plain;
  const std::pair<const char*, bool> parts[] = {
      {"attention: latent", model.attention == Attention::latent},
      {"moe.scores: sigmoid", model.moe.scores == RouterScores::sigmoid},
      {"moe.groups", model.moe.groups > 1},
      {"moe.weight_factor", model.moe.weight_factor != 1},
      {"activation: geglu", model.activation == Activation::geglu},
      {"activation: clamped-swiglu", model.activation == Activation::clamped_swiglu},
      {"attention_sinks", model.attention_sinks},
      {"moe.biases", model.moe.biases},
      {"norm_placement", model.norm_placement != plain.norm_placement},
      {"norm_offset", model.norm_offset != 0},
      {"query_key_norm", model.query_key_norm != plain.query_key_norm},
      {"attention_softcap", model.attention_softcap > 0},
      {"logit_softcap", model.logit_softcap > 0},
      {"embedding_multiplier", model.embedding_multiplier != 1},
      {"residual_multiplier", model.residual_multiplier != 1},
      {"window", has_windows(model, recipe.batch.sequence)},
      {"rotated_dims", rotated_dims(model) != model.head_dim},
      {"rope_scaling.kind: yarn", model.rope_scaling.kind == RopeScalingKind::yarn},
  };
  for (const auto& [name, used] : parts) {
    if (used) {
      refuse(fmt::format("{}.{} with device: {}; take device: cpu", key, name, recipe.device));
    }
  }
}

// Parts of a model that learns.
void check_trained_parts(const Recipe& recipe) {
  const ModelConfig& model = recipe.model;
  check_parts(recipe, model, "model");
  const bool norms =
      model.norm_placement != NormPlacement::before || model.query_key_norm != QueryKeyNorm::none;
  if (model.attention_sinks && recipe.parallel.pipeline == Pipeline::zero_bubble) {
    refuse(
        "model.attention_sinks with parallel.schedule: zero-bubble, which delays gradients of "
        "weights; write parallel.schedule: 1f1b");
  }
  if (norms && recipe.parallel.pipeline == Pipeline::zero_bubble) {
    refuse(
        "model.norm_placement or model.query_key_norm with parallel.schedule: zero-bubble, which "
        "delays gradients of weights; write parallel.schedule: 1f1b");
  }
  if (model.logit_divisor != 1 && recipe.narrow.head && is_narrow(recipe.precision)) {
    refuse(fmt::format(
        "model.logit_divisor: {} with precision.head, whose product in fewer than 16 bits has no "
        "factor; write precision.head: false",
        model.logit_divisor));
  }
}

void check_teacher_parts(const Recipe& recipe) {
  if (recipe.model.logit_softcap > 0 && recipe.distill.enabled()) {
    refuse(
        fmt::format("model.logit_softcap: {} with distill, whose loss compares logits without a "
                    "cap; drop distill",
                    recipe.model.logit_softcap));
  }
  if (!recipe.distill.model) return;
  const ModelConfig& teacher = *recipe.distill.model;
  check_parts(recipe, teacher, "distill.model");
  if (teacher.logit_softcap > 0) {
    refuse(fmt::format(
        "distill.model.logit_softcap: {}, and the loss compares logits without a cap; take a "
        "teacher without one",
        teacher.logit_softcap));
  }
  // Rows have one list of what they see through a window.
  const int64_t sequence = recipe.batch.sequence;
  if (has_windows(teacher, sequence) &&
      (!has_windows(recipe.model, sequence) || teacher.window != recipe.model.window)) {
    refuse(fmt::format(
        "distill.model.window: {} beside model.window: {}; take a batch.sequence of at most {}, or "
        "a teacher whose window is the model's",
        teacher.window, recipe.model.window, teacher.window));
  }
}

// What a device of its own memory is wanted for; whether there is one is the engine's to say.
void check_offload(const Recipe& recipe) {
  if (recipe.device != "cpu" || !recipe.offload.enabled()) return;
  fail(ErrorKind::usage,
       "offload: {} with device: cpu, which computes in memory of the host; drop offload, or "
       "write device: cuda",
       offload_text(recipe.offload));
}

}  // namespace

void check_executable(const Recipe& recipe, int64_t ranks) {
  const Mesh& mesh = recipe.parallel;
  check_pipeline(recipe);
  check_experts(recipe);
  check_zero(recipe);
  if (mesh.world() != ranks) {
    fail(ErrorKind::usage,
         "parallel: a mesh of {} ranks on {} here; start as many (tutti train --nproc {}, mpirun, "
         "srun, torchrun), or write parallel.dp=1",
         mesh.world(), ranks, mesh.world());
  }
  check_distillation(recipe);
  check_model(recipe.model);
  check_latent(recipe);
  check_trained_parts(recipe);
  check_teacher_parts(recipe);
  check_precision(recipe);
  check_optimizer(recipe);
  check_offload(recipe);
}

}  // namespace tutti::spec
