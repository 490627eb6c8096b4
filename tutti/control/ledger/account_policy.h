// Accounts that must show a token to act for their users.
//
// A command without a token acts for the account that runs it. Where several people share an
// account their roles then bind only those who show tokens; an admin can have the account demand
// one.
#pragma once

#include <string>
#include <vector>

#include "tutti/control/people/permission.h"

namespace tutti::control {

// In the audit log.
inline constexpr const char* kDemandToken = "demand token";
inline constexpr const char* kTrustAccount = "trust account";

std::vector<std::string> accounts_with_demand(Database& database);  // sorted
bool demands_token(Database& database, const std::string& user);

void write_demand(Database& database, const std::string& user, bool demanded);

// Needs manage_users. Throws usage for an unknown user.
void demand_token(const Caller& caller, const std::string& user, bool demanded);

}  // namespace tutti::control
