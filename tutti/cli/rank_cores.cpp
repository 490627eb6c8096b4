#include "tutti/cli/rank_cores.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tutti/base/message.h"
#include "tutti/base/text.h"
#include "tutti/comm/core_share.h"

namespace tutti::cli {

int take_cores(const comm::LaunchEnvironment& environment, bool tell) {
  if (environment.size == 1 || environment.local_size < 1 || !comm::may_use_all_cores()) return 0;
  if (tell && environment.rank == 0) {
    std::vector<std::string> shares;
    for (int64_t rank = 0; rank < environment.local_size; ++rank) {
      const comm::CoreShare share = comm::share_cores(rank, environment.local_size);
      shares.push_back(fmt::format("rank {}: {}{}", rank, comm::cores_text(share.cores),
                                   share.sharing > 1 ? " (shared)" : ""));
    }
    print_message(fmt::format("cores of this host: {}\n", join(shares, ", ")));
  }
  const comm::CoreShare mine = comm::share_cores(environment.local_rank, environment.local_size);
  comm::bind_to(mine);
  return static_cast<int>(mine.cores.size());
}

}  // namespace tutti::cli
