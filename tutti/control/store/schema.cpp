#include "tutti/control/store/schema.h"

#include <fmt/format.h>

#include <iterator>

#include "tutti/base/error.h"

namespace tutti::control {
namespace {

// "TUTC": marks our files (PRAGMA application_id).
constexpr int64_t kApplicationId = 0x54555443;

// Times are milliseconds since 1970-01-01 UTC; amounts whole millionths (control/ledger/spend.h).
// An absent limit is NULL. As of version 1; kSteps has what came since.
constexpr const char* kTables = R"(
CREATE TABLE users (
  name TEXT PRIMARY KEY, created_ms INTEGER NOT NULL, disabled INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE projects (
  name TEXT PRIMARY KEY, created_ms INTEGER NOT NULL, regions TEXT NOT NULL DEFAULT '',
  max_nodes INTEGER, max_cores INTEGER, max_jobs INTEGER,
  budget_node_microhours INTEGER, budget_core_microhours INTEGER, budget_gpu_microhours INTEGER,
  budget_micro_usd INTEGER, budget_micro_kwh INTEGER
) WITHOUT ROWID;

CREATE TABLE members (
  user TEXT NOT NULL REFERENCES users, project TEXT NOT NULL, role TEXT NOT NULL,
  PRIMARY KEY (user, project)
) WITHOUT ROWID;

CREATE TABLE tokens (
  id TEXT PRIMARY KEY, user TEXT NOT NULL REFERENCES users, salt TEXT NOT NULL,
  hash TEXT NOT NULL, created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
  revoked INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE site (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE nodes (
  name TEXT PRIMARY KEY, cores INTEGER NOT NULL, gpus INTEGER NOT NULL,
  up INTEGER NOT NULL, drained INTEGER NOT NULL, reason TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

CREATE TABLE jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  user TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL, client_key TEXT,
  request TEXT NOT NULL,
  state INTEGER NOT NULL, reason INTEGER NOT NULL, detail TEXT NOT NULL,
  priority INTEGER NOT NULL, held INTEGER NOT NULL, stop INTEGER NOT NULL,
  generation INTEGER NOT NULL, attempts INTEGER NOT NULL, requeues INTEGER NOT NULL,
  submitted_ms INTEGER NOT NULL, eligible_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL, elapsed_ms INTEGER NOT NULL, told_ms INTEGER NOT NULL,
  run_ms INTEGER NOT NULL, exit_code INTEGER,
  UNIQUE (user, client_key)
);
CREATE INDEX jobs_live ON jobs (state) WHERE state < 5 OR state = 13;

CREATE TABLE claims (
  job INTEGER NOT NULL REFERENCES jobs, generation INTEGER NOT NULL,
  node TEXT NOT NULL REFERENCES nodes, cores INTEGER NOT NULL, gpus INTEGER NOT NULL,
  PRIMARY KEY (job, node)
) WITHOUT ROWID;

CREATE TABLE launches (
  job INTEGER NOT NULL REFERENCES jobs, generation INTEGER NOT NULL,
  nodes TEXT NOT NULL, rate TEXT NOT NULL, started_ms INTEGER NOT NULL,
  ended_ms INTEGER, elapsed_ms INTEGER NOT NULL, exit_code INTEGER, outcome TEXT NOT NULL,
  PRIMARY KEY (job, generation)
) WITHOUT ROWID;

CREATE TABLE ledger (
  job INTEGER NOT NULL REFERENCES jobs, generation INTEGER NOT NULL, month TEXT NOT NULL,
  project TEXT NOT NULL, user TEXT NOT NULL, energy TEXT NOT NULL,
  node_microhours INTEGER NOT NULL, core_microhours INTEGER NOT NULL,
  gpu_microhours INTEGER NOT NULL, micro_usd INTEGER NOT NULL, micro_kwh INTEGER NOT NULL,
  micro_kg INTEGER NOT NULL, micro_liters INTEGER NOT NULL,
  PRIMARY KEY (job, generation, month)
) WITHOUT ROWID;
CREATE INDEX ledger_project ON ledger (project, month);

CREATE TABLE totals (
  scope TEXT NOT NULL, name TEXT NOT NULL,
  node_microhours INTEGER NOT NULL, core_microhours INTEGER NOT NULL,
  gpu_microhours INTEGER NOT NULL, micro_usd INTEGER NOT NULL, micro_kwh INTEGER NOT NULL,
  micro_kg INTEGER NOT NULL, micro_liters INTEGER NOT NULL,
  PRIMARY KEY (scope, name)
) WITHOUT ROWID;

CREATE TABLE incidents (
  id INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL REFERENCES jobs,
  generation INTEGER NOT NULL, time_ms INTEGER NOT NULL, node TEXT NOT NULL,
  cause TEXT NOT NULL, action TEXT NOT NULL, detail TEXT NOT NULL, lost_ms INTEGER NOT NULL,
  name TEXT, rank INTEGER NOT NULL, lost_steps INTEGER NOT NULL,
  micro_usd INTEGER NOT NULL, micro_kwh INTEGER NOT NULL,
  UNIQUE (job, name)
);

CREATE TABLE audit (seq INTEGER PRIMARY KEY, line TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TABLE audit_head (
  one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, hash TEXT NOT NULL,
  exported INTEGER NOT NULL, exported_bytes INTEGER NOT NULL
);
INSERT INTO audit_head VALUES (1, 0, '', 0, 0);
)";

// What the scheduler looks at in a request. Taken out of it once, when it is written: reading every
// request of a long line takes most of the time of a round.
#define SET_ASKED(request)                       \
  "asked_nodes = json_extract(" request          \
  ", '$.nodes'), "                               \
  "asked_cores = json_extract(" request          \
  ", '$.cores'), "                               \
  "asked_gpus = json_extract(" request           \
  ", '$.gpus'), "                                \
  "deadline_ms = json_extract(" request          \
  ", '$.deadline_ms'), "                         \
  "time_limit_ms = json_extract(" request        \
  ", '$.time_limit_ms'), "                       \
  "preemptible = json_extract(" request          \
  ", '$.preemptible'), "                         \
  "forecast_ms = json_extract(" request          \
  ", '$.forecast.milliseconds'), "               \
  "data_class = json_extract(" request           \
  ", '$.data_class'), "                          \
  "data_source = coalesce(json_extract(" request \
  ", '$.data_source'), ''), "                    \
  "unlabelled_data = coalesce(json_extract(" request ", '$.unlabelled_data'), '')"

// From version 1 to 2, and so on.
constexpr const char* kSteps[] = {
    // The token that issued this one; empty: none did, or it was not recorded.
    "ALTER TABLE tokens ADD COLUMN parent TEXT NOT NULL DEFAULT ''",
    // What views and submissions look for among many jobs.
    R"(
CREATE INDEX jobs_project ON jobs (project, id);
CREATE INDEX jobs_in_line ON jobs (id, state, project, user) WHERE state < 5 OR state = 13;
CREATE INDEX jobs_ended ON jobs (id, project, user) WHERE NOT (state < 5 OR state = 13);
CREATE INDEX jobs_run ON jobs (json_extract(request, '$.run_folder'));
)",
    R"(
ALTER TABLE jobs ADD COLUMN asked_nodes INTEGER NOT NULL DEFAULT 1;
ALTER TABLE jobs ADD COLUMN asked_cores INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN asked_gpus INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN deadline_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN time_limit_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN preemptible INTEGER NOT NULL DEFAULT 1;
ALTER TABLE jobs ADD COLUMN forecast_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN data_class TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN data_source TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN unlabelled_data TEXT NOT NULL DEFAULT '';
UPDATE jobs SET )" SET_ASKED("request") R"(;
CREATE TRIGGER jobs_asked AFTER INSERT ON jobs BEGIN
  UPDATE jobs SET )" SET_ASKED("new.request") R"( WHERE id = new.id;
END;
CREATE TRIGGER jobs_asked_anew AFTER UPDATE OF request ON jobs BEGIN
  UPDATE jobs SET )" SET_ASKED("new.request") R"( WHERE id = new.id;
END;
CREATE INDEX jobs_scheduled ON jobs (
  id, user, project, state, reason, detail, priority, held, stop, generation, attempts, requeues,
  submitted_ms, eligible_ms, started_ms, ended_ms, elapsed_ms, told_ms, run_ms, exit_code,
  asked_nodes, asked_cores, asked_gpus, deadline_ms, time_limit_ms, preemptible, forecast_ms,
  data_class, data_source, unlabelled_data
) WHERE state < 5 OR state = 13;
)",
    // Deployments, and whether a project deploys approved checkpoints only.
    R"(
ALTER TABLE projects ADD COLUMN approved_only INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_deployed ON jobs (id) WHERE json_extract(request, '$.deployment.name') IS NOT NULL;
)",
};
static_assert(std::size(kSteps) == kSchemaVersion - 1);

int64_t number_of(Database& database, const char* pragma) {
  Query query = database.query(pragma);
  return query.next() ? query.integer(0) : 0;
}

}  // namespace

void prepare_schema(Database& database) {
  const auto version = [&] { return number_of(database, "PRAGMA user_version"); };
  if (version() == kSchemaVersion &&
      number_of(database, "PRAGMA application_id") == kApplicationId) {
    return;
  }
  Transaction transaction(database);
  int64_t found = version();
  const int64_t application = number_of(database, "PRAGMA application_id");
  if (found == 0 && application == 0 &&
      number_of(database, "SELECT count(*) FROM sqlite_master") == 0) {
    database.execute(kTables);
    database.execute("PRAGMA application_id = 1414878275");
    found = 1;
  } else if (application != kApplicationId) {
    fail(ErrorKind::corrupt, "'{}' is not a database of Tutti's control plane", database.path());
  }
  if (found < 1 || found > kSchemaVersion) {
    fail(ErrorKind::unsupported, "'{}' has schema version {}; this program supports {}",
         database.path(), found, kSchemaVersion);
  }
  for (; found < kSchemaVersion; ++found) database.execute(kSteps[found - 1]);
  database.execute(fmt::format("PRAGMA user_version = {}", kSchemaVersion).c_str());
  transaction.commit();
}

}  // namespace tutti::control
