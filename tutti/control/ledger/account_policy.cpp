#include "tutti/control/ledger/account_policy.h"

#include <algorithm>

#include "tutti/base/json.h"

namespace tutti::control {

std::vector<std::string> accounts_with_demand(Database& database) {
  Query query = database.query("SELECT value FROM site WHERE key = 'demand_token'");
  if (!query.next()) return {};
  return parse_json(query.text(0), database.path()).get<std::vector<std::string>>();
}

bool demands_token(Database& database, const std::string& user) {
  const std::vector<std::string> users = accounts_with_demand(database);
  return std::binary_search(users.begin(), users.end(), user);
}

void write_demand(Database& database, const std::string& user, bool demanded) {
  std::vector<std::string> users = accounts_with_demand(database);
  std::erase(users, user);
  if (demanded) users.insert(std::upper_bound(users.begin(), users.end(), user), user);
  database.run("INSERT OR REPLACE INTO site VALUES ('demand_token', ?)", dump_json(Json(users)));
}

void demand_token(const Caller& caller, const std::string& user, bool demanded) {
  const char* what = demanded ? kDemandToken : kTrustAccount;
  const std::string on = "user " + user;
  Transaction transaction(caller.database);
  require(caller, transaction, Action::manage_users, "", what, on);
  const std::vector<std::string> known = all_users(caller.database);
  if (std::find(known.begin(), known.end(), user) == known.end()) {
    refuse(caller, transaction, ErrorKind::usage, what, on, unknown_text("user", user, known));
  }
  write_demand(caller.database, user, demanded);
  note(caller, what, on, true);
  transaction.commit();
}

}  // namespace tutti::control
