// Administration: users, roles, projects, the site, its nodes, tokens. As in
// control/jobs/requests.h each function is one transaction with one line in the audit log. Needs
// manage_users, or manage_projects in the project concerned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/control/ledger/account_table.h"
#include "tutti/control/people/permission.h"

namespace tutti::control {

inline constexpr const char* kDefaultProject = "default";

// The first use of a new database: `user` becomes admin of everything and gets the project
// "default"; `node` is the machine. Does nothing in a database that has users.
void create_control_plane(const Caller& caller, const Node& node, const Site& site);

void create_user(const Caller& caller, const std::string& user);
// Disables a user: tokens stop working; jobs keep running.
void disable_user(const Caller& caller, const std::string& user, bool disabled);
void grant(const Caller& caller, const Member& member);
void revoke(const Caller& caller, const std::string& user, const std::string& project);
void define_project(const Caller& caller, const Project& project);  // creates or replaces
void define_site(const Caller& caller, const Site& site);
void define_node(const Caller& caller, const Node& node);
// One's own, or with manage_users another's. Returns the secret, which is kept nowhere. What a
// token issues is its child: it expires no later, which is refused otherwise, and is withdrawn with
// it.
std::string issue_token(const Caller& caller, const std::string& user, int64_t expires_ms);
// When the caller's own token expires; absent: the caller has none.
std::optional<int64_t> caller_expires_ms(const Caller& caller);
// Returns how many were withdrawn: the token and those that descend from it.
int64_t withdraw_token(const Caller& caller, const std::string& id);

}  // namespace tutti::control
