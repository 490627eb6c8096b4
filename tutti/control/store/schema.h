// The tables of the control plane: see docs/control.md for what they mean. A file says which
// version its tables have; an older one is brought up to date, a newer one refused.
#pragma once

#include <cstdint>

#include "tutti/control/store/database.h"

namespace tutti::control {

inline constexpr int64_t kSchemaVersion = 5;

// Creates what is missing and brings older tables up to date. Throws unsupported for a version that
// is newer than this program, and corrupt for a database that is not Tutti's.
void prepare_schema(Database& database);

}  // namespace tutti::control
