// What the keys of a recipe are without its submitter's word (control/jobs/guarded_keys.h).
#pragma once

#include <string>

#include "tutti/base/file.h"

namespace tutti::cli {

// The recipe of that file, resolved, as YAML, where an admin has installed it (launch/home.h); else
// that of all defaults.
std::string trusted_recipe(FileSystem& files, const std::string& path);

}  // namespace tutti::cli
