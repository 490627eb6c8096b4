#include "tutti/train/session/rank_consensus.h"

#include <algorithm>
#include <map>

#include "tutti/comm/world/axes.h"
#include "tutti/engine/tensor.h"

namespace tutti::train {

RankConsensus::RankConsensus(comm::World* world, int64_t kv_heads)
    : world_(world),
      ranks_(world == nullptr ? parallel::Ranks{} : parallel::ranks_of(*world, kv_heads)),
      stream_(engine::make_cpu_stream(1)) {}

void RankConsensus::gather(void* items, int64_t item_bytes) const {
  if (ranks_.world == nullptr) return;
  const int64_t count = item_bytes / static_cast<int64_t>(sizeof(int32_t));
  const engine::Vector all = engine::vector(items, DType::i32, count * size());
  const engine::Vector mine =
      engine::vector(static_cast<char*>(items) + rank() * item_bytes, DType::i32, count);
  ranks_.world->all_gather(*stream_, mine, all).wait(*stream_);
}

std::vector<std::string> RankConsensus::exchange_text(const std::string& mine) const {
  std::array<char, 512> text{};
  std::copy_n(mine.data(), std::min(mine.size(), text.size() - 1), text.data());
  std::vector<std::string> all;
  for (const auto& one : exchange(text)) all.emplace_back(one.data());
  return all;
}

Agreed RankConsensus::agree(const std::vector<StepReport>& reports) const {
  Agreed agreed;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const StepReport& report = reports[rank];
    if (agreed.stop_signal == 0) agreed.stop_signal = report.stop_signal;
    agreed.asked_to_save = agreed.asked_to_save || report.asked_to_save != 0;
    agreed.writer_is_busy = agreed.writer_is_busy || report.writer_is_busy != 0;
    // Of the ranks that read the same samples, one counts.
    const spec::Coordinates at =
        world_ == nullptr ? spec::Coordinates{}
                          : spec::coordinates(world_->mesh(), static_cast<int64_t>(rank));
    if (at.tp == 0 && at.cp == 0 && at.pp == 0) {
      agreed.facts += {report.useful, report.targets, report.squared_rows};
    }
  }
  agreed.save_is_due = reports.front().save_is_due != 0;
  agreed.over_budget = reports.front().over_budget != 0;
  return agreed;
}

std::vector<std::pair<int64_t, double>> SlowRanks::note(const std::vector<StepReport>& reports) {
  std::vector<std::pair<int64_t, double>> named;
  if (reports.size() < 2) return named;
  slow_steps_.resize(reports.size(), 0);
  std::vector<double> seconds;
  seconds.reserve(reports.size());
  for (const StepReport& report : reports) seconds.push_back(report.own_seconds);
  // The lower median, so that the slower of two ranks can be named.
  const size_t middle = (seconds.size() - 1) / 2;
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(middle), seconds.end());
  const double median = seconds[middle];
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const double factor = median > 0 ? reports[rank].own_seconds / median : 1;
    slow_steps_[rank] = factor >= kFactor ? slow_steps_[rank] + 1 : 0;
    if (slow_steps_[rank] == kSteps) named.emplace_back(static_cast<int64_t>(rank), factor);
  }
  return named;
}

std::vector<int64_t> damaged_replicas(const spec::Mesh& mesh, const std::vector<uint64_t>& hashes) {
  std::vector<int64_t> damaged;
  std::vector<bool> seen(hashes.size(), false);
  for (size_t first = 0; first < hashes.size(); ++first) {
    if (seen[first]) continue;
    const auto rank = static_cast<int64_t>(first);
    const std::vector<int64_t> replicas =
        mesh.ep > 1 ? comm::expert_replicas(mesh, rank)
                    : comm::members(mesh, rank, {spec::Axis::dp, spec::Axis::cp});
    std::map<uint64_t, int64_t> votes;
    for (const int64_t replica : replicas) {
      seen[static_cast<size_t>(replica)] = true;
      ++votes[hashes[static_cast<size_t>(replica)]];
    }
    if (votes.size() < 2) continue;
    const auto most =
        std::max_element(votes.begin(), votes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const bool majority = 2 * most->second > static_cast<int64_t>(replicas.size());
    for (const int64_t replica : replicas) {
      if (majority && hashes[static_cast<size_t>(replica)] == most->first) continue;
      damaged.push_back(replica);
    }
  }
  std::sort(damaged.begin(), damaged.end());
  return damaged;
}

}  // namespace tutti::train
