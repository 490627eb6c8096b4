#include "tutti/control/ledger/account_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/control/audit/digest.h"

namespace tutti::control {
namespace {

constexpr const char* kTokenPrefix = "tutti";

#define PROJECT_COLUMNS                                                                 \
  "name, regions, max_nodes, max_cores, max_jobs, budget_node_microhours, "             \
  "budget_core_microhours, budget_gpu_microhours, budget_micro_usd, budget_micro_kwh, " \
  "approved_only"

Project project_from(const Query& row) {
  Project project;
  project.name = row.text(0);
  const std::string regions = row.text(1);
  for (const std::string_view region : split(regions, ',')) {
    if (!region.empty()) project.regions.emplace_back(region);
  }
  project.max_nodes = row.maybe_integer(2);
  project.max_cores = row.maybe_integer(3);
  project.max_jobs = row.maybe_integer(4);
  int column = 5;
  for (const BudgetPart& part : budget_parts()) {
    project.budget.*part.limit = row.maybe_integer(column++);
  }
  project.approved_only = row.integer(column) != 0;
  return project;
}

TokenInfo token_from(const Query& row) {
  return {row.text(0),    row.text(1),         row.integer(2),
          row.integer(3), row.integer(4) != 0, row.text(5)};
}

}  // namespace

bool has_user(Database& database, const std::string& user) {
  return database.query("SELECT 1 FROM users WHERE name = ? AND disabled = 0", user).next();
}

void add_user(Database& database, const std::string& user, int64_t now_ms) {
  database.run("INSERT INTO users (name, created_ms) VALUES (?, ?)", user, now_ms);
}

void set_disabled(Database& database, const std::string& user, bool disabled) {
  database.run("UPDATE users SET disabled = ? WHERE name = ?", disabled, user);
}

std::string unknown_text(const char* what, const std::string& name,
                         const std::vector<std::string>& known) {
  return fmt::format("{} '{}' is not known; known: {}", what, printable(name),
                     known.empty() ? "none" : join(known, ", "));
}

std::vector<std::string> all_users(Database& database) {
  std::vector<std::string> users;
  Query query = database.query("SELECT name FROM users ORDER BY name");
  while (query.next()) users.push_back(query.text(0));
  return users;
}

std::optional<Project> find_project(Database& database, const std::string& name) {
  Query query = database.query("SELECT " PROJECT_COLUMNS " FROM projects WHERE name = ?", name);
  if (!query.next()) return std::nullopt;
  return project_from(query);
}

std::vector<Project> all_projects(Database& database) {
  std::vector<Project> projects;
  Query query = database.query("SELECT " PROJECT_COLUMNS " FROM projects ORDER BY name");
  while (query.next()) projects.push_back(project_from(query));
  return projects;
}

void write_project(Database& database, const Project& project, int64_t now_ms) {
  const Budget& budget = project.budget;
  database.run(
      "INSERT INTO projects (" PROJECT_COLUMNS
      ", created_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, "
      "?, ?, ?) ON CONFLICT (name) DO UPDATE SET regions = excluded.regions, max_nodes = "
      "excluded.max_nodes, max_cores = excluded.max_cores, max_jobs = excluded.max_jobs, "
      "budget_node_microhours = excluded.budget_node_microhours, budget_core_microhours = "
      "excluded.budget_core_microhours, budget_gpu_microhours = excluded.budget_gpu_microhours, "
      "budget_micro_usd = excluded.budget_micro_usd, budget_micro_kwh = excluded.budget_micro_kwh, "
      "approved_only = excluded.approved_only",
      project.name, join(project.regions, ","), project.max_nodes, project.max_cores,
      project.max_jobs, budget.node_microhours, budget.core_microhours, budget.gpu_microhours,
      budget.micro_usd, budget.micro_kwh, project.approved_only, now_ms);
}

void set_member(Database& database, const Member& member) {
  database.run("INSERT OR REPLACE INTO members VALUES (?, ?, ?)", member.user, member.project,
               role_name(member.role));
}

void remove_member(Database& database, const std::string& user, const std::string& project) {
  database.run("DELETE FROM members WHERE user = ? AND project = ?", user, project);
}

std::vector<Member> all_members(Database& database) {
  std::vector<Member> members;
  Query query = database.query("SELECT user, project, role FROM members ORDER BY project, user");
  while (query.next()) {
    members.push_back({query.text(0), query.text(1), parse_role(query.text(2))});
  }
  return members;
}

std::optional<Role> role_of(Database& database, const std::string& user,
                            const std::string& project) {
  std::optional<Role> role;
  Query query = database.query(
      "SELECT role FROM members JOIN users ON users.name = members.user WHERE user = ?1 AND "
      "disabled = 0 AND (project = ?2 OR project = '*')",
      user, project);
  while (query.next()) {
    const Role found = parse_role(query.text(0));
    role = std::max(role.value_or(found), found);
  }
  return role;
}

std::string add_token(Database& database, const std::string& user, int64_t now_ms,
                      int64_t expires_ms, const std::string& parent) {
  const std::string id = random_hex(6);
  const std::string secret = random_hex(32);
  const std::string salt = random_hex(16);
  database.run(
      "INSERT INTO tokens (id, user, salt, hash, created_ms, expires_ms, parent) VALUES (?, ?, ?, "
      "?, ?, ?, ?)",
      id, user, salt, sha256_hex(salt + secret), now_ms, expires_ms, parent);
  return fmt::format("{}-{}-{}", kTokenPrefix, id, secret);
}

std::string id_of_token(const std::string& token) {
  const auto parts = split(token, '-');
  const bool is_one = parts.size() == 3 && parts[0] == kTokenPrefix;
  return is_one ? std::string(parts[1]) : std::string();
}

std::optional<std::string> user_of_token(Database& database, const std::string& token,
                                         int64_t now_ms) {
  const std::string id = id_of_token(token);
  Query query = database.query("SELECT salt, hash, user FROM tokens WHERE id = ?", id);
  if (!query.next()) return std::nullopt;
  const std::string secret = token.substr(token.rfind('-') + 1);
  if (!same_text(sha256_hex(query.text(0) + secret), query.text(1))) return std::nullopt;
  if (!is_valid_token(database, id, now_ms)) return std::nullopt;
  return query.text(2);
}

bool is_valid_token(Database& database, const std::string& id, int64_t now_ms) {
  Query query = database.query(
      "WITH RECURSIVE line (id) AS (VALUES (?1) UNION SELECT parent FROM tokens JOIN line USING "
      "(id) WHERE parent <> '') SELECT count(*), count(*) FILTER (WHERE revoked = 0 AND expires_ms "
      "> ?2 AND disabled = 0) FROM line LEFT JOIN tokens USING (id) LEFT JOIN users ON users.name "
      "= tokens.user",
      id, now_ms);
  return query.next() && query.integer(0) == query.integer(1);
}

int64_t revoke_token(Database& database, const std::string& id) {
  return database.run(
      "WITH RECURSIVE line (id) AS (VALUES (?1) UNION SELECT tokens.id FROM tokens JOIN line ON "
      "tokens.parent = line.id) UPDATE tokens SET revoked = 1 WHERE revoked = 0 AND id IN (SELECT "
      "id FROM line)",
      id);
}

std::optional<TokenInfo> find_token(Database& database, const std::string& id) {
  Query query = database.query(
      "SELECT id, user, created_ms, expires_ms, revoked, parent FROM tokens WHERE id = ?", id);
  if (!query.next()) return std::nullopt;
  return token_from(query);
}

std::vector<TokenInfo> all_tokens(Database& database) {
  std::vector<TokenInfo> tokens;
  Query query = database.query(
      "SELECT id, user, created_ms, expires_ms, revoked, parent FROM tokens ORDER BY created_ms, "
      "id");
  while (query.next()) tokens.push_back(token_from(query));
  return tokens;
}

Site read_site(Database& database) {
  Query query = database.query("SELECT value FROM site WHERE key = 'site'");
  if (!query.next()) return {};
  return site_from_json(parse_json(query.text(0), database.path()), database.path());
}

Site site_from_json(const Json& json, const std::string& origin) {
  Site site;
  site.policy.name = json_get<std::string>(json, "name", origin);
  site.policy.region = json_get<std::string>(json, "region", origin);
  site.policy.highest = parse_data_class(json_get<std::string>(json, "highest", origin));
  site.micro_usd_per_node_hour = json_get<int64_t>(json, "micro_usd_per_node_hour", origin);
  site.milliwatts_per_node = json_get<int64_t>(json, "milliwatts_per_node", origin);
  site.pue = json_get<double>(json, "pue", origin);
  site.micro_kg_per_kwh = json_get<int64_t>(json, "micro_kg_per_kwh", origin);
  site.micro_liters_per_kwh = json_get<int64_t>(json, "micro_liters_per_kwh", origin);
  site.slurm = json.value("slurm", false);
  site.slurm_partition = json.value("slurm_partition", std::string());
  site.slurm_account = json.value("slurm_account", std::string());
  site.node_check = json.value("node_check", std::string());
  site.allowed_keys = json.value("allowed_keys", std::vector<std::string>());
  // Earlier versions did not note whether the class was said or is the default.
  site.policy.declares_classes =
      json.value("declares_classes", site.policy.highest != DataClass::internal);
  if (json.contains("unlabelled")) {
    site.policy.unlabelled = parse_data_class(json_get<std::string>(json, "unlabelled", origin));
  }
  return site;
}

Json to_json(const Site& site) {
  Json json = {{"name", site.policy.name},
               {"region", site.policy.region},
               {"highest", data_class_name(site.policy.highest)},
               {"micro_usd_per_node_hour", site.micro_usd_per_node_hour},
               {"milliwatts_per_node", site.milliwatts_per_node},
               {"pue", site.pue},
               {"micro_kg_per_kwh", site.micro_kg_per_kwh},
               {"micro_liters_per_kwh", site.micro_liters_per_kwh},
               {"slurm", site.slurm},
               {"slurm_partition", site.slurm_partition},
               {"slurm_account", site.slurm_account},
               {"node_check", site.node_check},
               {"allowed_keys", site.allowed_keys},
               {"declares_classes", site.policy.declares_classes}};
  if (site.policy.unlabelled) json["unlabelled"] = data_class_name(*site.policy.unlabelled);
  return json;
}

void write_site(Database& database, const Site& site) {
  database.run("INSERT OR REPLACE INTO site VALUES ('site', ?)", dump_json(to_json(site)));
}

std::vector<Node> all_nodes(Database& database) {
  std::vector<Node> nodes;
  Query query =
      database.query("SELECT name, cores, gpus, up, drained, reason FROM nodes ORDER BY name");
  while (query.next()) {
    nodes.push_back({query.text(0), query.integer(1), query.integer(2), query.integer(3) != 0,
                     query.integer(4) != 0, query.text(5)});
  }
  return nodes;
}

void write_node(Database& database, const Node& node) {
  database.run(
      "INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET cores = "
      "excluded.cores, gpus = excluded.gpus, up = excluded.up, drained = excluded.drained, reason "
      "= excluded.reason",
      node.name, node.cores, node.gpus, node.up, node.drained, node.reason);
}

Rate rate_of(const Site& site, const std::vector<Node>& nodes, const std::vector<Claim>& claims) {
  Rate rate;
  rate.micro_kg_per_kwh = std::llround(static_cast<double>(site.micro_kg_per_kwh) * site.pue);
  rate.micro_liters_per_kwh = site.micro_liters_per_kwh;
  for (const Claim& claim : claims) {
    const auto node = std::find_if(nodes.begin(), nodes.end(),
                                   [&](const Node& each) { return each.name == claim.node; });
    TUTTI_CHECK(node != nodes.end(), "job {}: node {} is unknown", claim.job, claim.node);
    // claim.cores / node.cores against claim.gpus / node.gpus, in whole numbers.
    int64_t part = claim.cores;
    int64_t whole = std::max<int64_t>(1, node->cores);
    if (node->gpus > 0 && claim.gpus * whole > part * node->gpus) {
      part = claim.gpus;
      whole = node->gpus;
    }
    ++rate.nodes;
    rate.cores += claim.cores;
    rate.gpus += claim.gpus;
    rate.micro_usd_per_hour += site.micro_usd_per_node_hour * part / whole;
    rate.milliwatts += site.milliwatts_per_node * part / whole;
  }
  return rate;
}

}  // namespace tutti::control
