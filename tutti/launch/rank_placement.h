// Where the ranks of `tutti train --nproc` run: as processes of this machine, or, with
// --ranks-per-node, on nodes of the Slurm job that it is in. Unused nodes are spares.
//
// Before a node is used it must answer and pass the check that --node-check names (a command of the
// shell; exit codes as those of `tutti check`: 0 well, 1 a warning, anything else: not to be used).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/launch/generation.h"
#include "tutti/launch/plan.h"

namespace tutti::launch {

class RankPlacement {
 public:
  // Reads the nodes of the job and leaves out those that do not pass.
  explicit RankPlacement(const TrainArguments& arguments);

  bool over_nodes() const { return per_node_ > 0; }
  // The most ranks that can be placed now; without nodes: no limit.
  int64_t most_ranks() const;
  // A number of ranks that can be placed, at most `ranks`.
  int64_t placed(int64_t ranks) const;

  int64_t nodes_for(int64_t ranks) const { return over_nodes() ? ranks / per_node_ : 0; }

  // Runs `tutti` with these words once per rank. Sets the node of each rank.
  std::unique_ptr<comm::StartedRanks> start(const std::vector<std::string>& words, int64_t ranks,
                                            uint64_t generation,
                                            const comm::RankProcesses::Variables& variables,
                                            std::vector<std::string>& rank_nodes) const;

  // After a failure: the nodes that are gone, which are not used any more.
  std::vector<std::string> drop_dead();
  // The same of one that keeps failing.
  void drop(const std::string& node);

  const std::vector<std::string>& nodes() const { return nodes_; }

 private:
  void leave_out_unhealthy(const std::string& check);

  int64_t per_node_ = 0;
  std::vector<std::string> nodes_;  // that can be used, in order
};

}  // namespace tutti::launch
