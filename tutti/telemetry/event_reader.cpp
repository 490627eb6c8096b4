#include "tutti/telemetry/event_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

namespace tutti::telemetry {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Members of one line; anything that is not as expected is as if it were absent.
class Members {
 public:
  explicit Members(const Json& json) : json_(json) {}

  void read(const char* key, std::string& value) const {
    const Json* found = find(key);
    if (found != nullptr && found->is_string()) value = found->get<std::string>();
  }
  void read(const char* key, bool& value) const {
    const Json* found = find(key);
    if (found != nullptr && found->is_boolean()) value = found->get<bool>();
  }
  // Through double where it was written as one; numbers outside int64 are not taken.
  void read(const char* key, int64_t& value) const {
    const Json* found = find(key);
    if (found == nullptr) return;
    const bool too_large = found->is_number_unsigned() &&
                           found->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
    if (found->is_number_integer() && !too_large) value = found->get<int64_t>();
    if (found->is_number_float() && std::abs(found->get<double>()) < 9e18) {
      value = static_cast<int64_t>(found->get<double>());
    }
  }
  void read(const char* key, double& value) const {
    const Json* found = find(key);
    if (found != nullptr && found->is_number()) value = found->get<double>();
  }
  void read(const char* key, std::optional<double>& value) const {
    const Json* found = find(key);
    if (found != nullptr && found->is_number()) value = found->get<double>();
  }
  void read(const char* key, Json& value) const {
    const Json* found = find(key);
    if (found != nullptr && found->is_object()) value = *found;
  }
  void read_any(const char* key, Json& value) const {
    if (const Json* found = find(key)) value = *found;
  }
  // NaN when absent.
  void measured(const char* key, double& value) const {
    value = kNone;
    read(key, value);
  }
  template <typename Action>
  void for_each(const char* key, const Action& action) const {
    const Json* found = find(key);
    if (found == nullptr || !found->is_array()) return;
    for (const Json& item : *found) action(item);
  }

 private:
  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  const Json& json_;
};

RunStarted read_run_started(const Members& in) {
  RunStarted event;
  in.read("run", event.run);
  in.read("name", event.name);
  in.read("parameters", event.parameters);
  in.read("steps", event.steps);
  in.read("first_step", event.first_step);
  in.read("tokens_per_step", event.tokens_per_step);
  in.read("flops_per_token", event.flops_per_token);
  in.read("gemm_peak_flops", event.gemm_peak_flops);
  in.read("target_loss", event.target_loss);
  in.read("mfu_formula", event.mfu_formula);
  in.read("details", event.details);
  Json teacher;
  in.read("teacher", teacher);
  if (teacher.is_object()) {
    const Members members(teacher);
    event.teacher.emplace();
    members.read("path", event.teacher->path);
    members.read("step", event.teacher->step);
    members.read("manifest_hash", event.teacher->manifest_hash);
    members.read("model", event.teacher->model);
    members.read("parameters", event.teacher->parameters);
    members.read("temperature", event.teacher->temperature);
    members.read("weight", event.teacher->weight);
  }
  return event;
}

MachineDescribed read_machine(const Members& in) {
  MachineDescribed event;
  in.read("host", event.host);
  in.read("cpu", event.cpu);
  in.read("cores", event.cores);
  in.read("threads", event.threads);
  in.read("clock_hz", event.clock_hz);
  in.read("memory_bytes", event.memory_bytes);
  in.read("instruction_set", event.instruction_set);
  in.read("precision", event.precision);
  in.read("gemm_peak_flops", event.gemm_peak_flops);
  in.read("nominal_peak_flops", event.nominal_peak_flops);
  in.read("version", event.version);
  in.read("executable_hash", event.executable_hash);
  in.read("libraries", event.libraries);
  return event;
}

CorpusDescribed read_corpus(const Members& in) {
  CorpusDescribed event;
  in.read("role", event.role);
  in.read("path", event.path);
  in.read("tokens", event.tokens);
  in.read("documents", event.documents);
  in.read("bytes", event.bytes);
  in.read("hash", event.hash);
  in.read("index_hash", event.index_hash);
  in.read("mask_hash", event.mask_hash);
  in.read("tokenizer", event.tokenizer);
  in.read("tokenizer_hash", event.tokenizer_hash);
  in.read("vocabulary_size", event.vocabulary_size);
  in.read("created", event.created);
  in.read("licence", event.licence);
  in.read("data_class", event.data_class);
  in.for_each("sources", [&](const Json& item) {
    if (item.is_object()) event.sources.push_back(corpus_source_from_json(item));
  });
  return event;
}

MemoryMeasured read_memory(const Members& in) {
  MemoryMeasured event;
  in.read("step", event.step);
  in.read("resident_bytes", event.resident_bytes);
  in.read("peak_resident_bytes", event.peak_resident_bytes);
  in.for_each("kinds", [&](const Json& item) {
    if (!item.is_object()) return;
    MemoryByKind part;
    Members(item).read("kind", part.kind);
    Members(item).read("bytes", part.bytes);
    event.kinds.push_back(std::move(part));
  });
  return event;
}

StepDone read_step(const Members& in) {
  StepDone event;
  in.read("step", event.step);
  in.read("micro_batches", event.micro_batches);
  in.read("tokens", event.tokens);
  in.measured("loss", event.loss);
  in.measured("gradient_norm", event.gradient_norm);
  in.measured("learning_rate", event.learning_rate);
  in.measured("step_seconds", event.step_seconds);
  in.measured("tokens_per_second", event.tokens_per_second);
  in.measured("mfu", event.mfu);
  in.measured("data_wait_seconds", event.data_wait_seconds);
  in.read("skipped", event.skipped);
  in.read("targets", event.targets);
  in.read("useful_share", event.useful_share);
  std::optional<double> ce_loss, kl_loss;
  in.read("ce_loss", ce_loss);
  in.read("kl_loss", kl_loss);
  if (ce_loss || kl_loss) event.parts = {ce_loss.value_or(kNone), kl_loss.value_or(kNone)};
  Json routing;
  in.read("routing", routing);
  if (routing.is_object()) {
    const Members members(routing);
    event.routing.emplace();
    members.measured("balance_loss", event.routing->balance_loss);
    members.measured("z_loss", event.routing->z_loss);
    members.measured("load_max_over_mean", event.routing->load_max_over_mean);
    members.measured("dropped_share", event.routing->dropped_share);
  }
  return event;
}

EvaluationDone read_evaluation(const Members& in) {
  EvaluationDone event;
  in.read("step", event.step);
  in.measured("loss", event.loss);
  in.read("tokens", event.tokens);
  in.measured("seconds", event.seconds);
  return event;
}

CheckpointSaved read_checkpoint(const Members& in) {
  CheckpointSaved event;
  in.read("step", event.step);
  in.read("path", event.path);
  in.read("bytes", event.bytes);
  in.read("stall_seconds", event.stall_seconds);
  in.read("write_seconds", event.write_seconds);
  return event;
}

CheckpointFailed read_checkpoint_failed(const Members& in) {
  CheckpointFailed event;
  in.read("step", event.step);
  in.read("message", event.message);
  return event;
}

TextGenerated read_text_generated(const Members& in) {
  TextGenerated event;
  in.read("step", event.step);
  in.read("prompt", event.prompt);
  in.read("text", event.text);
  in.read("tokens", event.tokens);
  in.measured("seconds", event.seconds);
  return event;
}

NonFinite read_non_finite(const Members& in) {
  NonFinite event;
  in.read("step", event.step);
  in.read("tensor", event.tensor);
  in.read("in_a_row", event.in_a_row);
  return event;
}

BudgetExceeded read_budget(const Members& in) {
  BudgetExceeded event;
  in.read("what", event.what);
  in.read("limit", event.limit);
  in.read("used", event.used);
  return event;
}

Message read_message(const Members& in) {
  Message event;
  std::string level;
  in.read("level", level);
  if (level == "warning") event.level = Level::warning;
  in.read("text", event.text);
  return event;
}

EventsLost read_events_lost(const Members& in) {
  EventsLost event;
  in.read("events", event.events);
  in.read("first_step", event.first_step);
  in.read("last_step", event.last_step);
  in.read("cause", event.cause);
  return event;
}

MlperfLine read_mlperf_line(const Members& in) {
  MlperfLine event;
  std::string type;
  in.read("type", type);
  if (type == "start") event.type = MlperfLine::Type::start;
  if (type == "end") event.type = MlperfLine::Type::end;
  in.read("key", event.key);
  in.read_any("value", event.value);
  in.read("metadata", event.metadata);
  in.read("file", event.file);
  in.read("line", event.line);
  return event;
}

GpuMeasured read_gpu(const Members& in) {
  GpuMeasured event;
  in.read("gpu", event.gpu);
  in.read("name", event.name);
  in.read("power_watts", event.power_watts);
  in.read("energy_joules", event.energy_joules);
  in.read("clock_hertz", event.clock_hertz);
  in.read("memory_clock_hertz", event.memory_clock_hertz);
  in.read("temperature_celsius", event.temperature_celsius);
  in.read("memory_used_bytes", event.memory_used_bytes);
  in.for_each("throttled", [&](const Json& reason) {
    if (reason.is_string()) event.throttled.push_back(reason.get<std::string>());
  });
  return event;
}

RunFinished read_run_finished(const Members& in) {
  RunFinished event;
  in.read("outcome", event.outcome);
  in.read("summary", event.summary);
  return event;
}

std::optional<decltype(Event::body)> read_body(std::string_view name, const Members& in) {
  if (name == "step_done") return read_step(in);
  if (name == "run_started") return read_run_started(in);
  if (name == "machine_described") return read_machine(in);
  if (name == "corpus_described") return read_corpus(in);
  if (name == "memory_measured") return read_memory(in);
  if (name == "evaluation_done") return read_evaluation(in);
  if (name == "checkpoint_saved") return read_checkpoint(in);
  if (name == "checkpoint_failed") return read_checkpoint_failed(in);
  if (name == "text_generated") return read_text_generated(in);
  if (name == "non_finite") return read_non_finite(in);
  if (name == "budget_exceeded") return read_budget(in);
  if (name == "gpu_measured") return read_gpu(in);
  if (name == "message") return read_message(in);
  if (name == "events_lost") return read_events_lost(in);
  if (name == "mlperf_line") return read_mlperf_line(in);
  if (name == "run_finished") return read_run_finished(in);
  return std::nullopt;
}

}  // namespace

CorpusSource corpus_source_from_json(const Json& object) {
  CorpusSource source;
  const Members in(object);
  in.read("path", source.path);
  in.read("bytes", source.bytes);
  in.read("documents", source.documents);
  in.read("tokens", source.tokens);
  in.read("hash", source.hash);
  in.read("licence", source.licence);
  in.read("data_class", source.data_class);
  return source;
}

std::optional<Event> event_from_json(const Json& line) {
  if (!line.is_object()) return std::nullopt;
  const Members in(line);
  std::string name;
  in.read("event", name);
  auto body = read_body(name, in);
  if (!body) return std::nullopt;
  Event event{0, std::move(*body)};
  in.read("wall_seconds", event.wall_seconds);
  return event;
}

ReadCount read_events(FileSystem& files, const std::string& path,
                      const std::function<void(const Event&)>& on_event,
                      const std::function<void(int64_t, int64_t)>& on_progress) {
  constexpr size_t kBytesBetweenProgress = size_t{1} << 20;
  ReadCount count;
  const auto file = files.map(path);
  const std::string_view bytes = file->bytes();
  size_t told = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string_view line = bytes.substr(at, end - at);
    const bool last = end == bytes.size();
    at = end + 1;
    if (on_progress && at - told >= kBytesBetweenProgress) {
      told = at;
      on_progress(static_cast<int64_t>(at), static_cast<int64_t>(bytes.size()));
    }
    if (line.empty()) continue;
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) {
      ++count.unreadable;
      count.last_line_cut = last;
      continue;
    }
    if (const std::optional<Event> event = event_from_json(json)) {
      ++count.events;
      on_event(*event);
    } else {
      ++count.unknown;
    }
  }
  return count;
}

}  // namespace tutti::telemetry
