// Results of a node's health checks, each against a threshold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/catalog/node_kinds.h"
#include "tutti/node/topology.h"

namespace tutti::node {

// busy: it missed its limit while others used the node, so that it says nothing about the node.
// note: measured, but there is nothing to hold it against. skipped: this node has nothing to
// measure, or it may not be; the detail says what.
enum class HealthStatus { pass, fail, busy, note, skipped };
const char* health_status_name(HealthStatus status);

enum class Bound { none, at_least, at_most };

struct HealthCheck {
  std::string name;  // "f32_product"
  std::string unit;  // as the catalog writes it: "tflops", "ratio", "count"
  HealthStatus status = HealthStatus::skipped;
  double value = 0;
  Bound bound = Bound::none;
  double threshold = 0;
  std::optional<double> reference;  // of a healthy node of this kind
  int64_t repeats = 0;              // measurements behind the value
  double spread = 0;                // of these: relative_spread (base/quantile.h)
  std::string detail;               // for people: what it was, and what to look at
  bool is_figure = false;           // a figure of the kind: belongs into its entry of the catalog
};

HealthCheck skipped(std::string name, std::string unit, std::string detail);
// Against a limit that holds everywhere.
HealthCheck limited(std::string name, double value, std::string unit, Bound bound, double threshold,
                    std::string detail);
// A figure, against what the kind says of it, if it does: a value worse than that by more than the
// kind's tolerance, or else `tolerance` (relative), fails.
HealthCheck compared(std::string name, double value, std::string unit, Bound bound,
                     const catalog::NodeKind* kind, double tolerance, std::string detail);

// A check that has failed, and for which others on the node may be the reason; any other as it is.
HealthCheck excused(HealthCheck check, const std::string& reason);

enum class HealthState { healthy, busy, unhealthy };
const char* health_state_name(HealthState state);
// Unhealthy where one has failed; else busy where one is.
HealthState state_of(const std::vector<HealthCheck>& checks);

struct NodeHealth {
  std::string node;
  double at_wall_seconds = 0;
  double seconds = 0;  // the checks took
  std::string kind;    // what it was held against; empty: limits that hold everywhere
  NodeTopology topology;
  std::vector<TopologyDifference> differences;
  std::vector<HealthCheck> checks;

  bool healthy() const;  // no check failed; it may be busy
  HealthState state() const { return state_of(checks); }
};

Json to_json(const HealthCheck& check);
Json to_json(const NodeHealth& health);
// Throws corrupt naming `origin` and the member.
NodeHealth parse_node_health(const Json& json, const std::string& origin);

// "0.412 TFLOP/s", "97.4%", "830 us".
std::string health_value_text(double value, std::string_view unit);

}  // namespace tutti::node
