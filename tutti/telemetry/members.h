// The members of every event, once, under their names in JSON: writing (events.cpp) and reading
// back (event_reader.cpp) are visitors of these lists. A visitor has a function per kind of value:
//   value(key, x)      text, flag or whole number
//   number(key, x)     a double; null where JSON cannot hold it; as it was where a line lacks it
//   measured(key, x)   the same; NaN where a line lacks it
//   nullable(key, x)   an optional double; null without one
//   maybe(key, x)      an optional double; no member without one
//   object, any(key, x)  JSON: an object, or any value
//   texts(key, list)   a list of text
//   list(key, list)    a list of objects with members of their own
//   inner(key, x)      an optional object; no member without one
//   beside(x)          the members of an optional value, beside the others
//   choice(key, x, {{name, value}, ...})
#pragma once

#include <array>
#include <concepts>
#include <type_traits>
#include <utility>

#include "tutti/telemetry/events.h"

namespace tutti::telemetry {

template <typename X, typename T>
concept Is = std::same_as<std::remove_const_t<X>, T>;  // T, or const T

template <typename Event>
inline constexpr const char* kEventName = nullptr;  // in JSON

template <typename Visitor, Is<TeacherDescribed> X>
void members(Visitor& v, X& x) {
  v.value("path", x.path);
  v.value("step", x.step);
  v.value("manifest_hash", x.manifest_hash);
  v.value("model", x.model);
  v.value("parameters", x.parameters);
  v.number("temperature", x.temperature);
  v.number("weight", x.weight);
}

template <typename Visitor, Is<CorpusSource> X>
void members(Visitor& v, X& x) {
  v.value("path", x.path);
  v.value("bytes", x.bytes);
  v.value("documents", x.documents);
  v.value("tokens", x.tokens);
  v.value("hash", x.hash);
  v.value("licence", x.licence);
  v.value("data_class", x.data_class);
}

template <typename Visitor, Is<MemoryByKind> X>
void members(Visitor& v, X& x) {
  v.value("kind", x.kind);
  v.value("bytes", x.bytes);
}

template <typename Visitor, Is<Routing> X>
void members(Visitor& v, X& x) {
  v.measured("balance_loss", x.balance_loss);
  v.measured("z_loss", x.z_loss);
  v.measured("load_max_over_mean", x.load_max_over_mean);
  v.measured("dropped_share", x.dropped_share);
}

template <typename Visitor, Is<LossParts> X>
void members(Visitor& v, X& x) {
  v.measured("ce_loss", x.cross_entropy);
  v.measured("kl_loss", x.divergence);
}

template <>
inline constexpr const char* kEventName<RunStarted> = "run_started";
template <typename Visitor, Is<RunStarted> X>
void members(Visitor& v, X& x) {
  v.value("run", x.run);
  v.value("name", x.name);
  v.value("parameters", x.parameters);
  v.value("steps", x.steps);
  v.value("first_step", x.first_step);
  v.value("tokens_per_step", x.tokens_per_step);
  v.number("flops_per_token", x.flops_per_token);
  v.number("gemm_peak_flops", x.gemm_peak_flops);
  v.nullable("target_loss", x.target_loss);
  v.value("mfu_formula", x.mfu_formula);
  v.inner("teacher", x.teacher);
  v.object("details", x.details);
}

template <>
inline constexpr const char* kEventName<MachineDescribed> = "machine_described";
template <typename Visitor, Is<MachineDescribed> X>
void members(Visitor& v, X& x) {
  v.value("host", x.host);
  v.value("cpu", x.cpu);
  v.value("cores", x.cores);
  v.value("threads", x.threads);
  v.number("clock_hz", x.clock_hz);
  v.value("memory_bytes", x.memory_bytes);
  v.value("instruction_set", x.instruction_set);
  v.value("precision", x.precision);
  v.number("gemm_peak_flops", x.gemm_peak_flops);
  v.number("nominal_peak_flops", x.nominal_peak_flops);
  v.value("version", x.version);
  v.value("executable_hash", x.executable_hash);
  v.value("libraries", x.libraries);
}

template <>
inline constexpr const char* kEventName<CorpusDescribed> = "corpus_described";
template <typename Visitor, Is<CorpusDescribed> X>
void members(Visitor& v, X& x) {
  v.value("role", x.role);
  v.value("path", x.path);
  v.value("tokens", x.tokens);
  v.value("documents", x.documents);
  v.value("bytes", x.bytes);
  v.value("hash", x.hash);
  v.value("index_hash", x.index_hash);
  v.value("mask_hash", x.mask_hash);
  v.value("tokenizer", x.tokenizer);
  v.value("tokenizer_hash", x.tokenizer_hash);
  v.value("vocabulary_size", x.vocabulary_size);
  v.value("created", x.created);
  v.value("licence", x.licence);
  v.value("data_class", x.data_class);
  v.list("sources", x.sources);
}

template <>
inline constexpr const char* kEventName<MemoryMeasured> = "memory_measured";
template <typename Visitor, Is<MemoryMeasured> X>
void members(Visitor& v, X& x) {
  v.value("step", x.step);
  v.value("resident_bytes", x.resident_bytes);
  v.value("peak_resident_bytes", x.peak_resident_bytes);
  v.list("kinds", x.kinds);
}

template <>
inline constexpr const char* kEventName<StepDone> = "step_done";
template <typename Visitor, Is<StepDone> X>
void members(Visitor& v, X& x) {
  v.value("step", x.step);
  v.value("micro_batches", x.micro_batches);
  v.value("tokens", x.tokens);
  v.measured("loss", x.loss);
  v.measured("gradient_norm", x.gradient_norm);
  v.measured("learning_rate", x.learning_rate);
  v.measured("step_seconds", x.step_seconds);
  v.measured("tokens_per_second", x.tokens_per_second);
  v.measured("mfu", x.mfu);
  v.measured("data_wait_seconds", x.data_wait_seconds);
  v.value("skipped", x.skipped);
  v.value("targets", x.targets);
  v.number("useful_share", x.useful_share);
  v.beside(x.parts);
  v.inner("routing", x.routing);
}

template <>
inline constexpr const char* kEventName<EvaluationDone> = "evaluation_done";
template <typename Visitor, Is<EvaluationDone> X>
void members(Visitor& v, X& x) {
  v.value("step", x.step);
  v.measured("loss", x.loss);
  v.value("tokens", x.tokens);
  v.measured("seconds", x.seconds);
}

template <>
inline constexpr const char* kEventName<CheckpointSaved> = "checkpoint_saved";
template <typename Visitor, Is<CheckpointSaved> X>
void members(Visitor& v, X& x) {
  v.value("step", x.step);
  v.value("path", x.path);
  v.value("bytes", x.bytes);
  v.number("stall_seconds", x.stall_seconds);
  v.number("write_seconds", x.write_seconds);
}

template <>
inline constexpr const char* kEventName<CheckpointFailed> = "checkpoint_failed";
template <typename Visitor, Is<CheckpointFailed> X>
void members(Visitor& v, X& x) {
  v.value("step", x.step);
  v.value("message", x.message);
}

template <>
inline constexpr const char* kEventName<TextGenerated> = "text_generated";
template <typename Visitor, Is<TextGenerated> X>
void members(Visitor& v, X& x) {
  v.value("step", x.step);
  v.value("prompt", x.prompt);
  v.value("text", x.text);
  v.value("tokens", x.tokens);
  v.measured("seconds", x.seconds);
}

template <>
inline constexpr const char* kEventName<NonFinite> = "non_finite";
template <typename Visitor, Is<NonFinite> X>
void members(Visitor& v, X& x) {
  v.value("step", x.step);
  v.value("tensor", x.tensor);
  v.value("in_a_row", x.in_a_row);
}

template <>
inline constexpr const char* kEventName<BudgetExceeded> = "budget_exceeded";
template <typename Visitor, Is<BudgetExceeded> X>
void members(Visitor& v, X& x) {
  v.value("what", x.what);
  v.number("limit", x.limit);
  v.number("used", x.used);
}

template <>
inline constexpr const char* kEventName<GpuMeasured> = "gpu_measured";
template <typename Visitor, Is<GpuMeasured> X>
void members(Visitor& v, X& x) {
  v.value("gpu", x.gpu);
  v.value("name", x.name);
  v.maybe("power_watts", x.power_watts);
  v.maybe("energy_joules", x.energy_joules);
  v.maybe("clock_hertz", x.clock_hertz);
  v.maybe("memory_clock_hertz", x.memory_clock_hertz);
  v.maybe("temperature_celsius", x.temperature_celsius);
  v.maybe("memory_used_bytes", x.memory_used_bytes);
  v.texts("throttled", x.throttled);
}

template <>
inline constexpr const char* kEventName<Message> = "message";
template <typename Visitor, Is<Message> X>
void members(Visitor& v, X& x) {
  v.choice("level", x.level,
           std::array{std::pair{"info", Level::info}, std::pair{"warning", Level::warning}});
  v.value("text", x.text);
}

template <>
inline constexpr const char* kEventName<EventsLost> = "events_lost";
template <typename Visitor, Is<EventsLost> X>
void members(Visitor& v, X& x) {
  v.value("events", x.events);
  v.value("first_step", x.first_step);
  v.value("last_step", x.last_step);
  v.value("cause", x.cause);
}

template <>
inline constexpr const char* kEventName<MlperfLine> = "mlperf_line";
template <typename Visitor, Is<MlperfLine> X>
void members(Visitor& v, X& x) {
  using Type = MlperfLine::Type;
  v.choice("type", x.type,
           std::array{std::pair{"point", Type::point}, std::pair{"start", Type::start},
                      std::pair{"end", Type::end}});
  v.value("key", x.key);
  v.any("value", x.value);
  v.object("metadata", x.metadata);
  v.value("file", x.file);
  v.value("line", x.line);
}

template <>
inline constexpr const char* kEventName<RunFinished> = "run_finished";
template <typename Visitor, Is<RunFinished> X>
void members(Visitor& v, X& x) {
  v.value("outcome", x.outcome);
  v.object("summary", x.summary);
}

}  // namespace tutti::telemetry
