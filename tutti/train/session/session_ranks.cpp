// What a session's ranks exchange between steps.
#include <algorithm>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/train/session/budget.h"
#include "tutti/train/session/session_internal.h"

namespace tutti::train {

// Exchanges the ranks' reports, so that all make the same decisions until the next exchange.
void Session::agree() {
  const double every = recipe_.checkpoint.every_seconds;
  step_report_.stop_signal = stop_signal();
  step_report_.asked_to_save = take_checkpoint_request() ? 1 : 0;
  step_report_.writer_is_busy = writer_->busy() ? 1 : 0;
  step_report_.save_is_due = every > 0 && monotonic_seconds() - last_save_ >= every ? 1 : 0;
  step_report_.over_budget = budget_exceeded(recipe_.run.budget, elapsed()) ? 1 : 0;
  if (watchdog_) step_report_.frozen_seconds = watchdog_->take_frozen_seconds();
  const std::vector<StepReport> reports = consensus_.exchange(step_report_);
  const bool was_asked_to_save = agreed_.asked_to_save;
  agreed_ = consensus_.agree(reports);
  agreed_.asked_to_save = agreed_.asked_to_save || was_asked_to_save;
  report_slow_ranks(reports);
}

void Session::report_slow_ranks(const std::vector<StepReport>& reports) {
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].frozen_seconds == 0) continue;
    telemetry_.warn(fmt::format(
        "rank {} was frozen for {:.1f} s up to step {}: it was stopped, or its machine was", rank,
        reports[rank].frozen_seconds, state_.step));
  }
  if (step_report_.own_seconds <= 0) return;
  for (const auto& [rank, factor] : slow_ranks_.note(reports)) {
    telemetry_.warn(
        fmt::format("rank {} is slow: its own part of a step took more than {} times the median of "
                    "all ranks for {} steps, now {:.1f} times",
                    rank, SlowRanks::kFactor, SlowRanks::kSteps, factor));
  }
}

// No rank saves before it knows that no rank has found damage.
void Session::check_memory() {
  for (const std::string& damage : consensus_.exchange_text(trainer_.state().damage())) {
    if (!damage.empty()) fail(ErrorKind::corrupt, "{}", damage);
  }
}

bool Session::replicas_are_due_after(int64_t step) const {
  const int64_t every = options_.check_replicas_every;
  return options_.world != nullptr && every > 0 && step % every == 0;
}

void Session::check_replicas() {
  const spec::Mesh& mesh = recipe_.parallel;
  if (options_.check_replicas_every <= 0 || options_.world == nullptr) return;
  check_memory();
  if (checked_step_ == state_.step) return;
  checked_step_ = state_.step;
  if (spec::replicas(mesh) == 1 || mesh.zero >= 3) return;
  const std::vector<int64_t> damaged =
      damaged_replicas(mesh, consensus_.exchange(trainer_.state().weights_hash()));
  if (damaged.empty()) return;
  std::vector<std::string> ranks;
  ranks.reserve(damaged.size());
  for (const int64_t rank : damaged) ranks.push_back(std::to_string(rank));
  fail(ErrorKind::corrupt,
       "after step {} the parameters of rank{} {} are not those of the other{}: a bit has flipped "
       "in memory or in a computation; nothing of it was saved; resume the run from its newest "
       "checkpoint",
       state_.step, ranks.size() == 1 ? "" : "s", join(ranks, " and "),
       ranks.size() == 1 ? " ranks that hold the same" : "");
}

// In the middle of something: any rank's signal stops all.
bool Session::asked_to_stop() {
  const auto signals = consensus_.exchange(int32_t{stop_signal()});
  return std::any_of(signals.begin(), signals.end(), [](int32_t signal) { return signal != 0; });
}

}  // namespace tutti::train
