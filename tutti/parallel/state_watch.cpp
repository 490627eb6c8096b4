#include "tutti/parallel/state_watch.h"

#include <string>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/engine/word_sum.h"

namespace tutti::parallel {
namespace {

// As AdamwSums::Arrays has them.
constexpr size_t kMaster = 0;
constexpr size_t kWeights = 3;
constexpr const char* kNames[] = {"parameters", "first moments", "second moments",
                                  "weights in the compute type"};

}  // namespace

StateWatch::StateWatch(int64_t rank, std::vector<optim::AdamwState> owned, engine::Vector frozen)
    : rank_(rank), owned_(std::move(owned)), frozen_(frozen) {}

engine::AdamwSums::Arrays StateWatch::sums_now() const {
  engine::AdamwSums::Arrays sums{};
  for (const optim::AdamwState& state : owned_) {
    const engine::Vector* arrays[] = {&state.master, &state.moment1, &state.moment2,
                                      &state.weights};
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += engine::word_sum(*arrays[i]);
  }
  return sums;
}

void StateWatch::trust() {
  written_ = sums_now();
  frozen_written_ = engine::word_sum(frozen_);
}

void StateWatch::updated(const engine::AdamwSums& sums) {
  const std::string text = difference(sums.before, frozen_written_);
  if (!text.empty()) fail(ErrorKind::corrupt, "{}", text);
  written_ = sums.after;
}

void StateWatch::lend(const engine::Vector& master, const engine::Vector& weights) {
  written_[kMaster] -= engine::word_sum(master);
  written_[kWeights] -= engine::word_sum(weights);
}

void StateWatch::take_back(const engine::Vector& master, const engine::Vector& weights) {
  written_[kMaster] += engine::word_sum(master);
  written_[kWeights] += engine::word_sum(weights);
}

std::string StateWatch::damage() const { return difference(sums_now(), engine::word_sum(frozen_)); }

std::string StateWatch::difference(const engine::AdamwSums::Arrays& found, uint32_t frozen) const {
  std::vector<std::string> changed;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] != written_[i]) changed.emplace_back(kNames[i]);
  }
  if (frozen != frozen_written_) changed.emplace_back("frozen weights");
  if (changed.empty()) return "";
  return fmt::format(
      "in the memory of rank {} a bit has flipped: its {} are not what its last update left; "
      "nothing of it was saved; resume the run from its newest checkpoint",
      rank_, join(changed, " and "));
}

}  // namespace tutti::parallel
