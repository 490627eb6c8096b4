#include "tutti/train/session/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"

namespace tutti::train {
namespace {

constexpr double kTickSeconds = 0.1;
constexpr double kFrozenSeconds = 2;   // a tick that takes longer
constexpr double kStoppedSeconds = 2;  // without showing that it runs, which it does every tick
constexpr double kLeastLimitSeconds = 10;
constexpr double kLongLimitSeconds = 600;
constexpr size_t kKnownSteps = 500;
constexpr size_t kEnoughSteps = 3;
// No rank waits for another: a step in which all are equally slow gets more time.
constexpr double kAllComputeFactor = 10;

// Else it is not there yet, or may have ended, and is silent for that.
bool is_at_work(comm::RankPhase phase) {
  return phase != comm::RankPhase::absent && phase != comm::RankPhase::finishing;
}

}  // namespace

Watchdog::Watchdog(comm::World& world, WatchdogOptions options)
    : world_(world),
      options_(options),
      board_(world.host_segment("board", comm::RankBoard::bytes(world.local_size())),
             world.local_size()),
      silence_(static_cast<size_t>(world.local_size())) {
  board_.enter(world_.local_rank(), comm::RankPhase::starting, 0);
  board_.show(world_.local_rank(), false);
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::enter(comm::RankPhase phase, int64_t step) {
  board_.enter(world_.local_rank(), phase, step);
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  awake_seconds_ = 0;
}

void Watchdog::step_done(double seconds) {
  const std::lock_guard lock(mutex_);
  steps_.push_back(seconds);
  if (steps_.size() > kKnownSteps) steps_.pop_front();
}

double Watchdog::limit_of(comm::RankPhase phase) const {
  const bool is_step = phase == comm::RankPhase::training;
  if (options_.limit_seconds > 0 && (is_step || phase == comm::RankPhase::evaluating)) {
    return options_.limit_seconds;
  }
  if (!is_step || steps_.size() < kEnoughSteps) {
    return std::max(kLongLimitSeconds, options_.limit_seconds);
  }
  std::vector<double> sorted(steps_.begin(), steps_.end());
  const size_t p99 = (sorted.size() - 1) * 99 / 100;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<int64_t>(p99), sorted.end());
  return std::max(kLeastLimitSeconds, 3 * sorted[p99]);
}

double Watchdog::limit_seconds() const {
  const std::lock_guard lock(mutex_);
  return limit_of(comm::RankPhase::training);
}

double Watchdog::take_frozen_seconds() {
  const std::lock_guard lock(mutex_);
  return std::exchange(frozen_seconds_, 0);
}

std::string Watchdog::where() const {
  return comm::state_text(board_.state(world_.local_rank()), monotonic_seconds());
}

std::string Watchdog::scene() const {
  const double now = monotonic_seconds();
  std::vector<std::string> keep_waiting;
  std::vector<std::string> gone;  // others may have learned of the failure before, and ended
  for (const comm::RankActivity& activity : world_.activity()) {
    const auto& local = world_.local_ranks();
    const auto at = std::find(local.begin(), local.end(), activity.rank);
    if (at == local.end() || activity.rank == world_.rank()) continue;
    const std::string text =
        fmt::format("{}; it was in {}", comm::activity_text(activity, now),
                    comm::state_text(board_.state(static_cast<int>(at - local.begin())), now));
    if (!activity.inside) keep_waiting.push_back(text);
    else if (!activity.alive) gone.push_back(text);
  }
  return join(keep_waiting.empty() ? gone : keep_waiting, "; ");
}

// A rank of this host that does not show any sign of life is the cause; otherwise one that is in no
// collective, by its own report where it is on this host: in a group that this rank is not in, it
// only looks idle from here.
std::string Watchdog::hang_text(bool& a_rank_waits) const {
  const double now = monotonic_seconds();
  std::vector<std::string> missing, silent;
  std::string waiting;
  for (size_t local_rank = 0; local_rank < silence_.size(); ++local_rank) {
    const comm::RankState state = board_.state(static_cast<int>(local_rank));
    if (silence_[local_rank].awake_seconds < kStoppedSeconds) continue;
    if (!silence_[local_rank].stopped && !is_at_work(state.phase)) continue;  // it has ended
    silent.push_back(fmt::format("rank {} hangs in {}", world_.local_ranks()[local_rank],
                                 comm::state_text(state, now)));
  }
  for (const comm::RankActivity& activity : world_.activity()) {
    const auto& local = world_.local_ranks();
    const auto at = std::find(local.begin(), local.end(), activity.rank);
    std::string text = fmt::format("rank {} hangs", activity.rank);
    bool waits = activity.inside;
    if (at != local.end()) {
      const comm::RankState state = board_.state(static_cast<int>(at - local.begin()));
      text += " in " + comm::state_text(state, now);
      waits = waits || state.waits;
    }
    if (activity.inside && waiting.empty()) waiting = comm::activity_text(activity, now);
    if (!waits) missing.push_back(text);
  }
  a_rank_waits = !waiting.empty() || !silent.empty();
  if (!silent.empty()) missing = silent;
  if (missing.empty()) {
    const bool one_host = world_.local_size() == world_.size();
    return (one_host ? "all ranks wait for each other; "
                     : "the ranks of other hosts do not answer, or all wait for each other; ") +
           waiting;
  }
  return join(missing, ", ") + (waiting.empty() ? "" : "; others wait: " + waiting);
}

// Counted while this rank runs, so that ranks which were all stopped together, and continued
// together, are not taken for each other's hangs.
void Watchdog::note_silence(double awake_seconds) {
  for (int local_rank = 0; local_rank < world_.local_size(); ++local_rank) {
    Silence& silence = silence_[static_cast<size_t>(local_rank)];
    const comm::RankState state = board_.state(local_rank);
    if (state.seen_seconds == 0 || state.seen_seconds != silence.seen_seconds) {
      silence = {state.seen_seconds, 0, false};
      continue;
    }
    silence.awake_seconds += awake_seconds;
    silence.stopped = silence.awake_seconds >= kStoppedSeconds && is_process_stopped(state.process);
  }
}

bool Watchdog::a_rank_is_silent(double seconds, bool stopped) const {
  for (int local_rank = 0; local_rank < world_.local_size(); ++local_rank) {
    const Silence& silence = silence_[static_cast<size_t>(local_rank)];
    const bool counts = stopped ? silence.stopped : is_at_work(board_.state(local_rank).phase);
    if (counts && silence.awake_seconds >= seconds) return true;
  }
  return false;
}

void Watchdog::look(double awake_seconds) {
  awake_seconds_ += awake_seconds;
  const std::string failure = world_.failure();
  if (!failure.empty()) {
    failed_seconds_ += awake_seconds;
    if (!options_.ends_process || failed_seconds_ < options_.patience_seconds) return;
    const std::string others = scene();
    const std::string text =
        fmt::format("tutti: rank {}: error: {}{} (this rank was in {})\n", world_.rank(), failure,
                    others.empty() ? "" : "; " + others, where());
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(nullptr);
    ::_exit(exit_failed);
  }
  bool a_rank_waits = false;
  const double stopped_limit =
      options_.limit_seconds > 0 ? options_.limit_seconds : kStoppedLimitSeconds;
  if (a_rank_is_silent(stopped_limit, true)) {
    world_.abort(fmt::format("{}; stopped for longer than {}", hang_text(a_rank_waits),
                             format_seconds(stopped_limit)));
    return;
  }
  if (!is_at_work(phase_)) return;
  double limit = limit_of(phase_);
  // A rank that does not run at all gets no longer limit while it saves than while it trains.
  const double least = limit_of(comm::RankPhase::training);
  if (awake_seconds_ >= least && a_rank_is_silent(least, false)) limit = std::min(limit, least);
  if (awake_seconds_ < limit) return;
  const std::string text = hang_text(a_rank_waits);
  if (!a_rank_waits && awake_seconds_ < kAllComputeFactor * limit) return;
  world_.abort(fmt::format("{}; over the limit of {}", text, format_seconds(limit)));
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  double last = monotonic_seconds();
  while (!stop_) {
    wake_.wait_for(lock, std::chrono::duration<double>(kTickSeconds));
    const double now = monotonic_seconds();
    const double gap = now - std::exchange(last, now);
    if (gap > kFrozenSeconds) frozen_seconds_ += gap - kTickSeconds;
    const std::vector<comm::RankActivity> activity = world_.activity();
    board_.show(world_.local_rank(),
                std::any_of(activity.begin(), activity.end(), [&](const auto& one) {
                  return one.rank == world_.rank() && one.inside;
                }));
    if (stop_) break;
    note_silence(std::min(gap, 2 * kTickSeconds));
    look(std::min(gap, 2 * kTickSeconds));
  }
}

}  // namespace tutti::train
