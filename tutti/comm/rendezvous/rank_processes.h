// The launcher: starts the ranks of a world as processes of this host and waits for them. It serves
// the store, which therefore outlives every rank; ranks find it, and each other, through the
// environment (launch_environment.h), which hides the variables of an outer launcher.
//
// No rank outlives its launcher: a rank's program calls end_with_launcher() first, and the kernel
// then kills the rank when the thread that started it ends. Each has a process group of its own, so
// that Ctrl-C on the terminal reaches the launcher alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/comm/rendezvous/tcp_store.h"

namespace tutti::comm {

struct RankExit {
  int64_t rank = 0;
  int code = 0;        // exit code, when it ended by itself
  int signal = 0;      // else the signal that ended it
  bool is_own = true;  // false: what all ranks together ended with
  bool ok() const { return code == 0 && signal == 0; }
};

// A rank that ends with this exit code says that it cannot be started again: its host or device is
// gone for good.
inline constexpr int kExitRankGone = 94;

// Whether this process was started by RankProcesses.
bool has_launcher();

// To be called by a rank before it starts threads. Without a launcher of our own it does nothing;
// ends the process when that launcher is gone already.
void end_with_launcher();

// Ranks that were started, wherever they run.
class StartedRanks {
 public:
  virtual ~StartedRanks() = default;
  virtual void send_signal(int64_t rank, int signal) = 0;  // ranks that have ended: nothing
  virtual std::optional<RankExit> poll() = 0;              // the next rank to end, if one has
  virtual int64_t running() const = 0;                     // ranks that poll() has not reported
  virtual bool is_running(int64_t rank) const = 0;
  virtual bool is_stopped(int64_t rank) const = 0;  // by SIGSTOP, and not continued since
  virtual void kill_all() = 0;                      // running ones; poll() still reports them
  virtual std::shared_ptr<Store> store() const = 0;
  virtual bool are_here() const = 0;  // processes of this host
};

class RankProcesses final : public StartedRanks {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  // Runs `program` with `arguments` (without its name) once per rank, in this process's environment
  // and `variables`. Throws io when one cannot be started.
  RankProcesses(const std::string& program, const std::vector<std::string>& arguments,
                int64_t ranks, const Variables& variables = {}, uint64_t generation = 1);
  // Kills and collects those that still run.
  ~RankProcesses() override;
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  pid_t process(int64_t rank) const { return processes_[static_cast<size_t>(rank)]; }
  void send_signal(int64_t rank, int signal) override;
  bool is_stopped(int64_t rank) const override;
  // The next rank to end. Blocks until one does; there must be one that has not been collected.
  RankExit wait_one();
  std::optional<RankExit> poll() override;
  int64_t running() const override;
  bool is_running(int64_t rank) const override { return process(rank) != 0; }
  void kill_all() override;  // SIGKILL
  std::shared_ptr<Store> store() const override { return store_; }
  bool are_here() const override { return true; }
  // All that are left, in the order of ranks; false: the timeout came first.
  bool wait_all(double timeout_seconds, std::vector<RankExit>& exits);

 private:
  bool collect(bool block, RankExit& exit);
  void end_all();

  std::shared_ptr<TcpStoreServer> store_;
  std::vector<pid_t> processes_;  // 0: collected
};

}  // namespace tutti::comm
