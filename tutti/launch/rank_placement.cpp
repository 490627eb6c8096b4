#include "tutti/launch/rank_placement.h"

#include <algorithm>
#include <filesystem>

#include "tutti/base/child_process.h"
#include "tutti/base/message.h"
#include "tutti/base/text.h"
#include "tutti/comm/rendezvous/slurm_step.h"

namespace tutti::launch {
namespace {

constexpr double kCheckSeconds = 300;
constexpr int kMostWarning = 1;  // exit codes of a check up to this one let a node be used

}  // namespace

RankPlacement::RankPlacement(const TrainArguments& arguments)
    : per_node_(arguments.ranks_per_node) {
  if (!over_nodes()) return;
  nodes_ = comm::slurm_job_nodes();
  drop_dead();
  if (!arguments.node_check.empty()) leave_out_unhealthy(arguments.node_check);
}

int64_t RankPlacement::most_ranks() const {
  return static_cast<int64_t>(nodes_.size()) * per_node_;
}

int64_t RankPlacement::placed(int64_t ranks) const {
  if (!over_nodes()) return ranks;
  return std::min(ranks / per_node_ * per_node_, most_ranks());
}

std::unique_ptr<comm::StartedRanks> RankPlacement::start(
    const std::vector<std::string>& words, int64_t ranks, uint64_t generation,
    const comm::RankProcesses::Variables& variables, std::vector<std::string>& rank_nodes) const {
  rank_nodes.clear();
  if (!over_nodes()) {
    return std::make_unique<comm::RankProcesses>(kThisExecutable, words, ranks, variables,
                                                 generation);
  }
  comm::SlurmStepOptions options;
  options.program = std::filesystem::read_symlink(kThisExecutable);  // other nodes have it, too
  options.arguments = words;
  options.nodes.assign(nodes_.begin(), nodes_.begin() + ranks / per_node_);
  options.ranks_per_node = per_node_;
  options.variables = variables;
  options.generation = generation;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    rank_nodes.push_back(options.nodes[static_cast<size_t>(rank / per_node_)]);
  }
  return std::make_unique<comm::SlurmStep>(options);
}

std::vector<std::string> RankPlacement::drop_dead() {
  if (!over_nodes()) return {};
  std::vector<std::string> dead = comm::dead_slurm_nodes(nodes_);
  for (const std::string& node : dead) drop(node);
  return dead;
}

void RankPlacement::drop(const std::string& node) { std::erase(nodes_, node); }

void RankPlacement::leave_out_unhealthy(const std::string& check) {
  const std::vector<int> codes = comm::run_on_slurm_nodes(nodes_, check, kCheckSeconds);
  std::vector<std::string> well;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (codes[i] <= kMostWarning) {
      well.push_back(nodes_[i]);
    } else {
      print_message(fmt::format("tutti: node {} is left out: its check ended with {}\n", nodes_[i],
                                codes[i]));
    }
  }
  nodes_ = well;
}

}  // namespace tutti::launch
