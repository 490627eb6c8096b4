// Users, projects with their limits, roles, tokens, the site and its nodes in the database.
// Functions that write are called within a transaction.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/control/jobs/data_rule.h"
#include "tutti/control/jobs/job.h"
#include "tutti/control/ledger/spend.h"
#include "tutti/control/people/roles.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

inline constexpr const char* kAllProjects = "*";

struct Project {
  std::string name;
  std::vector<std::string> regions;  // rule 2 of control/jobs/data_rule.h; empty: not restricted
  // At once; absent: no limit.
  std::optional<int64_t> max_nodes;
  std::optional<int64_t> max_cores;
  std::optional<int64_t> max_jobs;
  Budget budget;
  bool approved_only = false;  // deploys approved checkpoints only (jobs/deployment_rule.h)
};

struct Member {
  std::string user;
  std::string project;
  Role role = Role::viewer;
};

// The site that jobs run at, what its nodes cost and draw.
struct Site {
  SitePolicy policy{"local", "local", DataClass::internal};
  int64_t micro_usd_per_node_hour = 0;
  int64_t milliwatts_per_node = 0;  // estimate, under load
  double pue = 1;                   // facility energy over the machine's
  int64_t micro_kg_per_kwh = 0;     // of facility energy
  int64_t micro_liters_per_kwh = 0;
  // The scheduler: this machine, or Slurm.
  bool slurm = false;
  std::string slurm_partition;  // empty: Slurm's default
  std::string slurm_account;    // empty: none
  std::string node_check;       // command that a node must pass before a job's ranks start there
  std::vector<std::string> allowed_keys;  // of jobs/guarded_keys.h, that every submitter may set
};

bool has_user(Database& database, const std::string& user);  // known and not disabled
void add_user(Database& database, const std::string& user, int64_t now_ms);
void set_disabled(Database& database, const std::string& user, bool disabled);
std::vector<std::string> all_users(Database& database);  // disabled ones as well
// "user 'eve' is not known; known: ada, bob"
std::string unknown_text(const char* what, const std::string& name,
                         const std::vector<std::string>& known);

std::optional<Project> find_project(Database& database, const std::string& name);
std::vector<Project> all_projects(Database& database);
void write_project(Database& database, const Project& project, int64_t now_ms);

void set_member(Database& database, const Member& member);
void remove_member(Database& database, const std::string& user, const std::string& project);
std::vector<Member> all_members(Database& database);
// The higher of the roles in the project and in all projects; none for unknown or disabled users.
std::optional<Role> role_of(Database& database, const std::string& user,
                            const std::string& project);

// A new secret for `user`, shown once: "tutti-ID-SECRET". Kept is its salted SHA-256. `parent`: the
// id of the token that issues it; empty: none.
std::string add_token(Database& database, const std::string& user, int64_t now_ms,
                      int64_t expires_ms, const std::string& parent = {});
std::string id_of_token(const std::string& token);  // empty: it does not look like one
// Whose it is; absent: its secret is wrong, or it is not valid.
std::optional<std::string> user_of_token(Database& database, const std::string& token,
                                         int64_t now_ms);
// Neither it nor any token that it descends from is unknown, expired, withdrawn or of a disabled
// user.
bool is_valid_token(Database& database, const std::string& id, int64_t now_ms);
struct TokenInfo {
  std::string id;
  std::string user;
  int64_t created_ms = 0;
  int64_t expires_ms = 0;
  bool revoked = false;
  std::string parent = {};
};
std::optional<TokenInfo> find_token(Database& database, const std::string& id);
std::vector<TokenInfo> all_tokens(Database& database);
// With all tokens that descend from it. Returns how many are withdrawn now that were not.
int64_t revoke_token(Database& database, const std::string& id);

Json to_json(const Site& site);
Site site_from_json(const Json& json, const std::string& origin);
Site read_site(Database& database);
void write_site(Database& database, const Site& site);
std::vector<Node> all_nodes(Database& database);  // by name
void write_node(Database& database, const Node& node);

// What a job with these parts of nodes costs per hour: of each node the larger of its shares of
// cores and GPUs.
Rate rate_of(const Site& site, const std::vector<Node>& nodes, const std::vector<Claim>& claims);

}  // namespace tutti::control
