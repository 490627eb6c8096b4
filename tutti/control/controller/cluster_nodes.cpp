#include "tutti/control/controller/cluster_nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/control/audit/audit.h"
#include "tutti/control/ledger/account_table.h"

namespace tutti::control {
namespace {

const Node* find(const std::vector<Node>& nodes, const std::string& name) {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) { return node.name == name; });
  return found == nodes.end() ? nullptr : &*found;
}

bool is_same(const Node& a, const Node& b) {
  return a.cores == b.cores && a.gpus == b.gpus && a.up == b.up && a.reason == b.reason;
}

}  // namespace

void append_node_state(Database& database, const Node& node, int64_t now_ms) {
  append_audit(database, {now_ms,
                          kController,
                          node.up ? "node up" : "node down",
                          "node " + node.name,
                          true,
                          {{"reason", node.reason}}});
}

int64_t follow_cluster(Database& database, const std::vector<Node>& nodes, int64_t now_ms) {
  const std::vector<Node> known = all_nodes(database);
  std::vector<Node> changed;
  for (Node node : nodes) {
    const Node* old = find(known, node.name);
    if (old != nullptr) {
      node.drained = old->drained;
      if (old->drained && node.up) node.reason = old->reason;
    }
    if (old == nullptr || !is_same(*old, node)) changed.push_back(node);
  }
  for (Node node : known) {
    if (!node.up || find(nodes, node.name) != nullptr) continue;
    node.up = false;
    node.reason = "not one of the cluster's";
    changed.push_back(node);
  }
  if (changed.empty()) return 0;
  Transaction transaction(database);
  for (const Node& node : changed) {
    const Node* old = find(known, node.name);
    write_node(database, node);
    if (old != nullptr && old->up == node.up) continue;
    append_node_state(database, node, now_ms);
  }
  transaction.commit();
  return static_cast<int64_t>(changed.size());
}

}  // namespace tutti::control
