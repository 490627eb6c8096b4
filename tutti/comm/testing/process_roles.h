// What the ranks do that process_test starts: this program again, with TUTTI_TEST_ROLE set.
#pragma once

#include <string>

namespace tutti::comm::testing {

// Exit codes of roles.
enum RoleExit : int { role_done = 0, role_wrong = 3, role_peer_error = 7, role_other_error = 8 };

// Runs the role as the rank that the environment names. The message of an error goes into the file
// TUTTI_TEST_FOLDER/<rank>.
int run_role(const std::string& role);

}  // namespace tutti::comm::testing
