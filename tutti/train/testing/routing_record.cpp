#include "tutti/train/testing/routing_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace tutti::train::testing {

model::RoutingTape& RoutingRecord::new_tape() {
  const std::lock_guard lock(mutex_);
  return tapes_.emplace_back();
}

RoutingRecord::Key RoutingRecord::key_of(int64_t layer, const model::OwnRows& rows, int64_t row) {
  const int64_t number = rows.numbers ? rows.numbers.as<int32_t>()[row] : row;
  return {layer, rows.first + number};
}

std::function<void(Trainer&)> RoutingRecord::recorder() {
  return [this](Trainer& trainer) {
    model::RoutingTape& tape = new_tape();
    tape.take = [this](int64_t layer, const model::OwnRows& rows, engine::Matrix experts,
                       engine::Matrix probabilities) {
      const std::lock_guard lock(mutex_);
      for (int64_t row = 0; row < experts.rows; ++row) {
        Choice choice;
        const int32_t* chosen = experts.row<int32_t>(row);
        choice.experts.assign(chosen, chosen + experts.cols);
        const float* p = probabilities.row<float>(row);
        choice.margin = std::numeric_limits<float>::max();
        for (int64_t e = 0; e < probabilities.cols; ++e) {
          if (std::find(chosen, chosen + experts.cols, e) != chosen + experts.cols) continue;
          choice.margin = std::min(choice.margin, p[choice.experts.back()] - p[e]);
        }
        choices_[key_of(layer, rows, row)] = std::move(choice);
      }
    };
    trainer.set_routing_tape(&tape);
  };
}

std::function<void(Trainer&)> RoutingRecord::player() {
  return [this](Trainer& trainer) {
    model::RoutingTape& tape = new_tape();
    tape.give = [this](int64_t layer, const model::OwnRows& rows, engine::Matrix experts) {
      for (int64_t row = 0; row < experts.rows; ++row) {
        const Choice& choice = choices_.at(key_of(layer, rows, row));
        std::copy(choice.experts.begin(), choice.experts.end(), experts.row<int32_t>(row));
      }
      return true;
    };
    trainer.set_routing_tape(&tape);
  };
}

RoutingRecord::Difference RoutingRecord::compare(const RoutingRecord& other) const {
  Difference out;
  for (const auto& [key, choice] : other.choices_) {
    const Choice& mine = choices_.at(key);
    if (mine.experts == choice.experts) continue;
    ++out.rows;
    auto sorted = mine.experts, others = choice.experts;
    std::sort(sorted.begin(), sorted.end());
    std::sort(others.begin(), others.end());
    // The same experts in another order: two of the chosen are nearly equal.
    const bool tie = sorted == others || mine.margin < 1e-5F;
    if (!tie) ++out.no_ties;
    fmt::print("layer {}, row {}: experts {} or {}, {} apart{}\n", std::get<0>(key),
               std::get<1>(key), fmt::join(mine.experts, ","), fmt::join(choice.experts, ","),
               mine.margin, tie ? "" : ": no tie");
  }
  return out;
}

}  // namespace tutti::train::testing
