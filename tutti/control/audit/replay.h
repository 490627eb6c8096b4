// Replays lines of the audit log on records that are older than they: for a database that was
// restored from a backup. Completed jobs do not run again, newer submissions are not lost, newer
// costs are in the ledger, and revoked roles stay revoked.
#pragma once

#include "tutti/base/json.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

// Within a transaction; lines in their order. False where the line records a change but not enough
// to make it again: a token that was issued (its secret was never written down), an incident (its
// file has it), a change by an older version of this program.
bool replay_line(Database& database, const Json& line);

}  // namespace tutti::control
