#include "tutti/launch/generation.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/comm/world/world.h"

namespace tutti::launch {
namespace {

constexpr double kLookEverySeconds = 0.02;
constexpr double kGraceSeconds = 5;    // for the other ranks, once one has failed
constexpr double kGraceIfStopped = 1;  // for those that are stopped, and cannot end
// For the other ranks to say first what a stopped one was doing.
constexpr double kWatchdogFirstSeconds = 5;

bool is_echo(const std::string& failure) {
  return starts_with(failure, std::string(error_kind_name(ErrorKind::peer)) + "\n");
}

bool is_dead_node(const GenerationEnd& end, size_t rank) {
  return rank < end.nodes.size() && std::find(end.dead_nodes.begin(), end.dead_nodes.end(),
                                              end.nodes[rank]) != end.dead_nodes.end();
}

}  // namespace

std::string failure_key(uint64_t generation, int64_t rank) {
  return fmt::format("generation-{}/failure/{}", generation, rank);
}

Generation::Generation(std::unique_ptr<comm::StartedRanks> ranks, int64_t count, uint64_t number,
                       double stopped_seconds)
    : number_(number),
      ranks_(count),
      processes_(std::move(ranks)),
      stopped_limit_(stopped_seconds + kWatchdogFirstSeconds),
      stopped_seconds_(static_cast<size_t>(count)) {
  end_.killed.resize(static_cast<size_t>(ranks_));
  end_.stopped.resize(static_cast<size_t>(ranks_));
  end_.failures.resize(static_cast<size_t>(ranks_));
  end_.last_activity.resize(static_cast<size_t>(ranks_));
}

GenerationEnd Generation::run() {
  double first_failure = 0;
  double last = monotonic_seconds();
  while (processes_->running() > 0) {
    const double now = monotonic_seconds();
    // A watcher that was itself stopped has not watched meanwhile.
    kill_if_stopped_for_long(std::min(now - std::exchange(last, now), 10 * kLookEverySeconds));
    find_board();
    pass_on_signals();
    while (const auto exit = processes_->poll()) {
      note_exit(*exit);
      if (!exit->ok() && exit->code != exit_requeue && first_failure == 0) {
        first_failure = monotonic_seconds();
      }
    }
    // Where ranks end together, the first to fail has said so.
    if (first_failure == 0 && has_failure()) first_failure = monotonic_seconds();
    const double since = first_failure > 0 ? monotonic_seconds() - first_failure : 0;
    if (since > kGraceIfStopped) kill_the_rest(since <= kGraceSeconds);
    sleep_seconds(kLookEverySeconds);
  }
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    for (const std::string& key : processes_->store()->list(failure_key(number_, rank))) {
      if (key != failure_key(number_, rank)) continue;
      end_.failures[static_cast<size_t>(rank)] = processes_->store()->get(key, 0);
    }
  }
  const auto all_end_with = [&](int code) {
    return std::all_of(end_.exits.begin(), end_.exits.end(), [&](const comm::RankExit& exit) {
      return exit.signal == 0 && exit.code == code;
    });
  };
  end_.is_well = all_end_with(exit_ok) || all_end_with(exit_requeue);
  if (end_.is_well) end_.code = end_.exits.front().code;
  return end_;
}

// Made by rank 0 once the ranks have met; only ranks of this host have one that can be read here.
void Generation::find_board() {
  if (board_ || !processes_->are_here()) return;
  const std::string key = comm::World::host_segment_key("board", number_, 0);
  if (processes_->store()->list(key).empty()) return;
  try {
    const int count = static_cast<int>(ranks_);
    board_.emplace(comm::make_process_segments(processes_->store())
                       ->open(key, comm::RankBoard::bytes(count), false, 0),
                   count);
  } catch (const Error&) {
    return;  // rank 0 has ended meanwhile, which is reported without the board
  }
}

bool Generation::has_failure() const {
  return !processes_->are_here() &&
         !processes_->store()->list(fmt::format("generation-{}/failure/", number_)).empty();
}

void Generation::pass_on_signals() {
  if (take_checkpoint_request()) processes_->send_signal(0, SIGUSR1);
  if (stop_signal() == 0 || stop_passed_on_) return;
  stop_passed_on_ = true;
  for (int64_t rank = 0; rank < ranks_; ++rank) processes_->send_signal(rank, stop_signal());
}

void Generation::note_exit(const comm::RankExit& exit) {
  end_.exits.push_back(exit);
  if (!board_) return;
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    const comm::RankState state = board_->state(static_cast<int>(rank));
    if (state.phase == comm::RankPhase::absent || state.phase == comm::RankPhase::starting) {
      continue;
    }
    end_.steps = std::max(end_.steps, state.step);
  }
  end_.last_activity[static_cast<size_t>(exit.rank)] =
      comm::state_text(board_->state(static_cast<int>(exit.rank)), monotonic_seconds());
}

void Generation::kill_the_rest(bool only_stopped) {
  if (!processes_->are_here()) {
    if (!only_stopped) processes_->kill_all();
    return;
  }
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    if (!processes_->is_running(rank) || (only_stopped && !processes_->is_stopped(rank))) continue;
    kill_rank(rank, only_stopped);
  }
}

// A stopped process is not slow: it does nothing until it gets SIGCONT.
void Generation::kill_if_stopped_for_long(double awake_seconds) {
  if (!processes_->are_here()) return;
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    double& seconds = stopped_seconds_[static_cast<size_t>(rank)];
    seconds = processes_->is_stopped(rank) ? seconds + awake_seconds : 0;
    if (seconds >= stopped_limit_) kill_rank(rank, true);
  }
}

void Generation::kill_rank(int64_t rank, bool is_stopped) {
  end_.killed[static_cast<size_t>(rank)] = true;
  if (is_stopped) end_.stopped[static_cast<size_t>(rank)] = true;
  processes_->send_signal(rank, SIGKILL);
}

comm::RankExit find_culprit(const GenerationEnd& end) {
  const auto find = [&](const auto& is_it) -> const comm::RankExit* {
    for (const comm::RankExit& exit : end.exits) {
      if (is_it(exit, static_cast<size_t>(exit.rank))) return &exit;
    }
    return nullptr;
  };
  const comm::RankExit* found =
      find([&](const auto& /*exit*/, size_t rank) { return is_dead_node(end, rank); });
  if (found == nullptr) {
    found = find([&](const auto& exit, size_t rank) {
      return exit.signal != 0 && exit.is_own && !end.killed[rank];
    });
  }
  const auto failed = [&](const comm::RankExit& exit, size_t rank) {
    return !exit.ok() && !end.killed[rank] && exit.code != exit_requeue;
  };
  if (found == nullptr) {
    found = find([&](const auto& exit, size_t rank) {
      return failed(exit, rank) && !end.failures[rank].empty() && !is_echo(end.failures[rank]);
    });
  }
  if (found == nullptr) {
    found = find([&](const auto& /*exit*/, size_t rank) { return bool{end.stopped[rank]}; });
  }
  // Without a word: of its own accord, or because its watchdog gave up waiting; of ranks with one
  // exit code for all, the one that could say nothing any more.
  if (found == nullptr) {
    found = find([&](const auto& exit, size_t rank) {
      return end.failures[rank].empty() && (!exit.is_own || failed(exit, rank));
    });
  }
  if (found == nullptr) {
    found = find([&](const auto& /*exit*/, size_t rank) { return bool{end.killed[rank]}; });
  }
  if (found == nullptr) found = find([](const auto& exit, size_t) { return !exit.ok(); });
  return found == nullptr ? end.exits.front() : *found;
}

std::string culprit_text(const GenerationEnd& end, const comm::RankExit& exit) {
  const auto rank = static_cast<size_t>(exit.rank);
  std::string text = fmt::format("rank {} ", exit.rank);
  if (is_dead_node(end, rank)) {
    text += fmt::format("was lost with its node {}", end.nodes[rank]);
  } else if (end.killed[rank]) {
    text += "did not end and was killed";
  } else if (exit.signal != 0) {
    text += fmt::format("was ended by signal {} ({})", exit.signal, strsignal(exit.signal));
  } else if (exit.code == comm::kExitRankGone) {
    text += "reported a permanent failure";
  } else {
    text += fmt::format("ended with exit code {}", exit.code);
  }
  if (!end.last_activity[rank].empty()) text += fmt::format(" in {}", end.last_activity[rank]);
  const std::string& words = end.failures[rank];
  if (!words.empty()) text += ": " + words.substr(words.find('\n') + 1);
  return text;
}

}  // namespace tutti::launch
