#include "tutti/spec/recipe/recipe.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

constexpr const char* kTiny = R"(
model:
  layers: 2
  hidden: 24
  heads: 3
  vocabulary: 101
  context: 16
batch: {global: 4}
)";

TEST(Recipe, DefaultsAreResolved) {
  const Recipe recipe = parse(kTiny);
  EXPECT_EQ(recipe.model.head_dim, 8);
  EXPECT_EQ(recipe.model.kv_heads, 3);
  EXPECT_EQ(recipe.model.ffn, 96);
  EXPECT_EQ(recipe.batch.micro, 4);
  EXPECT_EQ(recipe.batch.sequence, 16);
  EXPECT_EQ(recipe.schedule.decay_steps, recipe.train.steps);
  EXPECT_EQ(recipe.precision, Precision::bf16);
}

TEST(Recipe, KeyFilesEqualTheCommandLine) {
  const auto overrides = read_overrides(
      "model: {layers: 3, name: \"a b\"}\nlora:\n  rank: 4\n  targets: [query, mlp.up]\nparallel: "
      "{dp: 2}\n",
      "keys.yaml");
  EXPECT_EQ(overrides.size(), 5U);
  const Recipe recipe = parse(kTiny, overrides);
  EXPECT_EQ(recipe.model.layers, 3);
  EXPECT_EQ(recipe.model.name, "a b");
  EXPECT_EQ(recipe.model.hidden, 24);
  EXPECT_EQ(recipe.lora.targets, (std::vector<std::string>{"query", "mlp.up"}));
  EXPECT_EQ(recipe.parallel.dp, 2);
  EXPECT_THROW(read_overrides("[1, 2]", "keys.yaml"), Error);
}

TEST(Recipe, HyperparametersScaleWithTheBatch) {
  const std::vector<std::string> rules = {
      "optimizer.learning_rate=8e-5",  "optimizer.reference_batch=1152",
      "schedule.reference_batch=1536", "schedule.warmup_steps=265",
      "schedule.decay_steps=108600",   "schedule.start_step=4000"};
  const auto at = [&](int64_t batch) {
    std::vector<std::string> all = rules;
    all.push_back(fmt::format("batch.global={}", batch));
    return parse(kTiny, all);
  };
  const Recipe same = at(1536);
  EXPECT_EQ(same.schedule.warmup_steps, 265);
  EXPECT_EQ(same.schedule.decay_steps, 108600);
  EXPECT_EQ(same.schedule.start_step, 4000);
  EXPECT_EQ(same.schedule.reference_batch, 0);
  const Recipe larger = at(2304);                // of a published GPT-3 log
  EXPECT_EQ(larger.schedule.warmup_steps, 177);  // 176.67
  EXPECT_EQ(larger.schedule.decay_steps, 72400);
  EXPECT_EQ(larger.schedule.start_step, 2667);  // 2666.67
  // MLPerf's checker compares these products as doubles.
  for (const int64_t batch : {2, 4, 896, 1008, 1152, 1248, 1536, 2304, 2520, 4608, 6912, 9216}) {
    const double rate = at(batch).optimizer.learning_rate;
    EXPECT_EQ(rate * 1152, static_cast<double>(batch) * 8e-5) << batch;
  }
  EXPECT_EQ(parse(to_yaml(larger)), larger);
}

TEST(Recipe, AWarmupMayOutlastTheRunOfALongSchedule) {
  EXPECT_EQ(parse(kTiny, {"schedule.warmup_steps=8000", "schedule.decay_steps=1200000"})
                .schedule.warmup_steps,
            8000);
  EXPECT_THROW(parse(kTiny, {"schedule.warmup_steps=2000"}), Error);
}

TEST(Recipe, EveryKeyIsRead) {
  const Recipe recipe = parse(R"(
model:
  name: odd
  layers: 4
  hidden: 64
  heads: 4
  kv_heads: 2
  head_dim: 32
  ffn: 100
  vocabulary: 1k
  context: 128
  norm: rms
  norm_epsilon: 1e-6
  activation: swiglu
  positions: rope
  linear_bias: false
  tied_embeddings: false
  rope_theta: 500000
  rope_scaling: {factor: 8, low_frequency_factor: 1, high_frequency_factor: 4, original_context: 64}
  init_std: 0.01
  dropout: 0.1
  moe: {experts: 4, top_k: 2, expert_ffn: 20, shared_experts: 1, first_dense_layers: 1,
        capacity_factor: 1.5, balance_loss: 0.01, z_loss: 0.001, router_bias: true,
        router_bias_rate: 0.002}
precision: f32
device: cuda
deterministic: false
threads: 3
recompute: {mode: selective, parts: [attention, mlp], layers: 1}
data: {train: [{prefix: a/b, weight: 3}, {prefix: e}], validation: "c: d", packing: documents,
       prepare: {source: t.jsonl, xxh3: 0123456789abcdef, tokenizer: char, holdout: 0.1, folder: f}}
batch: {global: 64, micro: 2, sequence: 64}
optimizer: {learning_rate: 1e-3, beta1: 0.8, beta2: 0.99, epsilon: 1e-7, weight_decay: 0.2,
            clip_norm: 2}
schedule: {kind: wsd, warmup_steps: 10, warmup_form: between, decay_steps: 50, minimum_ratio: 0}
train: {steps: 2k, seed: 18446744073709551615, stop_after_nonfinite: 3, target_loss: 1.88}
evaluate: {every_samples: 640, samples: 100, skip_first: 2}
checkpoint: {every_steps: 100, every_seconds: 10min, keep_last: 5, keep_best: 0,
             sample_tokens: 20, sample_prompt: "a: b"}
telemetry: {metrics_port: 9400, metrics_address: "::1"}
mlperf: {benchmark: gpt3, division: open, organization: us, platform: box, status: onprem,
         clear_all: false}
parallel: {dp: 4, tp: 2, pp: 2, vpp: 2, cp: 1, ep: 4, zero: 1, schedule: interleaved}
run: {name: n, owner: o, project: p, data_class: public,
      budget: {hours: 1.5, usd: 10, kwh: 2, usd_per_hour: 3, average_watts: 200}}
)");
  EXPECT_EQ(recipe.model.vocabulary, 1000);
  EXPECT_FALSE(recipe.model.norm_bias);
  EXPECT_FALSE(recipe.deterministic);
  EXPECT_EQ(recipe.model.moe.expert_ffn, 20);
  EXPECT_EQ(recipe.data.train, CorpusBlend({{"a/b", 3}, {"e", 1}}));
  EXPECT_EQ(blend_text(recipe.data.train), "0.75 a/b + 0.25 e");
  EXPECT_EQ(recipe.data.validation, "c: d");
  EXPECT_EQ(recipe.data.packing, Packing::documents);
  EXPECT_EQ(recipe.data.prepare, (PrepareConfig{"t.jsonl", "0123456789abcdef", "char", 0.1, "f"}));
  EXPECT_EQ(recipe.checkpoint.sample_tokens, 20);
  EXPECT_EQ(recipe.checkpoint.sample_prompt, "a: b");
  EXPECT_EQ(recipe.train.steps, 2000);
  EXPECT_EQ(recipe.train.seed, UINT64_MAX);
  EXPECT_EQ(recipe.train.target_validation_loss, 1.88);
  EXPECT_EQ(recipe.checkpoint.every_seconds, 600);
  EXPECT_EQ(recipe.parallel.world(), 16);
  EXPECT_EQ(recipe.schedule.warmup_form, WarmupForm::between);
  EXPECT_EQ(recipe.evaluate.skip_first, 2);
  EXPECT_EQ(recipe.mlperf, (MlperfConfig{"gpt3", "open", "us", "box", "onprem", false}));
  EXPECT_EQ(recipe.run.budget.usd_per_hour, 3);
  EXPECT_EQ(recipe.schedule.decay_steps, 50);
  EXPECT_EQ(recipe.recompute, (Recompute{RecomputeMode::selective, kPartAttention | kPartMlp, 1}));
  EXPECT_EQ(parse(to_yaml(recipe)), recipe);
}

TEST(Recipe, WritingAndReadingIsTheIdentity) {
  for (const char* name :
       {"gpt2-124m", "gpt3-175b", "llama3.1-405b", "mixtral-8x7b", "deepseek-v3"}) {
    Recipe recipe = recipe_of(name, {"run.name=\"a \\\"b\\\" # c\\\\\\n\"", "schedule.kind=wsd",
                                     "optimizer.learning_rate=1.2345678901234567e-5"});
    EXPECT_EQ(parse(to_yaml(recipe)), recipe) << to_yaml(recipe);
    recipe.train.target_validation_loss = 2.5;
    EXPECT_EQ(parse(to_yaml(recipe)), recipe);
  }
}

TEST(Recipe, RecomputeIsAWordOrAMapping) {
  const auto read = [](const std::string& text) {
    const Recipe recipe = recipe_of("gpt2-124m", {"recompute=" + text});
    EXPECT_EQ(parse(to_yaml(recipe)), recipe);
    return recipe.recompute;
  };
  using enum RecomputeMode;
  EXPECT_EQ(read("none"), Recompute{});
  EXPECT_EQ(read("full"), (Recompute{full, 0, 0}));
  EXPECT_EQ(read("selective"), (Recompute{selective, 0, 0}));
  EXPECT_EQ(read("{mode: full, layers: 4}"), (Recompute{full, 0, 4}));
  EXPECT_EQ(read("{mode: full, layers: all}"), (Recompute{full, 0, 0}));
  EXPECT_EQ(read("{parts: [norms, core, activation]}"),
            (Recompute{selective, kPartNorms | kPartCore | kPartActivation, 0}));
  EXPECT_EQ(read("{mode: selective, parts: default, layers: 12}"), (Recompute{selective, 0, 12}));
  EXPECT_EQ(recompute_text({}), "none");
  EXPECT_EQ(recompute_text({selective, 0, 4}), "selective (norms, activation), first 4 layers");
  EXPECT_EQ(recompute_text({selective, kPartMlp | kPartCore, 0}), "selective (core, mlp)");
  EXPECT_EQ(recompute_text({full, 0, 1}), "full, first 1 layers");
  // A word on the way of an override becomes the mode.
  EXPECT_EQ(parse("model: gpt2-124m\nrecompute: full\n", {"recompute.layers=3"}).recompute,
            (Recompute{full, 0, 3}));
}

TEST(Recipe, OffloadsTheOptimizerAndActivationsOfLayers) {
  const auto read = [](const std::string& text) {
    const Recipe recipe = recipe_of("gpt2-124m", {"offload=" + text});
    EXPECT_EQ(parse(to_yaml(recipe)), recipe);
    return recipe.offload;
  };
  EXPECT_EQ(read("{}"), Offload{});
  EXPECT_EQ(read("{optimizer: true, activations: all}"), (Offload{true, kEveryLayer}));
  EXPECT_EQ(read("{activations: 4}"), (Offload{false, 4}));
  EXPECT_TRUE(read("{activations: 4}").covers(3) && !read("{activations: 4}").covers(4));
  EXPECT_EQ(offload_text({}), "none");
  EXPECT_EQ(offload_text({true, 4}), "optimizer, activations of the first 4 layers");
  EXPECT_EQ(offload_text({false, kEveryLayer}), "activations");
}

TEST(Recipe, OverridesReplaceValuesAndSections) {
  const Recipe recipe =
      parse("model: gpt2-124m\ntrain: {steps: 5}\n",
            {"train.steps=7", "model.layers=2", "model.hidden=96", "batch.global=2",
             "precision=f32", "run.budget.hours=2", "parallel={dp: 2, zero: 1}"});
  EXPECT_EQ(recipe.train.steps, 7);
  EXPECT_EQ(recipe.model.name, "gpt2-124m");
  EXPECT_EQ(recipe.model.layers, 2);
  EXPECT_EQ(recipe.model.head_dim, 8);  // follows the replaced width
  EXPECT_EQ(recipe.model.ffn, 384);
  EXPECT_EQ(recipe.precision, Precision::f32);
  EXPECT_EQ(recipe.run.budget.hours, 2);
  EXPECT_EQ(recipe.parallel.dp, 2);
  EXPECT_EQ(parse("model: gpt2-124m\n", {"model=gpt2-350m"}).model.layers, 24);
}

class BadRecipe : public testing::TestWithParam<Bad> {};

TEST_P(BadRecipe, NamesKeyValueAndRemedy) {
  expect_refused(std::string("model: gpt2-124m\n") + GetParam().text + "\n", GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, BadRecipe,
    testing::Values(
        Bad{"batch: {globl: 8}", {"test.yaml:2: batch.globl", "did you mean 'global'"}},
        Bad{"trian: {steps: 8}", {"trian", "did you mean 'train'"}},
        Bad{"zzzzzzzz: 1", {"zzzzzzzz", "accepted here: model, lora"}},
        Bad{"recompute: some", {"recompute", "'some'", "selective"}},
        Bad{"recompute: {mode: full, layer: 3}", {"recompute.layer", "did you mean 'layers'"}},
        Bad{"recompute: {parts: [atention]}", {"recompute.parts", "'atention'", "attention, core"}},
        Bad{"recompute: {parts: []}", {"recompute.parts", "norms, attention"}},
        Bad{"recompute: {mode: full, parts: [mlp]}", {"recompute.parts: [mlp]", "selective"}},
        Bad{"recompute: {layers: 3}", {"recompute.layers: 3", "recompute.mode"}},
        Bad{"recompute: {mode: full, layers: 13}", {"recompute.layers: 13", "12 layers", "all"}},
        Bad{"recompute: {mode: full, layers: 4}\nparallel: {pp: 4}", {"recompute.layers: 4", "3"}},
        Bad{"recompute: {mode: full, layers: some}", {"recompute.layers", "'some'"}},
        Bad{"offload: {activations: some}", {"offload.activations", "'some'"}},
        Bad{"offload: {activations: 13}",
            {"offload.activations: 13", "12 layers of a stage", "all"}},
        Bad{"offload: {activations: 7}\nparallel: {pp: 2}",
            {"offload.activations: 7", "6 layers of a stage", "all"}},
        Bad{"telemetry: {gpu_every_seconds: -1}", {"telemetry.gpu_every_seconds", "-1"}},
        Bad{"batch: {global: many}", {"batch.global", "'many'"}},
        Bad{"batch: {global: 8.5}", {"batch.global", "'8.5'", "whole number"}},
        Bad{"batch: {global: [8]}", {"batch.global", "a list"}},
        Bad{"batch: {global: 0}", {"batch.global: 0", "1 or more"}},
        Bad{"batch: {global: -8}", {"batch.global: -8", "1 or more"}},
        Bad{"batch: {global: 8MiB}", {"batch.global", "'8MiB'", "10k"}},
        Bad{"batch: {global: 8, micro: 3}", {"batch.global: 8", "3 * 1", "nearest: 9"}},
        Bad{"batch: {global: 9}\nparallel: {dp: 2}", {"batch.global: 9", "nearest: 10"}},
        Bad{"batch: {sequence: 2048}", {"batch.sequence: 2048", "model.context 1024"}},
        Bad{"batch: 8", {"batch", "mapping", "'8'"}},
        Bad{"telemetry: {metrics_port: 70000}", {"telemetry.metrics_port", "65535"}},
        Bad{"checkpoint: {every_seconds: 10 parsecs}", {"checkpoint.every_seconds", "1.5h"}},
        Bad{"checkpoint: {every_seconds: -5}", {"checkpoint.every_seconds", "-5"}},
        Bad{"precision: fp16", {"precision: 'fp16'", "f32, bf16, fp8, mxfp8, fp4"}},
        Bad{"device: tpu", {"device: 'tpu'", "cpu, cuda"}},
        Bad{"schedule: {kind: step}", {"schedule.kind", "constant, linear, cosine, wsd"}},
        Bad{"schedule: {kind: wsd}\ntrain: {steps: 4}",
            {"schedule.decay_steps", "without a decay"}},
        Bad{"schedule: {kind: constant, decay_steps: 9}", {"schedule.decay_steps: 9", "constant"}},
        Bad{"schedule: {warmup_steps: 2000}", {"schedule.warmup_steps: 2000", "train.steps 1000"}},
        Bad{"schedule: {kind: wsd, decay_steps: 5, start_step: 3}",
            {"schedule.start_step: 3", "wsd"}},
        Bad{"schedule: {warmup_form: zero}", {"schedule.warmup_form", "from-zero", "between"}},
        Bad{"mlperf: {benchmark: gpt3}", {"train.target_loss", "ends at its target"}},
        Bad{"mlperf: {benchmark: gpt3, division: half}\ntrain: {target_loss: 2}",
            {"mlperf.division: 'half'", "closed, open"}},
        Bad{"mlperf: {benchmark: gpt3, status: fine}\ntrain: {target_loss: 2}",
            {"mlperf.status: 'fine'", "onprem"}},
        Bad{"schedule: {kind: wsd, warmup_steps: 500, decay_steps: 501}", {"exceeds train.steps"}},
        Bad{"optimizer: {beta1: 1}", {"optimizer.beta1: 1", "below 1"}},
        Bad{"optimizer: {learning_rate: fast}", {"optimizer.learning_rate", "'fast'"}},
        Bad{"optimizer: {learning_rate: -1}", {"optimizer.learning_rate: -1"}},
        Bad{"optimizer: {clip_norm: .inf}", {"optimizer.clip_norm"}},
        Bad{"optimizer: {master: bf16}", {"optimizer.master: 'bf16'", "f32, none"}},
        Bad{"optimizer: {master: none}\nprecision: f32", {"optimizer.master: none", "f32"}},
        Bad{"optimizer: {stochastic_rounding: true}",
            {"optimizer.stochastic_rounding: true", "master: none"}},
        Bad{"parallel: {tp: 5}", {"parallel.tp: 5", "model.heads 12", "nearest that does: 4"}},
        Bad{"parallel: {tp: 4}\nbatch: {micro: 1, sequence: 1022}",
            {"parallel.tp: 4", "1022 rows", "1024"}},
        Bad{"parallel: {zero: 4}", {"parallel.zero", "0 to 3"}},
        Bad{"parallel: {pp: 13}", {"parallel.pp: 13", "model.layers 12"}},
        Bad{"parallel: {ep: 2}", {"parallel.ep: 2", "mixture-of-experts"}},
        Bad{"parallel: {pp: 2, schedule: interleaved}", {"parallel.schedule", "vpp above 1"}},
        Bad{"parallel: {pp: 2, vpp: 2, schedule: zero-bubble}", {"parallel.vpp: 2"}},
        Bad{"parallel: {pp: 4, vpp: 3}\nbatch: {micro: 1, global: 6}",
            {"6 micro-batches", "nearest: 8"}},
        Bad{"parallel: {cp: 3}", {"batch.sequence: 1024", "2 * parallel.cp"}},
        Bad{"evaluate: {every_steps: 5, every_samples: 5}", {"exclude each other"}},
        Bad{"data: {train: a}\ntrain: {target_loss: 3}", {"data.validation", "train.target_loss"}},
        Bad{"data: {packing: tight}", {"data.packing: 'tight'", "none, documents"}},
        Bad{"data: {prepare: {source: t, xxh3: 12}}",
            {"data.prepare.xxh3: '12'", "16 hexadecimal digits"}},
        Bad{"data: {prepare: {source: t, holdout: 1}}", {"data.prepare.holdout: 1", "below 1"}},
        Bad{"data: {prepare: {source: t}}\ntrain: {target_loss: 3}",
            {"data.prepare.holdout: 0", "train.target_loss"}},
        Bad{"data: {train: [a, b]}", {"data.train.0", "mapping", "'a'"}},
        Bad{"data: {train: [{prefix: a, wieght: 1}]}",
            {"data.train.0.wieght", "did you mean 'weight'"}},
        Bad{"data: {train: [{weight: 1}]}", {"data.train.0.prefix: missing"}},
        Bad{"data: {train: [{prefix: a}, {prefix: b, weight: 0}]}",
            {"data.train.1.weight: 0", "above 0"}},
        Bad{"data: {validation: [{prefix: a, weight: .nan}]}", {"data.validation.0.weight"}},
        Bad{"data: {train: [{prefix: a}, {prefix: a}]}", {"data.train.1.prefix: 'a'", "twice"}},
        Bad{"data: {cache: s3://lab/cache}", {"data.cache: 's3://lab/cache'", "a local path"}},
        Bad{"data: {prepare: {source: a, folder: s3://lab/c}}", {"data.prepare.folder", "local"}},
        Bad{"checkpoint: {key_file: s3://lab/key}", {"checkpoint.key_file", "a local path"}},
        Bad{"run: {budget: {usd: 5}}", {"run.budget.usd", "usd_per_hour"}},
        Bad{"run: {budget: {kwh: 5}}", {"run.budget.kwh", "average_watts"}},
        Bad{"train: {seed: -1}", {"train.seed", "'-1'"}},
        Bad{"train: {steps: 1}\ntrain: {steps: 2}", {"train: given twice"}},
        Bad{"train: {steps: 5", {"test.yaml", "not YAML"}},
        Bad{"train:\n  steps: 5\n---\ntrain: {steps: 6}", {"test.yaml:", "second YAML document"}},
        Bad{"train:\n  steps: !!python/int 5", {"test.yaml:", "python/int' is unknown"}},
        Bad{"train: !mine {steps: 5}", {"test.yaml:", "the tag '!mine' is unknown"}}));

TEST(Recipe, BadOverridesAreNamed) {
  for (const char* assignment : {"train.steps", "=5", "train.steps.deep=5", "train.stesp=5"}) {
    EXPECT_THROW(parse("model: gpt2-124m\ntrain: {steps: 5}\n", {assignment}), Error) << assignment;
  }
}

// No line of the file has them.
TEST(Recipe, ErrorsOfOverridesNameTheOverride) {
  for (const char* assignment : {"train.steps=many", "train={steps: many}", "train.stesp=5",
                                 "tarin.steps=5", "data.train=[{prefix: a, wieght: 1}]"}) {
    try {
      parse("model: gpt2-124m\ntrain: {steps: 5}\n", {assignment});
      ADD_FAILURE() << assignment;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("override: ", 0), 0U) << error.what();
    }
  }
}

TEST(Recipe, NotADocumentOfKeys) {
  for (const char* text : {"", "just text", "- a\n- b\n", "{}", "\xff\xfe\x00garbage"}) {
    EXPECT_THROW(parse(text), Error) << text;
  }
}

TEST(Recipe, NarrowPrecisionsListWhatStaysWide) {
  const Recipe plain = recipe_of("gpt2-124m", {"precision=fp8"});
  EXPECT_EQ(plain.narrow, NarrowConfig{});
  const Recipe recipe =
      recipe_of("gpt2-124m", {"precision.compute=fp4", "precision.wide_first=1",
                              "precision.wide_last=2", "precision.stochastic_gradients=true"});
  EXPECT_EQ(recipe.precision, Precision::fp4);
  EXPECT_EQ(recipe.narrow, (NarrowConfig{1, 2, false, true}));
  EXPECT_TRUE(recipe.narrow.is_wide(0, 12) && recipe.narrow.is_wide(10, 12));
  EXPECT_FALSE(recipe.narrow.is_wide(1, 12) || recipe.narrow.is_wide(9, 12));
  EXPECT_EQ(parse_recipe(to_yaml(recipe), "again", {}, ""), recipe);
  const auto message = [](const std::vector<std::string>& overrides) -> std::string {
    try {
      recipe_of("gpt2-124m", overrides);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message({"precision.head=true"}).find("precision.head: has no meaning"),
            std::string::npos);
  EXPECT_NE(message({"precision.compute=fp8", "precision.wide_first=7", "precision.wide_last=6"})
                .find("exceed model.layers 12"),
            std::string::npos);
  EXPECT_NE(message({"precision.narrow=1"}).find("precision.narrow"), std::string::npos);
}

TEST(Recipe, UnsupportedRecipesAreRefusedByKey) {
  EXPECT_NO_THROW(check_executable(recipe_of("gpt2-124m")));
  EXPECT_NO_THROW(check_executable(recipe_of("llama3.1-8b", {"precision=f32"})));
  const auto refused = [](const std::string& name, const std::string& assignment,
                          const std::string& word, ErrorKind kind = ErrorKind::unsupported) {
    try {
      check_executable(recipe_of(name, {assignment}));
      ADD_FAILURE() << "accepted " << assignment;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  refused("gpt2-124m", "parallel.dp=2", "2 ranks", ErrorKind::usage);
  EXPECT_NO_THROW(check_executable(recipe_of("gpt2-124m", {"precision=fp8"})));
  EXPECT_NO_THROW(check_executable(recipe_of("gpt2-124m", {"precision=fp4"})));
  for (const char* axis : {"tp", "cp"}) {
    try {
      check_executable(
          recipe_of("gpt2-124m", {"precision=mxfp8", std::string("parallel.") + axis + "=2"}), 2);
      ADD_FAILURE() << "parts of tensors with scales of their own on " << axis;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("parallel.") + axis + " 2"),
                std::string::npos)
          << error.what();
    }
  }
  EXPECT_NO_THROW(
      check_executable(recipe_of("gpt2-124m", {"precision=fp8", "parallel.dp=2", "parallel.pp=2",
                                               "parallel.zero=1", "batch.micro=1"}),
                       4));
  refused("mixtral-8x7b", "precision=fp8", "8 experts");
  EXPECT_NO_THROW(check_executable(recipe_of("gpt2-124m", {"device=cuda"})));
  EXPECT_NO_THROW(check_executable(
      recipe_of("mixtral-8x7b", {"device=cuda", "parallel.dp=2", "parallel.ep=2"}), 2));
  EXPECT_NO_THROW(check_executable(recipe_of("gpt2-124m", {"device=cuda", "precision=fp8"})));
  EXPECT_NO_THROW(check_executable(recipe_of("mixtral-8x7b", {"optimizer.master=none"})));
  refused("deepseek-v3", "optimizer.master=f32", "model.prediction_layers: 1");
  refused("gpt2-124m", "parallel.zero=1", "zero");
  const auto gpipe = [](const char* zero) {
    return recipe_of("gpt2-124m", {"parallel.schedule=gpipe", "parallel.dp=2", zero,
                                   "batch.global=8", "batch.micro=1"});
  };
  EXPECT_NO_THROW(check_executable(gpipe("parallel.zero=1"), 2));
  EXPECT_THROW(check_executable(gpipe("parallel.zero=2"), 2), Error);
  refused("mixtral-8x7b", "parallel.tp=2", "2 ranks", ErrorKind::usage);
  EXPECT_NO_THROW(check_executable(recipe_of("mixtral-8x7b")));
  EXPECT_NO_THROW(check_executable(recipe_of("deepseek-v3", {"model.prediction_layers=0"})));
  refused("deepseek-v2", "precision=fp8", "latent");
}

}  // namespace
}  // namespace tutti::spec
