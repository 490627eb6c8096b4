// A recipe fully describes a run: YAML in, plain values out. Unknown keys, wrong types or units and
// impossible combinations throw usage naming the key, the value and what is accepted (with the
// nearest known key). Counts may carry suffixes ("10k", "1.5M"), times units ("1.5h").
//
// Sections are the members of Recipe: model, lora, distill, precision, device, deterministic,
// threads, recompute, offload, data, batch, optimizer, schedule, train, evaluate, checkpoint,
// parallel, telemetry, mlperf, run; keys are the members' names. Exceptions: train.target_loss, and
// parallel.schedule (1f1b, interleaved, zero-bubble, gpipe) for Mesh::pipeline. `model` is a
// preset's name, or a mapping with `preset` and keys that replace the preset's, or a mapping in
// full. In a model, head_dim, kv_heads and ffn (4 * hidden, gelu only) follow from hidden and heads
// when left out, also when only those two are replaced. `recompute` is none, selective or full, or
// a mapping {mode, parts: [norms, attention, core, mlp, activation] or default, layers: count or
// all}; parts alone mean selective. `offload.activations` is a count of layers or all. `precision`
// is a name, or a mapping of `compute`, the name, and the keys of NarrowConfig. `distill.model` is
// written as `model`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/model/config.h"
#include "tutti/spec/program/recompute.h"
#include "tutti/spec/recipe/distill.h"
#include "tutti/spec/recipe/lora.h"
#include "tutti/spec/recipe/offload.h"

namespace tutti::spec {

enum class Precision { f32, bf16, fp8, mxfp8, fp4 };  // program/narrow.h has those below 16 bits

// With a precision below 16 bits: which products stay in 16 bits, and how the others round.
struct NarrowConfig {
  bool operator==(const NarrowConfig&) const = default;
  int64_t wide_first = 0;  // blocks at the start of the model that stay in 16 bits
  int64_t wide_last = 0;   // and at its end
  bool head = false;       // the products of the head are narrow too
  // The gradients of the blocks' outputs round stochastically, without drift; else to nearest.
  bool stochastic_gradients = false;

  bool is_wide(int64_t layer, int64_t layers) const {
    return layer < wide_first || layer >= layers - wide_last;
  }
};

// What AdamW updates in runs below f32: f32 masters, of which the weights are rounded copies, or,
// with `none`, the bf16 weights themselves: 4 bytes less per parameter.
enum class Master { f32, none };

enum class ScheduleKind { constant, linear, cosine, wsd };

// The learning rate in a warm-up of W steps, as a share of the peak, at step s = 0, 1, ... :
//   inclusive  (s + 1) / W: the peak is that of its last step;
//   from-zero  s / W: nothing is learned in step 0 (Megatron-LM);
//   between    (s + 1) / (W + 1): neither zero nor the peak (NeMo).
enum class WarmupForm { inclusive, from_zero, between };

// Corpora and their shares of the samples. In YAML a prefix (PREFIX.bin, PREFIX.idx), or a list of
// {prefix, weight}; weights are positive (default 1) and relative to their sum.
struct CorpusShare {
  bool operator==(const CorpusShare&) const = default;
  std::string prefix;
  double weight = 1;
};
struct CorpusBlend {
  bool operator==(const CorpusBlend&) const = default;
  CorpusBlend() = default;
  CorpusBlend(const std::string& prefix) {  // NOLINT: one corpus is a blend
    if (!prefix.empty()) corpora.push_back({prefix, 1});
  }
  CorpusBlend(const char* prefix) : CorpusBlend(std::string(prefix)) {}  // NOLINT
  explicit CorpusBlend(std::vector<CorpusShare> shares) : corpora(std::move(shares)) {}

  bool empty() const { return corpora.empty(); }
  std::vector<CorpusShare> corpora;
};
// For people: "PREFIX", or "0.7 A + 0.3 B" with shares that add up to 1.
std::string blend_text(const CorpusBlend& blend);

// none: a sequence is a piece of the stream of all tokens, whatever documents begin in it.
// documents: a sequence holds whole documents (data/loader/packing.h) that do not see each other.
enum class Packing { none, documents };

// Text to make the corpora from, once, where data.train names none (data/corpus/prepared.h).
struct PrepareConfig {
  bool operator==(const PrepareConfig&) const = default;
  // A file of text or JSON lines, also .gz or .zst. A relative path: beside the recipe, else from
  // the current folder. Empty: nothing is prepared.
  std::string source;
  std::string xxh3;                // of that file, 16 hex digits; empty: whatever it holds
  std::string tokenizer = "byte";  // as of `tutti data prepare --tokenizer`
  double holdout = 0;              // share held out for validation, in [0, 1)
  std::string folder;              // where corpora are kept; empty: the user's cache

  bool enabled() const { return !source.empty(); }
};

inline constexpr int64_t kDefaultCacheBytes = int64_t{16} << 30;

struct DataConfig {
  bool operator==(const DataConfig&) const = default;
  CorpusBlend train;
  CorpusBlend validation;  // empty: no evaluation
  Packing packing = Packing::none;
  PrepareConfig prepare = {};
  // Where pieces of corpora from an object store are kept, and how many bytes of them at most;
  // empty: the user's cache. Does not change which tokens are read.
  std::string cache = {};
  int64_t cache_bytes = kDefaultCacheBytes;
};

struct BatchConfig {
  bool operator==(const BatchConfig&) const = default;
  int64_t global = 8;    // sequences per step
  int64_t micro = 0;     // sequences per forward; 0: as many of `global` as the rank has
  int64_t sequence = 0;  // tokens per sequence; 0: the model's context
};

struct OptimizerConfig {
  bool operator==(const OptimizerConfig&) const = default;
  double learning_rate = 6e-4;
  // > 0: learning_rate is that of this global batch; of another it is learning_rate * batch.global
  // / reference_batch. Resolving puts in the result, and 0.
  int64_t reference_batch = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // of matrices; vectors (norms, biases) never decay
  double clip_norm = 1.0;     // 0: no clipping
  Master master = Master::f32;
  // Without masters: updated weights round up or down at random, without drift, where rounding to
  // nearest would lose every change below half of their last bit.
  bool stochastic_rounding = false;
};

// learning rate over steps: linear warm-up, then the shape, down to minimum_ratio of the peak.
struct ScheduleConfig {
  bool operator==(const ScheduleConfig&) const = default;
  ScheduleKind kind = ScheduleKind::cosine;
  int64_t warmup_steps = 0;
  WarmupForm warmup_form = WarmupForm::inclusive;
  int64_t decay_steps = 0;  // cosine/linear: step at which the minimum is reached (0: train.steps);
                            // wsd: length of the final decay (0: a fifth of train.steps)
  double minimum_ratio = 0.1;
  int64_t start_step = 0;  // of the schedule, at which the run's first step is: that of the
                           // checkpoint which a continued pre-training starts from
  // > 0: warmup_steps, decay_steps and start_step are those of this global batch; of another they
  // are ceil(steps * reference_batch / batch.global). Resolving puts in the results, and 0.
  int64_t reference_batch = 0;
};

struct TrainConfig {
  bool operator==(const TrainConfig&) const = default;
  int64_t steps = 1000;
  uint64_t seed = 1;
  int64_t stop_after_nonfinite = 10;             // steps in a row
  std::optional<double> target_validation_loss;  // key: target_loss; stop when reached
};

struct EvaluateConfig {
  bool operator==(const EvaluateConfig&) const = default;
  int64_t every_steps = 0;    // 0: only at the end
  int64_t every_samples = 0;  // instead of every_steps; rounded up to whole steps
  int64_t skip_first = 0;     // of the regular evaluations, this many at the start are left out
  int64_t samples = 0;        // sequences per evaluation; 0: the whole validation set
};

struct CheckpointConfig {
  bool operator==(const CheckpointConfig&) const = default;
  int64_t every_steps = 0;     // 0: only at the end and on request
  double every_seconds = 600;  // 0: never by time
  int64_t keep_last = 2;
  int64_t keep_best = 1;  // by validation loss
  // A run or checkpoint whose parameters a new run starts from (fine-tuning, continued training):
  // step 0 and a fresh optimizer. Empty: parameters from the seed.
  std::string initialize_from;
  // Tensors are sealed with the key in this file (docs/formats.md, "Sealed checkpoints"). Empty:
  // who can read the files can read them.
  std::string key_file;
  // Checkpoints go into this folder of an object store, s3://BUCKET/PREFIX, under the name of the
  // run folder (docs/stores.md). Empty: into the run folder.
  std::string store;
  // After each checkpoint the model continues sample_prompt by at most so many tokens. 0: it does
  // not.
  int64_t sample_tokens = 0;
  std::string sample_prompt;
};

struct BudgetConfig {  // 0: no limit
  bool operator==(const BudgetConfig&) const = default;
  double hours = 0;
  double usd = 0;
  double kwh = 0;
  double usd_per_hour = 0;   // price of the machine, needed for usd
  double average_watts = 0;  // estimated draw of the machine, needed for kwh
};

// A run that counts: with a benchmark, the run writes RUN/mlperf.log by the rules of MLPerf
// Training (docs/mlperf.md), its clock starts before it touches data, and it cannot be resumed.
struct MlperfConfig {
  bool operator==(const MlperfConfig&) const = default;
  std::string benchmark;  // as in submission_benchmark: gpt3, llama31_405b, ...; empty: no log
  std::string division = "closed";       // or open
  std::string organization = "unnamed";  // submission_org
  std::string platform;                  // submission_platform; empty: this machine
  std::string status = "research";       // cloud, onprem, preview or research
  // Forget before the run: everything the system keeps of files in memory where it lets us, else
  // (and with clear_all false) the corpora of the run.
  bool clear_all = true;

  bool enabled() const { return !benchmark.empty(); }
};

struct RunConfig {
  bool operator==(const RunConfig&) const = default;
  std::string name;
  std::string owner;
  std::string project;
  std::string data_class;
  BudgetConfig budget;
};

struct TelemetryConfig {
  bool operator==(const TelemetryConfig&) const = default;
  int metrics_port = 0;                       // /metrics for Prometheus while the run lasts; 0: off
  std::string metrics_address = "127.0.0.1";  // to listen on; numeric, IPv4 or IPv6
  double gpu_every_seconds = 10;              // between polls of GPU metrics; 0: never
};

struct Recipe {
  bool operator==(const Recipe&) const = default;
  ModelConfig model;
  LoraConfig lora;
  DistillConfig distill;
  Precision precision = Precision::bf16;
  NarrowConfig narrow;
  std::string device = "cpu";
  // The same bits in every run of the recipe. Without it, kernels of an accelerator may add in any
  // order where that takes less memory and time: attention's backward in 16 bits (docs/step.md).
  bool deterministic = true;
  int threads = 0;  // 0: all cores
  Recompute recompute;
  Offload offload;
  DataConfig data;
  BatchConfig batch;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  TrainConfig train;
  EvaluateConfig evaluate;
  CheckpointConfig checkpoint;
  Mesh parallel;
  TelemetryConfig telemetry;
  MlperfConfig mlperf;
  RunConfig run;
};

// Reads recipe text; `origin` names it in errors; `overrides` are "a.b=value" strings; presets
// (`model: gpt2-124m` or `model: {preset: gpt2-124m, context: 512}`) come from `models_folder`, or,
// where the name ends in .yaml (`model: runs/base/model.yaml`), from that file.
// The result is validated and resolved (no zero that means "default" is left, except where the
// field's comment gives zero a meaning of its own). A parallel.dp that is not written, or that is
// `open` because the number of ranks decides on it (fit_mesh), is at least what parallel.ep needs:
// ep / gcd(ep, cp).
Recipe parse_recipe(const std::string& text, const std::string& origin,
                    const std::vector<std::string>& overrides, const std::string& models_folder,
                    bool dp_is_open = false);

// The keys of a YAML file as overrides, "a.b=value" in its order: a recipe's keys given beside it.
// Throws usage when `text` is not a mapping.
std::vector<std::string> read_overrides(const std::string& text, const std::string& origin);

// The preset `name`; throws not_found listing the known names (nearest first).
ModelConfig load_model_preset(const std::string& name, const std::string& models_folder);

// Every key, defaults included; parse_recipe(to_yaml(r)) == r.
std::string to_yaml(const Recipe& recipe);

// The keys of one model, as a preset holds them.
std::string to_yaml(const ModelConfig& model);

// Replaces zeros that mean a default (batch.micro, batch.sequence, schedule.decay_steps) and
// applies the reference batches.
void resolve(Recipe& recipe);

// Throws usage naming the first impossible value or combination of a resolved recipe.
void validate(const Recipe& recipe);

// Throws unsupported when this build can describe the run but not execute it on so many ranks,
// naming the key.
void check_executable(const Recipe& recipe, int64_t ranks = 1);

}  // namespace tutti::spec
