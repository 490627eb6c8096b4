#include "tutti/telemetry/sinks/mlperf_log.h"

#include <fmt/format.h>

#include <cmath>

namespace tutti::telemetry {
namespace {

const char* type_name(MlperfLine::Type type) {
  switch (type) {
    case MlperfLine::Type::start: return "INTERVAL_START";
    case MlperfLine::Type::end: return "INTERVAL_END";
    case MlperfLine::Type::point: break;
  }
  return "POINT_IN_TIME";
}

// As Python's json.dumps writes it; readers of MLPerf logs take NaN and infinities for what they
// are.
void append_spaced(std::string& out, const Json& value) {
  if (value.is_object()) {
    out += '{';
    for (auto it = value.begin(); it != value.end(); ++it) {
      if (it != value.begin()) out += ", ";
      out += dump_json(Json(it.key())) + ": ";
      append_spaced(out, it.value());
    }
    out += '}';
  } else if (value.is_array()) {
    out += '[';
    for (size_t i = 0; i < value.size(); ++i) {
      if (i > 0) out += ", ";
      append_spaced(out, value[i]);
    }
    out += ']';
  } else if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    out += std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
  } else {
    out += dump_json(value);
  }
}

LineFile new_log(FileSystem& files, const std::string& path) {
  files.create(path)->close();
  return {files, path};
}

}  // namespace

std::string format_mlperf_line(const MlperfLine& line, double wall_seconds) {
  Json metadata = {{"file", line.file}, {"lineno", line.line}};
  metadata.update(line.metadata);
  const Json record = {{"namespace", ""},
                       {"time_ms", static_cast<int64_t>(std::llround(wall_seconds * 1e3))},
                       {"event_type", type_name(line.type)},
                       {"key", line.key},
                       {"value", line.value},
                       {"metadata", metadata}};
  std::string text = ":::MLLOG ";
  append_spaced(text, record);
  return text;
}

MlperfLogSink::MlperfLogSink(FileSystem& files, const std::string& path)
    : file_(new_log(files, path)) {}

void MlperfLogSink::write(const Event& event) {
  const auto* line = std::get_if<MlperfLine>(&event.body);
  if (line == nullptr) return;
  file_.append(format_mlperf_line(*line, event.wall_seconds) + "\n");
}

}  // namespace tutti::telemetry
