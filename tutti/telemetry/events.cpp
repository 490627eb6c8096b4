#include "tutti/telemetry/events.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/base/clock.h"

namespace tutti::telemetry {
namespace {

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

const char* name_of(const RunStarted& /*event*/) { return "run_started"; }
const char* name_of(const MachineDescribed& /*event*/) { return "machine_described"; }
const char* name_of(const CorpusDescribed& /*event*/) { return "corpus_described"; }
const char* name_of(const MemoryMeasured& /*event*/) { return "memory_measured"; }
const char* name_of(const StepDone& /*event*/) { return "step_done"; }
const char* name_of(const EvaluationDone& /*event*/) { return "evaluation_done"; }
const char* name_of(const CheckpointSaved& /*event*/) { return "checkpoint_saved"; }
const char* name_of(const CheckpointFailed& /*event*/) { return "checkpoint_failed"; }
const char* name_of(const TextGenerated& /*event*/) { return "text_generated"; }
const char* name_of(const NonFinite& /*event*/) { return "non_finite"; }
const char* name_of(const BudgetExceeded& /*event*/) { return "budget_exceeded"; }
const char* name_of(const GpuMeasured& /*event*/) { return "gpu_measured"; }
const char* name_of(const Message& /*event*/) { return "message"; }
const char* name_of(const EventsLost& /*event*/) { return "events_lost"; }
const char* name_of(const MlperfLine& /*event*/) { return "mlperf_line"; }
const char* name_of(const RunFinished& /*event*/) { return "run_finished"; }

void add_members(Json& out, const RunStarted& event) {
  out["run"] = event.run;
  out["name"] = event.name;
  out["parameters"] = event.parameters;
  out["steps"] = event.steps;
  out["first_step"] = event.first_step;
  out["tokens_per_step"] = event.tokens_per_step;
  out["flops_per_token"] = number(event.flops_per_token);
  out["gemm_peak_flops"] = number(event.gemm_peak_flops);
  out["target_loss"] = event.target_loss ? number(*event.target_loss) : Json(nullptr);
  out["mfu_formula"] = event.mfu_formula;
  if (event.teacher) {
    const TeacherDescribed& teacher = *event.teacher;
    out["teacher"] = Json{{"path", teacher.path},
                          {"step", teacher.step},
                          {"manifest_hash", teacher.manifest_hash},
                          {"model", teacher.model},
                          {"parameters", teacher.parameters},
                          {"temperature", teacher.temperature},
                          {"weight", teacher.weight}};
  }
  out["details"] = event.details;
}

void add_members(Json& out, const MachineDescribed& event) {
  out["host"] = event.host;
  out["cpu"] = event.cpu;
  out["cores"] = event.cores;
  out["threads"] = event.threads;
  out["clock_hz"] = number(event.clock_hz);
  out["memory_bytes"] = event.memory_bytes;
  out["instruction_set"] = event.instruction_set;
  out["precision"] = event.precision;
  out["gemm_peak_flops"] = number(event.gemm_peak_flops);
  out["nominal_peak_flops"] = number(event.nominal_peak_flops);
  out["version"] = event.version;
  out["executable_hash"] = event.executable_hash;
  out["libraries"] = event.libraries;
}

void add_members(Json& out, const CorpusDescribed& event) {
  out["role"] = event.role;
  out["path"] = event.path;
  out["tokens"] = event.tokens;
  out["documents"] = event.documents;
  out["bytes"] = event.bytes;
  out["hash"] = event.hash;
  out["index_hash"] = event.index_hash;
  out["mask_hash"] = event.mask_hash;
  out["tokenizer"] = event.tokenizer;
  out["tokenizer_hash"] = event.tokenizer_hash;
  out["vocabulary_size"] = event.vocabulary_size;
  out["created"] = event.created;
  out["licence"] = event.licence;
  out["data_class"] = event.data_class;
  out["sources"] = Json::array();
  for (const CorpusSource& source : event.sources) {
    out["sources"].push_back({{"path", source.path},
                              {"bytes", source.bytes},
                              {"documents", source.documents},
                              {"tokens", source.tokens},
                              {"hash", source.hash},
                              {"licence", source.licence},
                              {"data_class", source.data_class}});
  }
}

void add_members(Json& out, const MemoryMeasured& event) {
  out["step"] = event.step;
  out["resident_bytes"] = event.resident_bytes;
  out["peak_resident_bytes"] = event.peak_resident_bytes;
  out["kinds"] = Json::array();
  for (const MemoryByKind& part : event.kinds) {
    out["kinds"].push_back({{"kind", part.kind}, {"bytes", part.bytes}});
  }
}

void add_members(Json& out, const StepDone& event) {
  out["step"] = event.step;
  out["micro_batches"] = event.micro_batches;
  out["tokens"] = event.tokens;
  out["loss"] = number(event.loss);
  out["gradient_norm"] = number(event.gradient_norm);
  out["learning_rate"] = number(event.learning_rate);
  out["step_seconds"] = number(event.step_seconds);
  out["tokens_per_second"] = number(event.tokens_per_second);
  out["mfu"] = number(event.mfu);
  out["data_wait_seconds"] = number(event.data_wait_seconds);
  out["skipped"] = event.skipped;
  out["targets"] = event.targets;
  out["useful_share"] = number(event.useful_share);
  if (event.parts) {
    out["ce_loss"] = number(event.parts->cross_entropy);
    out["kl_loss"] = number(event.parts->divergence);
  }
  if (event.routing) {
    out["routing"] = Json{{"balance_loss", number(event.routing->balance_loss)},
                          {"z_loss", number(event.routing->z_loss)},
                          {"load_max_over_mean", number(event.routing->load_max_over_mean)},
                          {"dropped_share", number(event.routing->dropped_share)}};
  }
}

void add_members(Json& out, const EvaluationDone& event) {
  out["step"] = event.step;
  out["loss"] = number(event.loss);
  out["tokens"] = event.tokens;
  out["seconds"] = number(event.seconds);
}

void add_members(Json& out, const CheckpointSaved& event) {
  out["step"] = event.step;
  out["path"] = event.path;
  out["bytes"] = event.bytes;
  out["stall_seconds"] = number(event.stall_seconds);
  out["write_seconds"] = number(event.write_seconds);
}

void add_members(Json& out, const CheckpointFailed& event) {
  out["step"] = event.step;
  out["message"] = event.message;
}

void add_members(Json& out, const TextGenerated& event) {
  out["step"] = event.step;
  out["prompt"] = event.prompt;
  out["text"] = event.text;
  out["tokens"] = event.tokens;
  out["seconds"] = number(event.seconds);
}

void add_members(Json& out, const NonFinite& event) {
  out["step"] = event.step;
  out["tensor"] = event.tensor;
  out["in_a_row"] = event.in_a_row;
}

void add_members(Json& out, const BudgetExceeded& event) {
  out["what"] = event.what;
  out["limit"] = number(event.limit);
  out["used"] = number(event.used);
}

void add_members(Json& out, const GpuMeasured& event) {
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) out[name] = number(*value);
  };
  out["gpu"] = event.gpu;
  out["name"] = event.name;
  add("power_watts", event.power_watts);
  add("energy_joules", event.energy_joules);
  add("clock_hertz", event.clock_hertz);
  add("memory_clock_hertz", event.memory_clock_hertz);
  add("temperature_celsius", event.temperature_celsius);
  add("memory_used_bytes", event.memory_used_bytes);
  out["throttled"] = event.throttled;
}

void add_members(Json& out, const Message& event) {
  out["level"] = event.level == Level::warning ? "warning" : "info";
  out["text"] = event.text;
}

void add_members(Json& out, const EventsLost& event) {
  out["events"] = event.events;
  out["first_step"] = event.first_step;
  out["last_step"] = event.last_step;
  out["cause"] = event.cause;
}

void add_members(Json& out, const MlperfLine& event) {
  out["type"] = event.type == MlperfLine::Type::point   ? "point"
                : event.type == MlperfLine::Type::start ? "start"
                                                        : "end";
  out["key"] = event.key;
  out["value"] = event.value;
  out["metadata"] = event.metadata;
  out["file"] = event.file;
  out["line"] = event.line;
}

void add_members(Json& out, const RunFinished& event) {
  out["outcome"] = event.outcome;
  out["summary"] = event.summary;
}

}  // namespace

std::string text_of(const EventsLost& gap) {
  return fmt::format("{} events are missing, of steps {} to {}: {}", gap.events, gap.first_step,
                     gap.last_step, gap.cause);
}

const char* event_name(const Event& event) {
  return std::visit([](const auto& body) { return name_of(body); }, event.body);
}

Json to_json(const Event& event) {
  Json out = Json::object();
  out["event"] = event_name(event);
  out["time"] = format_utc(event.wall_seconds);
  out["wall_seconds"] = std::round(event.wall_seconds * 1e3) / 1e3;
  std::visit([&](const auto& body) { add_members(out, body); }, event.body);
  return out;
}

}  // namespace tutti::telemetry
