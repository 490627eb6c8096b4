// Whether a caller may do something, and the line in the audit log where not.
#pragma once

#include <string>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/people/roles.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

struct Caller {
  Database& database;
  std::string user;
  int64_t now_ms = 0;
  std::string client = {};    // address that a request came from over the network; empty: none
  std::string token_id = {};  // of the token that speaks for the user; empty: the account itself
};

bool may(const Caller& caller, Action action, const std::string& project);

// Throws permission, with a line in the audit log, unless the caller's role in `project` allows it.
void authorize(const Caller& caller, Action action, const std::string& project,
               const std::string& on);

// The same within a transaction, which ends where it throws.
void require(const Caller& caller, Transaction& transaction, Action action,
             const std::string& project, const char* what, const std::string& on);

// Ends the transaction with the line of a refusal, and throws.
[[noreturn]] void refuse(const Caller& caller, Transaction& transaction, ErrorKind kind,
                         const char* what, const std::string& on, const std::string& why);

// A line in the audit log, within a transaction.
void note(const Caller& caller, const char* what, const std::string& on, bool allowed,
          Json detail = Json::object());

}  // namespace tutti::control
