#include "tutti/control/controller/node_health.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tutti/base/text.h"
#include "tutti/control/controller/cluster_nodes.h"
#include "tutti/control/ledger/account_table.h"

namespace tutti::control {
namespace {

constexpr const char* kUnhealthy = "unhealthy";

std::string what_failed(const NodeReport& report) {
  std::string reason = kUnhealthy;
  for (const NodeReport::Failure& failure : report.failures) {
    reason += (reason == kUnhealthy ? ": " : "; ") + failure.check + ": " + failure.detail;
  }
  return reason;
}

// As the node should be; the same where nothing changes.
Node followed(Node node, const std::vector<NodeReport>& reports) {
  if (node.drained) return node;  // takes no jobs, and the reason is the operator's
  const auto report = std::find_if(reports.begin(), reports.end(),
                                   [&](const NodeReport& each) { return each.node == node.name; });
  const bool is_there = report != reports.end();
  if (is_there && !report->problem.empty()) return node;
  const bool was_taken_out = is_out_by_check(node);
  if (is_there && !report->healthy) {
    if (node.up || was_taken_out) node.reason = what_failed(*report);
    node.up = false;
  } else if (was_taken_out) {
    node.up = true;
    node.reason.clear();
  }
  return node;
}

}  // namespace

bool is_out_by_check(const Node& node) {
  // An operator who resumes it takes the reason away.
  const bool has_own_reason = !node.reason.empty() && !starts_with(node.reason, kUnhealthy);
  return !node.up && !node.drained && !has_own_reason;
}

int64_t follow_health(Database& database, const std::vector<NodeReport>& reports, int64_t now_ms) {
  std::vector<Node> changed;
  for (const Node& node : all_nodes(database)) {
    Node now = followed(node, reports);
    if (now.up != node.up || now.reason != node.reason) changed.push_back(std::move(now));
  }
  if (changed.empty()) return 0;
  Transaction transaction(database);
  for (const Node& node : changed) {
    write_node(database, node);
    append_node_state(database, node, now_ms);
  }
  transaction.commit();
  return static_cast<int64_t>(changed.size());
}

}  // namespace tutti::control
