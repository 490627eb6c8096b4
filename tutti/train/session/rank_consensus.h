// What the ranks of a session exchange between steps to reach the same decision: whether to stop,
// save or skip a save, and which rank is slow, frozen or damaged.
//
// Functions marked collective must be called by all ranks in the same order; with one rank they
// return at once. Data is in host memory and goes through the group for it (comm::World::all), so
// an exchange never waits for a device.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/comm/world/world.h"
#include "tutti/data/corpus/dataset.h"
#include "tutti/engine/stream.h"
#include "tutti/parallel/ranks.h"

namespace tutti::train {

// What a rank reports after a step.
struct StepReport {
  int64_t useful = 0, targets = 0, squared_rows = 0;  // of the samples that it read
  double own_seconds = 0;     // of the step, without waiting for others or for data on its way
  double waited_seconds = 0;  // of the step
  double frozen_seconds = 0;  // since the last step: the rank did not run although it wanted to
  int32_t stop_signal = 0;
  int32_t asked_to_save = 0;
  int32_t writer_is_busy = 0;
  int32_t save_is_due = 0;  // by time; of rank 0
  int32_t over_budget = 0;  // of rank 0
  int32_t reserved = 0;
};

// The decision of all ranks.
struct Agreed {
  data::SampleFacts facts;  // of the whole step
  int stop_signal = 0;      // that reached any rank
  bool asked_to_save = false;
  bool writer_is_busy = false;
  bool save_is_due = false;
  bool over_budget = false;
};

class RankConsensus {
 public:
  // world: null for a single rank; it outlives this object. kv_heads: of the model
  // (parallel::ranks_of). Collective: creates the groups.
  RankConsensus(comm::World* world, int64_t kv_heads);

  comm::World* world() const { return world_; }
  const parallel::Ranks& ranks() const { return ranks_; }
  int64_t rank() const { return world_ == nullptr ? 0 : world_->rank(); }
  int64_t size() const { return world_ == nullptr ? 1 : world_->size(); }
  // This rank writes what a run writes once: its folder, its events, its console.
  bool leads() const { return rank() == 0; }

  // The host's stream, for groups over host memory: waits for no device.
  engine::Stream& stream() const { return *stream_; }

  // The values of all ranks, in rank order. Collective.
  template <typename T>
  std::vector<T> exchange(const T& mine) const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(int32_t) == 0);
    std::vector<T> all(static_cast<size_t>(size()));
    all[static_cast<size_t>(rank())] = mine;
    gather(all.data(), static_cast<int64_t>(sizeof(T)));
    return all;
  }
  // The same for texts, truncated to 511 bytes. Collective.
  std::vector<std::string> exchange_text(const std::string& mine) const;
  // The value of rank 0. Collective.
  template <typename T>
  T of_leader(const T& mine) const {
    return exchange(mine).front();
  }

  // From the reports of all ranks in their order.
  Agreed agree(const std::vector<StepReport>& reports) const;

 private:
  // All-gather in place: `item_bytes` per rank, this rank's already at its offset.
  void gather(void* items, int64_t item_bytes) const;

  comm::World* world_;
  parallel::Ranks ranks_;
  std::unique_ptr<engine::Stream> stream_;
};

// A rank whose own part of a step takes far longer than that of most.
class SlowRanks {
 public:
  static constexpr double kFactor = 1.5;
  static constexpr int64_t kSteps = 20;

  // Ranks that have now been kFactor times slower than the median for kSteps steps in a row, with
  // that factor; each is named once until it has been as fast as others again.
  std::vector<std::pair<int64_t, double>> note(const std::vector<StepReport>& reports);

 private:
  std::vector<int64_t> slow_steps_;
};

// Ranks whose parameters differ from those of most of the ranks that should have the same, by the
// hashes of all; of two that differ it is unknown which is right, and both are named. Empty: no
// difference. This sees errors of computation; flips in memory a rank finds itself, wherever there
// is only one of something (parallel/state_watch.h). With ZeRO 0 an error in an update is seen for
// ever after; with 1 and 2 one in what a rank has gathered, until the next update gathers again,
// and not one in a master or moment, which has one owner, whose weights all others take over; with
// 3 nothing, since every shard is there once.
std::vector<int64_t> damaged_replicas(const spec::Mesh& mesh, const std::vector<uint64_t>& hashes);

}  // namespace tutti::train
