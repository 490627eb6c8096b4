// `tutti train RECIPE --dry-run`: the whole run as described, on its layout, without executing it;
// and for MLPerf runs the first lines of the log, checked by the rules.
#pragma once

#include "tutti/spec/recipe.h"

namespace tutti::cli {

// Prints the description, or with `json` one object. Returns the exit code: exit_failed when the
// log would not be compliant even if the run reached its target.
int dry_run(const spec::Recipe& recipe, bool json);

}  // namespace tutti::cli
