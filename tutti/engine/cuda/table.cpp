#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/stream.h"

namespace tutti::engine {

const OpTable& cuda_ops() {
  static const OpTable table = [] {
    OpTable t;
    t.backend = "cuda";
#define TUTTI_OP(name, Args) t.name = cuda_##name;
#define TUTTI_OPTIONAL_OP(name, Args)  // not supported
#include "tutti/engine/ops.def"
    check_complete(t);
    return t;
  }();
  return table;
}

}  // namespace tutti::engine
