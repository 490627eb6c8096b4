// The functions of cpu_ops(): one per entry of ops.def, contracts in ops.h. Each is defined in the
// file named after its operation or after the group of operations that it belongs to.
#pragma once

#include "tutti/engine/ops.h"
#include "tutti/engine/stream.h"

namespace tutti::engine {

#define TUTTI_OP(name, Args) void cpu_##name(Stream& stream, const Args& args);
#include "tutti/engine/ops.def"

}  // namespace tutti::engine
