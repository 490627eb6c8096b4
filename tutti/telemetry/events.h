// What a run records about itself: typed events. Each becomes one JSON line (docs/formats.md), and
// sinks draw, log or plot from the same values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tutti/base/json.h"

namespace tutti::telemetry {

// The model that a run learns from beside its data.
struct TeacherDescribed {
  std::string path;  // of its checkpoint
  int64_t step = 0;
  std::string manifest_hash;  // XXH3 of that checkpoint's manifest.json
  std::string model;          // its name
  int64_t parameters = 0;
  double temperature = 0;
  double weight = 0;
};

struct RunStarted {
  std::string run;  // run folder
  std::string name;
  int64_t parameters = 0;
  int64_t steps = 0;       // planned, of the whole run
  int64_t first_step = 0;  // > 0 when resumed
  int64_t tokens_per_step = 0;
  double flops_per_token = 0;  // model FLOPs, forward and backward
  double gemm_peak_flops = 0;  // measured; 0 when not
  std::optional<double> target_loss;
  std::string mfu_formula;  // FLOPs per token that `mfu` counts
  // Machine, owner, memory; `recipe`, resolved, as YAML; `initial_weights` (path, manifest_xxh3) of
  // a session that began with those of another run.
  Json details = Json::object();
  std::optional<TeacherDescribed> teacher;
};

// Where the run runs: once per session of the run.
struct MachineDescribed {
  std::string host;
  std::string cpu;
  int64_t cores = 0;  // that the process may use
  int64_t threads = 0;
  double clock_hz = 0;  // nominal; 0 when unknown
  int64_t memory_bytes = 0;
  std::string instruction_set;       // chosen for the kernels
  std::string precision;             // computed in
  double gemm_peak_flops = 0;        // measured; 0 when not
  double nominal_peak_flops = 0;     // cores x clock x FLOPs per cycle; 0 when unknown
  std::string version;               // of Tutti, with the commit
  std::string executable_hash = {};  // XXH3 of the program's file; empty when unknown
  std::string libraries = {};        // loaded with it: "NAME ID, NAME ID, ..." (base/binary.h)
};

// One of the texts that a corpus was made of. Counts are 0 where the corpus does not say.
struct CorpusSource {
  std::string path;
  int64_t bytes = 0;
  int64_t documents = 0;
  int64_t tokens = 0;
  std::string hash, licence, data_class;
};

// Data lineage: a corpus that the run reads, as its PREFIX.meta.json describes it.
struct CorpusDescribed {
  std::string role;  // "training" or "validation"
  std::string path;  // prefix
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t bytes = 0;  // of tokens
  std::string hash;   // XXH3 of the tokens; empty when the corpus has no meta file
  std::string tokenizer;
  std::string tokenizer_hash;  // XXH3 of PREFIX.tokenizer.json
  int64_t vocabulary_size = 0;
  std::string created, licence, data_class;
  std::vector<CorpusSource> sources;
  std::string index_hash = {};  // XXH3 of PREFIX.idx
  std::string mask_hash = {};   // XXH3 of PREFIX.mask; empty without one
};

struct MemoryByKind {
  std::string kind;  // of arena: "weights", "activations", ...
  int64_t bytes = 0;
};

// Emitted when training starts, after the first step and at the end of a session.
struct MemoryMeasured {
  int64_t step = 0;
  int64_t resident_bytes = 0;  // of the process, as the system counts it
  int64_t peak_resident_bytes = 0;
  std::vector<MemoryByKind> kinds;  // as described and allocated
};

// What the driver of a GPU reported during the run. Unreported values are absent.
struct GpuMeasured {
  std::string gpu;   // its address on the bus, "0000:1a:00.0"
  std::string name;  // as its maker calls it
  std::optional<double> power_watts;
  std::optional<double> energy_joules;  // since the driver was loaded
  std::optional<double> clock_hertz;    // of its multiprocessors
  std::optional<double> memory_clock_hertz;
  std::optional<double> temperature_celsius;
  std::optional<double> memory_used_bytes;  // of all processes
  std::vector<std::string> throttled;       // why its clocks are lower than they could be
};

// What the routers of a model with experts did in a step.
struct Routing {
  double balance_loss = 0;        // mean over sequences and routed layers, before its weight; k of
                                  // top_k when even
  double z_loss = 0;              // mean over tokens and routed layers, before its weight
  double load_max_over_mean = 0;  // of the layer whose busiest expert has most; 1 when even
  double dropped_share = 0;       // of the copies, beyond the capacity
};

// What the loss of a run with a teacher is made of (spec/recipe/distill.h): loss = (1 - weight) *
// cross_entropy + weight * divergence.
struct LossParts {
  double cross_entropy = 0;  // against the targets; JSON ce_loss
  double divergence = 0;     // from the teacher, T^2 KL; JSON kl_loss
};

struct StepDone {
  int64_t step = 0;    // 1 for the first
  int64_t tokens = 0;  // of the whole run so far, without padding
  double loss = 0;     // what is optimised
  double gradient_norm = 0;
  double learning_rate = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  double mfu = 0;  // of the measured GEMM peak; 0 when not measured
  double data_wait_seconds = 0;
  bool skipped = false;       // non-finite: parameters left as they were
  int64_t micro_batches = 1;  // accumulated into this step
  int64_t targets = 0;        // of this step, that are neither padding nor masked
  double useful_share = 1;    // of this step's rows: not padding
  std::optional<Routing> routing;
  std::optional<LossParts> parts;
};

struct EvaluationDone {
  int64_t step = 0;
  double loss = 0;
  int64_t tokens = 0;
  double seconds = 0;
};

struct CheckpointSaved {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;
  double stall_seconds = 0;  // time training waited
  double write_seconds = 0;
};

struct CheckpointFailed {
  int64_t step = 0;
  std::string message;
};

// What the model writes after a checkpoint of this step.
struct TextGenerated {
  int64_t step = 0;
  std::string prompt;
  std::string text;  // that follows it
  int64_t tokens = 0;
  double seconds = 0;
};

struct NonFinite {
  int64_t step = 0;
  std::string tensor;  // first parameter with a non-finite gradient
  int64_t in_a_row = 0;
};

struct BudgetExceeded {
  std::string what;  // "hours", "usd" or "kwh"
  double limit = 0;
  double used = 0;
};

enum class Level { info, warning };
struct Message {
  Level level = Level::info;
  std::string text;
};

// A gap of a log: it could not be written for a while. Written where the gap is, once it can be.
struct EventsLost {
  int64_t events = 0;  // that are missing here
  int64_t first_step = 0;
  int64_t last_step = 0;  // of the steps among them
  std::string cause;
};
std::string text_of(const EventsLost& gap);  // "12 events are missing, of steps 30 to 41: ..."

// A line of an MLPerf Training log (telemetry/sinks/mlperf_log.h writes them).
struct MlperfLine {
  enum class Type { point, start, end };
  Type type = Type::point;
  std::string key;
  Json value;                      // null for intervals
  Json metadata = Json::object();  // beside file and line
  std::string file;                // of the source that says so
  int64_t line = 0;
};

struct RunFinished {
  std::string outcome;  // "target_reached", "steps_done", ...
  Json summary = Json::object();
};

struct Event {
  double wall_seconds = 0;  // since 1970-01-01 UTC; filled in by Telemetry::emit
  std::variant<RunStarted, MachineDescribed, CorpusDescribed, MemoryMeasured, StepDone,
               EvaluationDone, CheckpointSaved, CheckpointFailed, TextGenerated, NonFinite,
               BudgetExceeded, GpuMeasured, Message, EventsLost, MlperfLine, RunFinished>
      body;
};

const char* event_name(const Event& event);  // "step_done", ...

// {"event": "step_done", "time": "2026-01-31T12:00:00Z", "wall_seconds": 1769860800.123, ...members
// under their own names...}. Numbers that JSON cannot hold (NaN, infinities) become null.
Json to_json(const Event& event);

}  // namespace tutti::telemetry
