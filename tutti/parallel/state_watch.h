// Finds bits that have changed in the memory of what this rank alone keeps of the training state:
// the masters and moments that it owns and, in bf16 runs, the weights made of them; also frozen
// weights. An update reports the sums of the words that it read and wrote (engine::AdamwSums), and
// what one has read must be what the one before had written. That takes no second rank: whose
// memory it is is known with any number of replicas, and of shards without a replica.
//
// One changed bit is always seen; changes of several words cancel with a chance of 2^-32. Only of
// memory that the host reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/engine/ops.h"
#include "tutti/engine/tensor.h"
#include "tutti/optim/adamw.h"

namespace tutti::parallel {

class StateWatch {
 public:
  // `rank` is named in errors. What the vectors hold counts from trust() on.
  StateWatch(int64_t rank, std::vector<optim::AdamwState> owned, engine::Vector frozen);

  // What is there now is right: it was written from outside. Reads all of it.
  void trust();

  // All of an update: throws corrupt, naming the rank and what it found changed.
  void updated(const engine::AdamwSums& sums);

  // Another writer changes words of an owned master, and of the weights made of it: before that,
  // and afterwards.
  void lend(const engine::Vector& master, const engine::Vector& weights);
  void take_back(const engine::Vector& master, const engine::Vector& weights);

  // Reads all of it: what updated would throw; empty when nothing has changed.
  std::string damage() const;

 private:
  engine::AdamwSums::Arrays sums_now() const;
  std::string difference(const engine::AdamwSums::Arrays& found, uint32_t frozen) const;

  int64_t rank_;
  std::vector<optim::AdamwState> owned_;
  engine::Vector frozen_;
  engine::AdamwSums::Arrays written_{};
  uint32_t frozen_written_ = 0;
};

}  // namespace tutti::parallel
