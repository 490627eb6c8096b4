// Processes that a child leaves running when it ends. They become children of the nearest ancestor
// that has asked for them (PR_SET_CHILD_SUBREAPER), which knows so when nothing is left of it.
#pragma once

namespace tutti {

// This process is theirs from now on.
void adopt_orphans();

// Sends SIGTERM to all children of this process and, after `patience_seconds`, SIGKILL to the rest.
// Reaps them, so that no other code may wait for one. Returns how many have ended; one that cannot
// be killed (it waits for a disk) is left after twice as long.
int end_orphans(double patience_seconds);

}  // namespace tutti
