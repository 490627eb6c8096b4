#include "tutti/base/clock.h"
#include "tutti/control/jobs/job_table.h"

namespace tutti::control {

void add_incident(Database& database, const Incident& incident) {
  // A report that was taken over before is not taken over again; NULLs are all different.
  Query insert = database.query(
      "INSERT OR IGNORE INTO incidents (job, generation, time_ms, node, cause, action, detail, "
      "lost_ms, name, rank, lost_steps, micro_usd, micro_kwh) VALUES (?, ?, ?, ?, ?, ?, ?, ?, "
      "nullif(?, ''), ?, ?, ?, ?)",
      incident.job, incident.generation, incident.time_ms, incident.node, incident.cause,
      incident.action, incident.detail, incident.lost_ms, incident.name, incident.rank,
      incident.lost_steps, incident.micro_usd, incident.micro_kwh);
  insert.next();
}

namespace {

Incident incident_from(Query& query) {
  Incident incident;
  incident.id = query.integer(0);
  incident.job = query.integer(1);
  incident.generation = query.integer(2);
  incident.time_ms = query.integer(3);
  incident.node = query.text(4);
  incident.cause = query.text(5);
  incident.action = query.text(6);
  incident.detail = query.text(7);
  incident.lost_ms = query.integer(8);
  incident.name = query.text(9);
  incident.rank = query.integer(10);
  incident.lost_steps = query.integer(11);
  incident.micro_usd = query.integer(12);
  incident.micro_kwh = query.integer(13);
  return incident;
}

}  // namespace

std::optional<Incident> find_incident(Database& database, int64_t id) {
  Query query = database.query("SELECT * FROM incidents WHERE id = ?", id);
  if (!query.next()) return std::nullopt;
  return incident_from(query);
}

std::vector<Incident> incidents_of(Database& database, int64_t job) {
  std::vector<Incident> incidents;
  Query query = database.query("SELECT * FROM incidents WHERE job = ? ORDER BY id", job);
  while (query.next()) incidents.push_back(incident_from(query));
  return incidents;
}

std::vector<Incident> incidents_after(Database& database, int64_t id) {
  std::vector<Incident> incidents;
  Query query = database.query("SELECT * FROM incidents WHERE id > ? ORDER BY id", id);
  while (query.next()) incidents.push_back(incident_from(query));
  return incidents;
}

bool has_incident(Database& database, int64_t job, const std::string& name) {
  return database.query("SELECT 1 FROM incidents WHERE job = ? AND name = ?", job, name).next();
}

Json to_json(const Incident& incident) {
  Json json = {{"incident", incident.id},
               {"job", incident.job},
               {"launch", incident.generation},
               {"time", format_utc(static_cast<double>(incident.time_ms) / 1000)},
               {"node", incident.node},
               {"cause", incident.cause},
               {"action", incident.action},
               {"detail", incident.detail},
               {"lost_seconds", static_cast<double>(incident.lost_ms) / 1000},
               {"lost_steps", incident.lost_steps},
               {"lost_usd", static_cast<double>(incident.micro_usd) / 1e6},
               {"lost_kwh", static_cast<double>(incident.micro_kwh) / 1e6}};
  json["rank"] = incident.rank < 0 ? Json() : Json(incident.rank);
  return json;
}

}  // namespace tutti::control
