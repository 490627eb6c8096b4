#include "tutti/engine/cpu/kernels.h"

namespace tutti::engine {

const OpTable& cpu_ops() {
  static const OpTable table = [] {
    OpTable t;
    t.backend = "cpu";
#define TUTTI_OP(name, Args) t.name = cpu_##name;
#include "tutti/engine/ops.def"
    check_complete(t);
    return t;
  }();
  return table;
}

}  // namespace tutti::engine
