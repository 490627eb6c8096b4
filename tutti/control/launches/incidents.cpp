#include "tutti/control/launches/incidents.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/control/audit/audit.h"
#include "tutti/control/controller/controller.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/account_table.h"

namespace tutti::control {
namespace {

constexpr int64_t kAvoidMs = 3'600'000;

}  // namespace

void price(Incident& incident, const Rate& rate) {
  const Spend spend = spend_of(rate, incident.lost_ms);
  incident.micro_usd = spend.micro_usd;
  incident.micro_kwh = spend.micro_kwh;
}

std::vector<std::string> nodes_to_avoid(Database& database, const Job& job, int64_t now_ms) {
  std::vector<std::string> avoid;
  for (const Incident& incident : incidents_of(database, job.id)) {
    const bool is_of_node =
        incident.cause == reason_name(Reason::node_lost) || incident.cause == kFaultCause;
    if (!is_of_node || incident.node.empty() || now_ms - incident.time_ms > kAvoidMs) continue;
    if (std::find(avoid.begin(), avoid.end(), incident.node) == avoid.end()) {
      avoid.push_back(incident.node);
    }
  }
  int64_t others = 0;
  for (const Node& node : all_nodes(database)) {
    const bool is_avoided = std::find(avoid.begin(), avoid.end(), node.name) != avoid.end();
    if (node.up && !node.drained && !is_avoided) ++others;
  }
  return others >= job.request.nodes ? avoid : std::vector<std::string>();
}

int64_t take_over_faults(Database& database, Launcher& launcher, const Job& job, int64_t now_ms) {
  const std::vector<Fault> faults = launcher.faults(key_of(job), job.request.run_folder);
  const bool is_new = std::any_of(faults.begin(), faults.end(), [&](const Fault& fault) {
    return !has_incident(database, job.id, fault.name);
  });
  if (!is_new) return 0;
  int64_t taken = 0;
  Transaction transaction(database);
  const auto launch = find_launch(database, job.id, job.generation);
  for (const Fault& fault : faults) {
    if (has_incident(database, job.id, fault.name)) continue;
    Incident incident;
    incident.job = job.id;
    incident.generation = job.generation;
    incident.time_ms = fault.time_ms;
    incident.node = fault.node;
    incident.cause = kFaultCause;
    incident.action = fault.action;
    incident.detail = fault.cause;
    incident.lost_ms = fault.lost_ms;
    incident.name = fault.name;
    incident.rank = fault.rank;
    incident.lost_steps = fault.lost_steps;
    if (launch) price(incident, launch->rate);
    add_incident(database, incident);
    append_audit(database, {now_ms,
                            kController,
                            "fault",
                            fmt::format("job {}", job.id),
                            true,
                            {{"rank", fault.rank},
                             {"node", fault.node},
                             {"cause", fault.cause},
                             {"action", fault.action}}});
    ++taken;
  }
  transaction.commit();
  return taken;
}

void follow_nodes(Database& database, const Job& job, const std::vector<std::string>& nodes) {
  const std::vector<Claim> claims = claims_of(database, job.id);
  // Nodes that died leave the list; the launch was given them, and they are on its account.
  if (nodes.size() != claims.size()) return;
  const bool is_same = std::all_of(claims.begin(), claims.end(), [&](const Claim& claim) {
    return std::find(nodes.begin(), nodes.end(), claim.node) != nodes.end();
  });
  if (is_same) return;
  const std::vector<Node> known = all_nodes(database);
  for (const std::string& name : nodes) {
    // One that is new to us: with the next round.
    if (std::none_of(known.begin(), known.end(), [&](const Node& n) { return n.name == name; })) {
      return;
    }
  }
  database.run("DELETE FROM claims WHERE job = ?", job.id);
  for (const std::string& name : nodes) {
    Claim claim = claims.front();
    claim.node = name;
    add_claim(database, claim);
  }
  if (auto launch = find_launch(database, job.id, job.generation)) {
    launch->nodes = nodes;
    write_launch(database, *launch);
  }
}

}  // namespace tutti::control
