#include "tutti/engine/ops.h"

#include "tutti/engine/stream.h"

namespace tutti::engine {

void check_complete(const OpTable& table) {
#define TUTTI_OP(name, Args) \
  TUTTI_CHECK(table.name != nullptr, "backend {} lacks operation " #name, table.backend);
#define TUTTI_OPTIONAL_OP(name, Args)
#include "tutti/engine/ops.def"
}

}  // namespace tutti::engine
