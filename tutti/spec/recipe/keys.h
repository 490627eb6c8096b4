// Every key of a recipe, once: its name, its values, and what it is for. The reader, the writer,
// the JSON schema for editors and the table of the documentation (docs/recipe.md) are visitors of
// this list; a new key is one line here and its member.
//
// A visitor has a function per kind of value:
//   count(key, x, {least, most}, help)   a whole number; "10k" is one too
//   count_or_all(key, x, least, all, help)  a whole number, or the word all for the value `all`
//   seed, real, seconds, flag, text(key, x, help)
//   texts, counts(key, list, help)       a list of names or of whole numbers
//   flags(key, {{name, x}, ...}, help)   a list of the names of those that are true
//   choice(key, x, names, help)          one of `names`
//   blend(key, x, help)                  corpora
//   parts(key, recompute, help)          parts of a block
//   section(key, keys, help)             a mapping; `keys` visits what is in it
//   choice_or_section(key, x, names, is_choice, keys, help)  one of `names`, or a mapping of which
//                                        the name is a part; written as the name where `is_choice`
//   model(key, x, help)                  a preset's name, or a mapping of model_keys
// and two that speak of the key after them:
//   when(condition)   written only then: a recipe without it keeps its text, and so its hash
//   usually(text)     what documents say of the default, where it follows from other keys
// Keys are visited in the order in which they are written.
#pragma once

#include "tutti/spec/model/keys.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

// `R` is Recipe or const Recipe.
template <typename Visitor, typename R>
void precision_keys(Visitor& v, R& recipe) {
  v.choice("compute", recipe.precision, kPrecisionNames, "what products read");
  v.count("wide_first", recipe.narrow.wide_first, {}, "first layers that stay in 16 bits");
  v.count("wide_last", recipe.narrow.wide_last, {}, "last layers that stay in 16 bits");
  v.flag("head", recipe.narrow.head, "the head's products read fewer bits too");
  v.flag("stochastic_gradients", recipe.narrow.stochastic_gradients,
         "gradients of blocks' outputs round stochastically");
}

template <typename Visitor, typename R>
void data_keys(Visitor& v, R& recipe) {
  auto& data = recipe.data;
  v.blend("train", data.train, "corpus to learn from (PREFIX of PREFIX.bin and PREFIX.idx)");
  v.blend("validation", data.validation, "corpus of evaluations; empty: none");
  v.choice("packing", data.packing, kPackingNames,
           "documents: whole documents per sequence that do not see each other");
  v.section(
      "prepare",
      [&](auto& inner) {
        inner.text("source", data.prepare.source, "text or JSON lines, .gz or .zst too");
        inner.text("xxh3", data.prepare.xxh3, "hash that the file must have; empty: any");
        inner.text("tokenizer", data.prepare.tokenizer, "as of tutti data prepare");
        inner.real("holdout", data.prepare.holdout, "share held out for validation");
        inner.text("folder", data.prepare.folder, "of the corpora; empty: the user's cache");
      },
      "text to make the corpora from, where train names none");
  v.when(!data.cache.empty());
  v.text("cache", data.cache, "folder for pieces of corpora from s3://; empty: the user's cache");
  v.when(data.cache_bytes != kDefaultCacheBytes);
  v.count("cache_bytes", data.cache_bytes, {1}, "most that this folder holds");
}

template <typename Visitor, typename R>
void optimizer_keys(Visitor& v, R& recipe) {
  auto& optimizer = recipe.optimizer;
  v.real("learning_rate", optimizer.learning_rate, "at the peak of the schedule");
  v.count("reference_batch", optimizer.reference_batch, {},
          "> 0: the rate is that of this batch, and grows with batch.global");
  v.real("beta1", optimizer.beta1, "of AdamW");
  v.real("beta2", optimizer.beta2, "of AdamW");
  v.real("epsilon", optimizer.epsilon, "of AdamW");
  v.real("weight_decay", optimizer.weight_decay, "of matrices; norms and biases never decay");
  v.real("clip_norm", optimizer.clip_norm, "of the whole gradient; 0: off");
  v.choice("master", optimizer.master, kMasterNames, "none: the bf16 weights are updated");
  v.flag("stochastic_rounding", optimizer.stochastic_rounding, "of weights without masters");
}

template <typename Visitor, typename R>
void schedule_keys(Visitor& v, R& recipe) {
  auto& schedule = recipe.schedule;
  v.choice("kind", schedule.kind, kScheduleNames, "shape after the warm-up");
  v.count("warmup_steps", schedule.warmup_steps, {}, "linear");
  v.choice("warmup_form", schedule.warmup_form, kWarmupNames, "its first and last rate");
  v.usually("train.steps; wsd: a fifth")
      .count("decay_steps", schedule.decay_steps, {},
             "step of the minimum; wsd: length of the decay");
  v.real("minimum_ratio", schedule.minimum_ratio, "last rate over peak");
  v.count("start_step", schedule.start_step, {}, "of the schedule, of the run's first step");
  v.count("reference_batch", schedule.reference_batch, {},
          "> 0: steps are those of this batch, and follow batch.global");
}

template <typename Visitor, typename R>
void checkpoint_keys(Visitor& v, R& recipe) {
  auto& checkpoint = recipe.checkpoint;
  v.count("every_steps", checkpoint.every_steps, {}, "0: only at the end and on request");
  v.seconds("every_seconds", checkpoint.every_seconds, "0: never by time");
  v.count("keep_last", checkpoint.keep_last, {1}, "newest that are kept");
  v.count("keep_best", checkpoint.keep_best, {}, "best that are kept, by validation loss");
  v.text("initialize_from", checkpoint.initialize_from,
         "a run or checkpoint whose parameters to begin with");
  v.text("key_file", checkpoint.key_file, "key to seal tensors with; empty: open");
  v.when(!checkpoint.store.empty());
  v.text("store", checkpoint.store,
         "s3://BUCKET/PREFIX that checkpoints go to; empty: the run folder");
  v.count("sample_tokens", checkpoint.sample_tokens, {}, "of text written after each; 0: none");
  v.text("sample_prompt", checkpoint.sample_prompt, "what that text continues");
}

template <typename Visitor, typename R>
void parallel_keys(Visitor& v, R& recipe) {
  auto& mesh = recipe.parallel;
  v.usually("what ranks are left").count("dp", mesh.dp, {1}, "data parallel replicas");
  v.count("tp", mesh.tp, {1}, "tensor parallel ranks");
  v.count("pp", mesh.pp, {1}, "pipeline stages");
  v.count("vpp", mesh.vpp, {1}, "virtual stages of a rank");
  v.count("cp", mesh.cp, {1}, "context parallel ranks");
  v.count("ep", mesh.ep, {1}, "expert parallel ranks, of those of dp and cp");
  v.count("expert_room_percent", mesh.expert_room_percent, {0, 1'000'000},
          "buffers of received tokens, of the mean load; 0: for the worst case");
  v.count("zero", mesh.zero, {0, 3}, "ZeRO stage");
  v.choice("schedule", mesh.pipeline, kPipelineNames, "of the pipeline");
}

template <typename Visitor, typename R>
void run_keys(Visitor& v, R& recipe) {
  auto& run = recipe.run;
  v.text("name", run.name, "for people");
  v.text("owner", run.owner, "for people");
  v.text("project", run.project, "whose budget it uses");
  v.text("data_class", run.data_class, "of its data: where it may run");
  v.section(
      "budget",
      [&](auto& inner) {
        inner.real("hours", run.budget.hours, "0: no limit");
        inner.real("usd", run.budget.usd, "0: no limit");
        inner.real("kwh", run.budget.kwh, "0: no limit");
        inner.real("usd_per_hour", run.budget.usd_per_hour, "price of the machine, for usd");
        inner.real("average_watts", run.budget.average_watts, "draw of the machine, for kwh");
      },
      "what ends the run, with a checkpoint");
}

template <typename Visitor, typename R>
void training_keys(Visitor& v, R& recipe) {
  v.section(
      "train",
      [&](auto& inner) {
        auto& target = recipe.train.target_validation_loss;
        inner.count("steps", recipe.train.steps, {1}, "at most");
        inner.seed("seed", recipe.train.seed, "of weights, data order and dropout");
        inner.count("stop_after_nonfinite", recipe.train.stop_after_nonfinite, {1},
                    "steps in a row without a finite loss that end the run");
        inner.when(target.has_value())
            .usually("none")
            .real("target_loss", target, "validation loss that ends the run");
      },
      "how long");
  v.section(
      "evaluate",
      [&](auto& inner) {
        inner.count("every_steps", recipe.evaluate.every_steps, {}, "0: only at the end");
        inner.count("every_samples", recipe.evaluate.every_samples, {}, "instead of every_steps");
        inner.count("skip_first", recipe.evaluate.skip_first, {}, "regular ones left out");
        inner.usually("all").count("samples", recipe.evaluate.samples, {}, "sequences of each");
      },
      "loss on data.validation");
  v.section(
      "checkpoint", [&](auto& inner) { checkpoint_keys(inner, recipe); }, "what is saved");
}

// Where it runs, what can be seen of it, and whose it is.
template <typename Visitor, typename R>
void environment_keys(Visitor& v, R& recipe) {
  v.section(
      "parallel", [&](auto& inner) { parallel_keys(inner, recipe); }, "layout of ranks");
  v.section(
      "telemetry",
      [&](auto& inner) {
        inner.count("metrics_port", recipe.telemetry.metrics_port, {0, 65535},
                    "of /metrics for Prometheus; 0: off");
        inner.text("metrics_address", recipe.telemetry.metrics_address, "to listen on");
        inner.seconds("gpu_every_seconds", recipe.telemetry.gpu_every_seconds,
                      "between readings of GPUs; 0: never");
      },
      "what can be watched");
  v.section(
      "mlperf",
      [&](auto& inner) {
        inner.text("benchmark", recipe.mlperf.benchmark, "gpt3, llama31_405b, ...; empty: no log");
        inner.text("division", recipe.mlperf.division, "closed or open");
        inner.text("organization", recipe.mlperf.organization, "submission_org");
        inner.usually("this machine").text("platform", recipe.mlperf.platform, "of the submission");
        inner.text("status", recipe.mlperf.status, "cloud, onprem, preview or research");
        inner.flag("clear_all", recipe.mlperf.clear_all, "forget all cached files before the run");
      },
      "a run by the rules of MLPerf Training");
  v.section(
      "run", [&](auto& inner) { run_keys(inner, recipe); }, "whose it is");
}

template <typename Visitor, typename R>
void recipe_keys(Visitor& v, R& recipe) {
  v.model("model", recipe.model, "what is trained: a preset's name, or its keys");
  v.section(
      "lora",
      [&](auto& inner) {
        inner.count("rank", recipe.lora.rank, {}, "of the adapters; 0: train all parameters");
        inner.usually("2 * rank").real("alpha", recipe.lora.alpha, "their scale, times rank");
        inner.real("dropout", recipe.lora.dropout, "of their input");
        inner.usually("qkv, output")
            .texts("targets", recipe.lora.targets, "projections that have them");
      },
      "low-rank adapters on a frozen model");
  v.section(
      "distill",
      [&](auto& inner) {
        inner.text("teacher", recipe.distill.teacher, "a run, import or checkpoint");
        inner.real("temperature", recipe.distill.temperature, "of both softmaxes");
        inner.real("weight", recipe.distill.weight, "of the divergence from the teacher");
        inner.model("model", recipe.distill.model, "of the teacher, where its run does not say");
      },
      "a teacher's predictions to learn from too");
  v.choice_or_section(
      "precision", recipe.precision, kPrecisionNames, !is_narrow(recipe.precision),
      [&](auto& inner) { precision_keys(inner, recipe); }, "what products read");
  v.choice("device", recipe.device, kDeviceNames, "where it runs");
  v.flag("deterministic", recipe.deterministic, "the same bits in every run");
  v.usually("all cores").count("threads", recipe.threads, {0, 4096}, "of a rank");
  v.choice_or_section(
      "recompute", recipe.recompute.mode, kRecomputeNames, false,
      [&](auto& inner) {
        const RecomputeMode mode = recipe.recompute.mode;
        inner.choice("mode", recipe.recompute.mode, kRecomputeNames, "nothing, parts, or all");
        inner.when(mode == RecomputeMode::selective)
            .parts("parts", recipe.recompute, "of a block; they alone mean selective");
        inner.when(mode != RecomputeMode::none)
            .count_or_all("layers", recipe.recompute.layers, 1, 0, "first ones of a stage");
      },
      "activations computed again instead of kept");
  v.section(
      "offload",
      [&](auto& inner) {
        inner.flag("optimizer", recipe.offload.optimizer, "moments and masters");
        inner.count_or_all("activations", recipe.offload.activations, 0, kEveryLayer,
                           "of the first layers of a stage");
      },
      "what an accelerator keeps in memory of the host");
  v.section(
      "data", [&](auto& inner) { data_keys(inner, recipe); }, "corpora");
  v.section(
      "batch",
      [&](auto& inner) {
        inner.count("global", recipe.batch.global, {1}, "sequences per step");
        inner.usually("a rank's share of global")
            .count("micro", recipe.batch.micro, {}, "sequences of a micro-batch");
        inner.usually("model.context")
            .count("sequence", recipe.batch.sequence, {}, "tokens of a sequence");
      },
      "sizes of a step");
  v.section(
      "optimizer", [&](auto& inner) { optimizer_keys(inner, recipe); }, "AdamW");
  v.section(
      "schedule", [&](auto& inner) { schedule_keys(inner, recipe); }, "of the learning rate");
  training_keys(v, recipe);
  environment_keys(v, recipe);
}

}  // namespace tutti::spec
