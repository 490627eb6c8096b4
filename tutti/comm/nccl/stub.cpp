#include "tutti/base/error.h"
#include "tutti/comm/nccl/group.h"

namespace tutti::comm {

bool has_nccl() { return false; }

std::unique_ptr<Group> make_nccl_group(GroupInfo info, std::shared_ptr<Store> /*store*/,
                                       const std::string& /*prefix*/, int /*device*/,
                                       double /*timeout_seconds*/) {
  fail(ErrorKind::unsupported,
       "group {}: this build has no NCCL; configure it where nccl.h and the CUDA toolkit are",
       info.name);
}

}  // namespace tutti::comm
