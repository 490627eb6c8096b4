// What routers chose in one training, so that another makes the same choices: rounding decides
// between experts that are nearly equal, and with that the rest of a run.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "tutti/train/step/trainer.h"

namespace tutti::train::testing {

class RoutingRecord {
 public:
  struct Choice {
    std::vector<int32_t> experts;
    float margin = 0;  // by how much the last of them is more probable than the next
  };
  using Key = std::tuple<int64_t, int64_t>;  // layer, row of the run

  // For train_on: every rank's trainer records its choices, or replays them. The record must
  // outlive the trainers.
  std::function<void(Trainer&)> recorder();
  std::function<void(Trainer&)> player();

  const std::map<Key, Choice>& choices() const { return choices_; }

  // Rows where another record chose otherwise, and of these those where it was not a tie: more than
  // 1e-5 between the probabilities. Prints the ties.
  struct Difference {
    int64_t rows = 0;
    int64_t no_ties = 0;
  };
  Difference compare(const RoutingRecord& other) const;

 private:
  model::RoutingTape& new_tape();
  static Key key_of(int64_t layer, const model::OwnRows& rows, int64_t row);

  std::mutex mutex_;
  std::map<Key, Choice> choices_;
  std::deque<model::RoutingTape> tapes_;  // one per rank
};

}  // namespace tutti::train::testing
