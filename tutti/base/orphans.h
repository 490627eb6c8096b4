// Processes that a child leaves running when it ends. They become children of the nearest ancestor
// that has asked for them (PR_SET_CHILD_SUBREAPER), which knows so when nothing is left of it.
#pragma once

namespace tutti {

// This process is theirs from now on.
void adopt_orphans();

// Asks all children of this process to end (SIGTERM) and, those left after
// `patience_seconds`, ends them (SIGKILL). Reaps them, so that no other code may wait for one.
// Returns how many have ended; one that cannot be killed (it waits for a disk) is left after twice
// as long.
int end_orphans(double patience_seconds);

}  // namespace tutti
