// Starts the ranks of a world as processes of this host and waits for them: what a launcher does.
// The store is served here, so it outlives every rank; ranks find it, and each other, through the
// environment (launch_environment.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/comm/tcp_store.h"

namespace tutti::comm {

struct RankExit {
  int64_t rank = 0;
  int code = 0;    // exit code, when it ended by itself
  int signal = 0;  // else the signal that ended it
};

class RankProcesses {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  // Runs `program` with `arguments` (without its name) once per rank, in this process's environment
  // and `variables`. Throws io when one cannot be started.
  RankProcesses(const std::string& program, const std::vector<std::string>& arguments,
                int64_t ranks, const Variables& variables = {}, uint64_t generation = 1);
  // Kills and collects those that still run.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  pid_t process(int64_t rank) const { return processes_[static_cast<size_t>(rank)]; }
  void send_signal(int64_t rank, int signal) const;  // ranks that have been collected: nothing
  // The next rank to end. Blocks until one does; there must be one that has not been collected.
  RankExit wait_one();
  // All that are left, in the order of ranks; false: the timeout came first.
  bool wait_all(double timeout_seconds, std::vector<RankExit>& exits);

 private:
  bool collect(bool block, RankExit& exit);
  void end_all();

  std::unique_ptr<TcpStoreServer> store_;
  std::vector<pid_t> processes_;  // 0: collected
};

}  // namespace tutti::comm
