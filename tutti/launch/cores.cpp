#include "tutti/launch/cores.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tutti/base/message.h"
#include "tutti/base/text.h"
#include "tutti/node/core_share.h"

namespace tutti::launch {

int take_cores(const comm::LaunchEnvironment& environment, bool verbose) {
  if (environment.size == 1 || environment.local_size < 1 || !node::may_use_all_cores()) return 0;
  if (verbose && environment.rank == 0) {
    std::vector<std::string> shares;
    for (int64_t rank = 0; rank < environment.local_size; ++rank) {
      const node::CoreShare share = node::share_cores(rank, environment.local_size);
      shares.push_back(fmt::format("rank {}: {}{}", rank, node::cores_text(share.cores),
                                   share.sharing > 1 ? " (shared)" : ""));
    }
    print_message(fmt::format("cores of this host: {}\n", join(shares, ", ")));
  }
  const node::CoreShare mine = node::share_cores(environment.local_rank, environment.local_size);
  node::bind_to(mine);
  return static_cast<int>(mine.cores.size());
}

}  // namespace tutti::launch
