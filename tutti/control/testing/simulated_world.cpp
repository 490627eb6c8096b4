#include "tutti/control/testing/simulated_world.h"

#include <algorithm>
#include <utility>

namespace tutti::control {

SimulatedWorld::One* SimulatedWorld::find(const LaunchKey& key) {
  const auto found = launches_.find({key.job, key.generation});
  return found == launches_.end() ? nullptr : &found->second;
}

void SimulatedWorld::start(const LaunchOrder& order) {
  int64_t& newest = newest_[order.key.job];
  newest = std::max(newest, order.key.generation);
  if (find(order.key) != nullptr) return;
  One one;
  one.order = order;
  one.begin_at_ms = now_ms_ + static_cast<int64_t>(draw(4) == 0 ? draw(20'000) : draw(500));
  launches_[{order.key.job, order.key.generation}] = std::move(one);
}

void SimulatedWorld::begin(One& one) {
  const LaunchKey& key = one.order.key;
  if (one.killed || key.generation < newest_[key.job]) {
    one.gone = true;  // fenced: it never runs
    return;
  }
  one.begun = true;
  // A third of the jobs work for long enough to be stopped by something.
  int64_t& left =
      left_ms_
          .try_emplace(key.job, 3'000 + static_cast<int64_t>(draw(draw(3) == 0 ? 400'000 : 40'000)))
          .first->second;
  one.ends_at_ms = now_ms_ + left;
  if (!calm && draw(4) == 0) {
    static constexpr int kCodes[] = {1, 1, 75, 75, 93, 2, 137, 139};
    one.code = kCodes[draw(8)];
    one.ends_at_ms = now_ms_ + static_cast<int64_t>(draw(static_cast<uint64_t>(left)));
  }
  one.hangs = !calm && draw(8) == 0;
  if (one.order.stop_after_ms > 0 && now_ms_ + one.order.stop_after_ms < one.ends_at_ms) {
    one.ends_at_ms = now_ms_ + one.order.stop_after_ms + static_cast<int64_t>(draw(5'000));
    one.code = 75;
  }
  one.ran = history_.size();
  history_.push_back({key.job, key.generation, one.order.claims, now_ms_, -1, std::nullopt});
}

void SimulatedWorld::end(One& one, std::optional<int> code, int64_t at_ms) {
  one.gone = true;
  Ran& ran = history_[one.ran];
  ran.ended_ms = at_ms;
  ran.exit_code = code;
  // What a launch saved need not be done again.
  if (code == 75) {
    int64_t& left = left_ms_[ran.job];
    left = std::max<int64_t>(1'000, left - (at_ms - ran.began_ms));
  }
}

void SimulatedWorld::advance_to(int64_t time_ms) {
  while (true) {
    One* next = nullptr;
    int64_t when = time_ms;
    for (auto& [id, one] : launches_) {
      if (one.gone) continue;
      const int64_t at = one.begun ? one.ends_at_ms : one.begin_at_ms;
      if (at <= when) {
        when = at;
        next = &one;
      }
    }
    if (next == nullptr) break;
    now_ms_ = std::max(now_ms_, when);
    if (next->begun) {
      end(*next, next->code, when);
    } else {
      begin(*next);
    }
  }
  now_ms_ = std::max(now_ms_, time_ms);
}

std::optional<int64_t> SimulatedWorld::next_event_ms() const {
  std::optional<int64_t> next;
  for (const auto& [id, one] : launches_) {
    if (one.gone) continue;
    const int64_t at = one.begun ? one.ends_at_ms : one.begin_at_ms;
    next = std::min(next.value_or(at), at);
  }
  return next;
}

LaunchStatus SimulatedWorld::status(const LaunchKey& key) {
  LaunchStatus status;
  const One* one = find(key);
  if (one == nullptr) return status;
  if (!one->begun) {
    // Until it begins, a killed launch cannot be distinguished from one that never existed.
    if (!one->gone && !one->killed) status.phase = LaunchPhase::starting;
    return status;
  }
  const Ran& ran = history_[one->ran];
  status.elapsed_ms = (one->gone ? ran.ended_ms : now_ms_) - ran.began_ms;
  status.exit_code = ran.exit_code;
  status.phase =
      !one->gone ? LaunchPhase::running : (ran.exit_code ? LaunchPhase::ended : LaunchPhase::lost);
  if (status.phase == LaunchPhase::lost) status.elapsed_ms = 0;
  return status;
}

void SimulatedWorld::stop(const LaunchKey& key) {
  One* one = find(key);
  if (one == nullptr || one->gone || one->logged) return;
  one->logged = true;
  if (!one->begun) {
    one->killed = true;
  } else if (!one->hangs) {
    const int64_t saved = now_ms_ + 1 + static_cast<int64_t>(draw(20'000));
    if (saved < one->ends_at_ms) {
      one->ends_at_ms = saved;
      one->code = 75;
    }
  }
}

void SimulatedWorld::kill(const LaunchKey& key) {
  int64_t& newest = newest_[key.job];
  newest = std::max(newest, key.generation);
  One* one = find(key);
  if (one == nullptr) {
    // Nothing of this generation may begin any more.
    One never;
    never.order.key = key;
    never.killed = never.gone = true;
    launches_[{key.job, key.generation}] = std::move(never);
    return;
  }
  one->killed = true;
  if (!one->gone && one->begun) end(*one, 137, now_ms_);
}

void SimulatedWorld::lose_one() {
  std::vector<One*> running;
  for (auto& [id, one] : launches_) {
    if (one.begun && !one.gone) running.push_back(&one);
  }
  if (!running.empty()) end(*running[draw(running.size())], std::nullopt, now_ms_);
}

}  // namespace tutti::control
