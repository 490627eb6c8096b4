#include "tutti/node/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/units.h"

namespace tutti::node {
namespace {

constexpr std::pair<HealthStatus, const char*> kStatuses[] = {{HealthStatus::pass, "pass"},
                                                              {HealthStatus::fail, "fail"},
                                                              {HealthStatus::busy, "busy"},
                                                              {HealthStatus::note, "note"},
                                                              {HealthStatus::skipped, "skipped"}};
constexpr std::pair<Bound, const char*> kBounds[] = {
    {Bound::none, "none"}, {Bound::at_least, "at_least"}, {Bound::at_most, "at_most"}};

template <typename Enum, size_t N>
Enum named(const std::pair<Enum, const char*> (&names)[N], const std::string& name,
           const std::string& origin) {
  for (const auto& [value, text] : names) {
    if (name == text) return value;
  }
  fail(ErrorKind::corrupt, "{}: '{}' is not a value of a health report", origin, name);
}

template <typename Enum, size_t N>
const char* name_of(const std::pair<Enum, const char*> (&names)[N], Enum value) {
  for (const auto& [known, text] : names) {
    if (known == value) return text;
  }
  return "?";
}

// Written so that a value that is not a number fails.
bool holds(double value, Bound bound, double threshold) {
  if (bound == Bound::at_least) return value >= threshold;
  return bound == Bound::none || value <= threshold;
}

HealthCheck parse_check(const Json& json, const std::string& origin) {
  HealthCheck check;
  check.name = json_get<std::string>(json, "name", origin);
  check.unit = json_get<std::string>(json, "unit", origin);
  check.status = named(kStatuses, json_get<std::string>(json, "status", origin), origin);
  check.value = json_get<double>(json, "value", origin);
  check.bound = named(kBounds, json_get<std::string>(json, "bound", origin), origin);
  check.threshold = json_get<double>(json, "threshold", origin);
  if (json.contains("reference")) check.reference = json_get<double>(json, "reference", origin);
  check.repeats = json_get<int64_t>(json, "repeats", origin);
  check.spread = json_get<double>(json, "spread", origin);
  check.detail = json_get<std::string>(json, "detail", origin);
  check.is_figure = json_get<bool>(json, "figure", origin);
  return check;
}

}  // namespace

const char* health_status_name(HealthStatus status) { return name_of(kStatuses, status); }

HealthCheck skipped(std::string name, std::string unit, std::string detail) {
  HealthCheck check;
  check.name = std::move(name);
  check.unit = std::move(unit);
  check.detail = std::move(detail);
  return check;
}

HealthCheck limited(std::string name, double value, std::string unit, Bound bound, double threshold,
                    std::string detail) {
  HealthCheck check = skipped(std::move(name), std::move(unit), std::move(detail));
  check.value = value;
  check.bound = bound;
  check.threshold = threshold;
  check.status = holds(value, bound, threshold) ? HealthStatus::pass : HealthStatus::fail;
  return check;
}

HealthCheck compared(std::string name, double value, std::string unit, Bound bound,
                     const catalog::NodeKind* kind, double tolerance, std::string detail) {
  HealthCheck check = skipped(std::move(name), std::move(unit), std::move(detail));
  check.value = value;
  check.is_figure = true;
  check.status = HealthStatus::note;
  if (kind == nullptr) return check;
  const auto figure = kind->figures.find(check.name + "_" + check.unit);
  if (figure == kind->figures.end()) return check;
  const double allowed = figure->second.tolerance.value_or(tolerance);
  check.reference = figure->second.value;
  check.bound = bound;
  check.threshold =
      figure->second.value * (bound == Bound::at_least ? 1 - allowed : 1 / (1 - allowed));
  check.status = holds(value, bound, check.threshold) ? HealthStatus::pass : HealthStatus::fail;
  return check;
}

HealthCheck excused(HealthCheck check, const std::string& reason) {
  if (check.status != HealthStatus::fail) return check;
  check.status = HealthStatus::busy;
  check.detail += (check.detail.empty() ? "" : "; ") + reason;
  return check;
}

const char* health_state_name(HealthState state) {
  switch (state) {
    case HealthState::healthy: return "healthy";
    case HealthState::busy: return "busy";
    case HealthState::unhealthy: break;
  }
  return "unhealthy";
}

HealthState state_of(const std::vector<HealthCheck>& checks) {
  const auto any = [&](HealthStatus status) {
    return std::any_of(checks.begin(), checks.end(),
                       [&](const HealthCheck& check) { return check.status == status; });
  };
  if (any(HealthStatus::fail)) return HealthState::unhealthy;
  return any(HealthStatus::busy) ? HealthState::busy : HealthState::healthy;
}

bool NodeHealth::healthy() const { return state() != HealthState::unhealthy; }

Json to_json(const HealthCheck& check) {
  Json json = {{"name", check.name},
               {"unit", check.unit},
               {"status", health_status_name(check.status)},
               {"value", check.value},
               {"bound", name_of(kBounds, check.bound)},
               {"threshold", check.threshold},
               {"repeats", check.repeats},
               {"spread", check.spread},
               {"detail", check.detail},
               {"figure", check.is_figure}};
  if (check.reference) json["reference"] = *check.reference;
  return json;
}

Json to_json(const NodeHealth& health) {
  Json checks = Json::array();
  for (const HealthCheck& check : health.checks) checks.push_back(to_json(check));
  Json differences = Json::array();
  for (const TopologyDifference& difference : health.differences) {
    differences.push_back({{"what", difference.what},
                           {"expected", difference.expected},
                           {"found", difference.found}});
  }
  return {{"node", health.node},
          {"healthy", health.healthy()},
          {"state", health_state_name(health.state())},
          {"time", format_utc(health.at_wall_seconds)},
          {"wall_seconds", health.at_wall_seconds},
          {"seconds", health.seconds},
          {"kind", health.kind},
          {"checks", std::move(checks)},
          {"differences", std::move(differences)},
          {"topology", to_json(health.topology)}};
}

NodeHealth parse_node_health(const Json& json, const std::string& origin) {
  NodeHealth health;
  health.node = json_get<std::string>(json, "node", origin);
  health.at_wall_seconds = json_get<double>(json, "wall_seconds", origin);
  health.seconds = json_get<double>(json, "seconds", origin);
  health.kind = json_get<std::string>(json, "kind", origin);
  for (const Json& check : json_get<Json>(json, "checks", origin)) {
    health.checks.push_back(parse_check(check, origin));
  }
  for (const Json& difference : json_get<Json>(json, "differences", origin)) {
    health.differences.push_back({json_get<std::string>(difference, "what", origin),
                                  json_get<std::string>(difference, "expected", origin),
                                  json_get<std::string>(difference, "found", origin)});
  }
  health.topology = parse_topology(json_get<Json>(json, "topology", origin), origin);
  return health;
}

std::string health_value_text(double value, std::string_view unit) {
  if (unit == "ratio") return fmt::format("{:.1f}%", 100 * value);
  if (unit == "count") return fmt::format("{:g}", value);
  if (unit == "tflops") return fmt::format("{:.3g} TFLOP/s", value);
  if (unit == "gigabytes_per_second") return fmt::format("{:.3g} GB/s", value);
  if (unit == "gigahertz") return fmt::format("{:.3f} GHz", value);
  if (unit == "microseconds") return format_seconds(value * 1e-6);
  return fmt::format("{:.4g} {}", value, unit);
}

}  // namespace tutti::node
