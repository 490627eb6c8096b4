// Starts the ranks of a world on nodes of the Slurm job that this process is in (its batch script,
// or below it), as one job step: srun with a task per rank, consecutive ranks on a node, nodes in
// the order in which Slurm lists them, which is that of its topology.
//
// The store is served here, at MASTER_ADDR or this host's name. The secret goes to the ranks in
// their environment, which srun hands over itself: it is in no file and on no command line. Slurm
// 22.05: sbatch's settings of the environment and the number of tasks would reach srun through its
// variables, and it ignores SLURM_CPUS_PER_TASK; hence all settings are passed again.
//
// Slurm gives one exit code for all ranks, the highest. SIGUSR1 and SIGUSR2 reach every rank,
// whatever rank they are sent to; srun handles other signals itself. Ranks may get SIGTERM from
// Slurm as well (base/launched.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/rendezvous/rank_processes.h"

namespace tutti::comm {

struct SlurmStepOptions {
  std::string program;
  std::vector<std::string> arguments;  // without its name
  std::vector<std::string> nodes;
  int64_t ranks_per_node = 1;
  RankProcesses::Variables variables;
  uint64_t generation = 1;
};

class SlurmStep final : public StartedRanks {
 public:
  explicit SlurmStep(const SlurmStepOptions& options);
  ~SlurmStep() override;  // ends the step

  void send_signal(int64_t rank, int signal) override;
  std::optional<RankExit> poll() override;
  int64_t running() const override { return ranks_ - given_; }
  bool is_running(int64_t rank) const override { return rank >= given_; }
  bool is_stopped(int64_t /*rank*/) const override { return false; }  // not visible from here
  void kill_all() override;
  std::shared_ptr<Store> store() const override { return store_; }
  bool are_here() const override { return false; }

 private:
  std::shared_ptr<TcpStoreServer> store_;
  int64_t ranks_ = 0;
  int64_t given_ = 0;  // ranks whose end was reported
  int process_ = 0;    // of srun; 0: collected
  int status_ = 0;
  double killed_at_ = 0;
};

// The nodes of this Slurm job, in order. Throws usage outside of one.
std::vector<std::string> slurm_job_nodes();

// Those whose slurmd does not answer, or which Slurm itself gave up: asked one by one, since
// slurmctld learns of a node's end only after its SlurmdTimeout.
std::vector<std::string> dead_slurm_nodes(const std::vector<std::string>& nodes);

// Runs `command` of a shell once on each node, at the same time. Its exit code per node; 124 where
// it took longer.
std::vector<int> run_on_slurm_nodes(const std::vector<std::string>& nodes,
                                    const std::string& command, double timeout_seconds);

}  // namespace tutti::comm
