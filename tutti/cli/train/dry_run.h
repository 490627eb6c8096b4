// `tutti train RECIPE --dry-run`: the whole run as described, on its layout, without executing it;
// and for MLPerf runs the first lines of the log, checked by the rules.
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::cli {

// Prints the description, or with `json` one object. Returns the exit code: that of the error with
// which a start in `run_folder` would end for its corpora or what else the recipe names
// (start_check.h), reported on standard error; exit_failed when the log would not be compliant even
// if the run reached its target. An MLPerf recipe may be described where its corpora are not: then
// it is a warning.
int dry_run(FileSystem& files, const spec::Recipe& recipe, const std::string& run_folder,
            bool json);

}  // namespace tutti::cli
