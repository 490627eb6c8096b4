// Human-readable JSON for files.
#pragma once

#include <string>

#include "tutti/base/json.h"

namespace tutti {

// Over several lines, indented by two, the last one ended; bytes that are not UTF-8 are replaced.
std::string pretty_json(const Json& value);

}  // namespace tutti
