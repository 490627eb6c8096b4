#include "tutti/control/controller/controller_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "tutti/control/audit/audit.h"
#include "tutti/control/controller/node_report.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/ledger/spend.h"

namespace tutti::control {
namespace {

constexpr double kJoulesPerKwh = 3.6e6;
constexpr double kSecondsPerHour = 3600;

using Labels = prometheus::Labels;

class Metrics {
 public:
  void gauge(const char* name, const char* help, double value, const Labels& labels = {}) {
    prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add(labels).Set(value);
  }
  void counter(const char* name, const char* help, double value, const Labels& labels = {}) {
    prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add(labels).Increment(
        value);
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(registry_.Collect()); }

 private:
  prometheus::Registry registry_{prometheus::Registry::InsertBehavior::Merge};
};

void add_jobs(Metrics& metrics, Database& database, int64_t now_ms) {
  std::map<std::string, int64_t> counts;
  std::map<std::string, int64_t> causes;
  for (int state = 0; state < kJobStates; ++state) {
    counts[state_name(static_cast<JobState>(state))] = 0;
  }
  {
    Query query = database.query("SELECT state, count(*) FROM jobs GROUP BY state");
    while (query.next()) {
      counts[state_name(static_cast<JobState>(query.integer(0)))] = query.integer(1);
    }
  }
  {
    Query query = database.query("SELECT cause, count(*) FROM incidents GROUP BY cause");
    while (query.next()) causes[query.text(0)] = query.integer(1);
  }
  // Held ones are not expected to start.
  Query oldest = database.query(
      "SELECT min(submitted_ms) FROM jobs WHERE state = ? AND held = 0 AND " JOB_IS_LIVE,
      static_cast<int>(JobState::pending));
  const std::optional<int64_t> since = oldest.next() ? oldest.maybe_integer(0) : std::nullopt;
  const int64_t waiting_since = std::min(now_ms, since.value_or(now_ms));
  for (const auto& [state, count] : counts) {
    metrics.gauge("tutti_jobs", "Jobs by state", static_cast<double>(count), {{"state", state}});
  }
  metrics.gauge("tutti_oldest_wait_seconds",
                "How long the job has waited that has waited longest, held ones apart",
                static_cast<double>(now_ms - waiting_since) / 1000);
  for (const auto& [cause, count] : causes) {
    metrics.counter("tutti_incidents_total", "Faults of launches by cause",
                    static_cast<double>(count), {{"cause", cause}});
  }
}

void add_nodes(Metrics& metrics, Database& database, FileSystem& files,
               const ControlFolder& folder) {
  std::map<std::string, int64_t> counts = {{"up", 0}, {"drained", 0}, {"down", 0}};
  const std::vector<Claim> claims = all_claims(database);
  for (const Node& node : all_nodes(database)) {
    ++counts[!node.up ? "down" : node.drained ? "drained" : "up"];
    int64_t used = 0;
    for (const Claim& claim : claims) used += claim.node == node.name ? claim.cores : 0;
    metrics.gauge("tutti_node_cores", "Cores of a node", static_cast<double>(node.cores),
                  {{"node", node.name}});
    metrics.gauge("tutti_node_cores_in_use", "Cores of a node that jobs have",
                  static_cast<double>(used), {{"node", node.name}});
  }
  for (const auto& [state, count] : counts) {
    metrics.gauge("tutti_nodes", "Nodes by state", static_cast<double>(count), {{"state", state}});
  }
  for (const NodeReport& report : read_node_reports(files, folder.health())) {
    if (!report.problem.empty()) continue;
    metrics.gauge("tutti_node_healthy", "Whether the node passed its last check",
                  report.healthy ? 1 : 0, {{"node", report.node}});
    metrics.gauge("tutti_node_checked_seconds", "When that was, in seconds since 1970",
                  report.wall_seconds, {{"node", report.node}});
  }
}

void add_projects(Metrics& metrics, Database& database) {
  std::map<std::string, Spend> all = spent_by_projects(database);
  for (const Project& project : all_projects(database)) {
    const Labels labels = {{"project", project.name}};
    const Spend spent = all[project.name];
    metrics.counter("tutti_project_cost_usd_total", "What its jobs have cost",
                    from_micro(spent.micro_usd), labels);
    metrics.counter("tutti_project_energy_joules_total", "Energy of its jobs at the machine",
                    from_micro(spent.micro_kwh) * kJoulesPerKwh, labels);
    metrics.counter("tutti_project_node_seconds_total", "Time of nodes that its jobs have had",
                    from_micro(spent.node_microhours) * kSecondsPerHour, labels);
    metrics.counter("tutti_project_co2e_kg_total", "Carbon of that energy",
                    from_micro(spent.micro_kg), labels);
    const Budget& budget = project.budget;
    if (budget.micro_usd) {
      metrics.gauge("tutti_project_budget_usd", "Its limit", from_micro(*budget.micro_usd), labels);
    }
    if (budget.micro_kwh) {
      metrics.gauge("tutti_project_budget_joules", "Its limit",
                    from_micro(*budget.micro_kwh) * kJoulesPerKwh, labels);
    }
    if (budget.node_microhours) {
      metrics.gauge("tutti_project_budget_node_seconds", "Its limit",
                    from_micro(*budget.node_microhours) * kSecondsPerHour, labels);
    }
  }
}

}  // namespace

std::string controller_metrics(Database& database, FileSystem& files, const ControlFolder& folder,
                               bool controller_runs, int64_t now_ms) {
  Metrics metrics;
  metrics.gauge("tutti_controller_up", "Whether a controller runs", controller_runs ? 1 : 0);
  add_jobs(metrics, database, now_ms);
  add_nodes(metrics, database, files, folder);
  add_projects(metrics, database);
  metrics.counter("tutti_audit_lines_total", "Lines in the audit log",
                  static_cast<double>(audit_head(database).seq));
  return metrics.text();
}

}  // namespace tutti::control
