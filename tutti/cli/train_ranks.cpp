#include "tutti/cli/train_ranks.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/checkpoint/reader.h"
#include "tutti/cli/common.h"
#include "tutti/comm/rank_board.h"
#include "tutti/comm/rank_processes.h"
#include "tutti/spec/fit_mesh.h"
#include "tutti/train/run_folder.h"

namespace tutti::cli {
namespace {

constexpr double kLookEverySeconds = 0.02;
constexpr double kGraceSeconds = 5;        // for the other ranks, once one has failed
constexpr int64_t kFailuresAtOneStep = 3;  // in a row
constexpr int64_t kFailuresWithoutCheckpoint = 10;
constexpr int64_t kDeathsAtStart = 2;  // of the same rank in a row: it is gone for good

std::string failure_key(uint64_t generation, int64_t rank) {
  return fmt::format("generation-{}/failure/{}", generation, rank);
}

// How one generation of ranks ended.
struct GenerationEnd {
  std::vector<comm::RankExit> exits;  // in the order in which the ranks ended
  std::vector<bool> killed;           // per rank: by us, for it did not end
  std::vector<std::string> failures;  // per rank: its own words, "kind\nmessage"
  std::vector<std::string> places;    // per rank: where it was when it ended
  int64_t steps = 0;                  // the step that the furthest rank was in; 0: none yet
  bool is_well = false;               // every rank ended with 0, or every one with 75
  int code = exit_ok;
};

// One generation: the processes and what they publish.
class Generation {
 public:
  Generation(const std::vector<std::string>& words, int64_t ranks, uint64_t number,
             const comm::RankProcesses::Variables& variables)
      : number_(number),
        ranks_(ranks),
        processes_(kThisExecutable, words, ranks, variables, number) {
    end_.killed.resize(static_cast<size_t>(ranks));
    end_.failures.resize(static_cast<size_t>(ranks));
    end_.places.resize(static_cast<size_t>(ranks));
  }

  // Until all ranks have ended; passes on what signals ask for.
  GenerationEnd run() {
    double first_failure = 0;
    while (processes_.running() > 0) {
      find_board();
      pass_on_signals();
      while (const auto exit = processes_.poll()) {
        note_exit(*exit);
        if (!exit->ok() && exit->code != exit_requeue && first_failure == 0) {
          first_failure = monotonic_seconds();
        }
      }
      const bool is_late = first_failure > 0 && monotonic_seconds() - first_failure > kGraceSeconds;
      if (is_late) kill_the_rest();
      sleep_seconds(kLookEverySeconds);
    }
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      for (const std::string& key : processes_.store()->list(failure_key(number_, rank))) {
        if (key != failure_key(number_, rank)) continue;
        end_.failures[static_cast<size_t>(rank)] = processes_.store()->get(key, 0);
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

 private:
  // Made by rank 0 once the ranks have met.
  void find_board() {
    if (board_) return;
    const std::string key = comm::World::host_segment_key("board", number_, 0);
    if (processes_.store()->list(key).empty()) return;
    try {
      const int count = static_cast<int>(ranks_);
      board_.emplace(comm::make_process_segments(processes_.store())
                         ->open(key, comm::RankBoard::bytes(count), false, 0),
                     count);
    } catch (const Error&) {
      return;  // rank 0 has ended meanwhile, which is told without the board
    }
  }

  void pass_on_signals() {
    if (take_checkpoint_request()) processes_.send_signal(0, SIGUSR1);
    if (stop_signal() == 0 || stop_passed_on_) return;
    stop_passed_on_ = true;
    for (int64_t rank = 0; rank < ranks_; ++rank) processes_.send_signal(rank, stop_signal());
  }

  void note_exit(const comm::RankExit& exit) {
    end_.exits.push_back(exit);
    if (!board_) return;
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      const comm::RankState state = board_->state(static_cast<int>(rank));
      if (state.phase == comm::RankPhase::absent || state.phase == comm::RankPhase::starting) {
        continue;
      }
      end_.steps = std::max(end_.steps, state.step);
    }
    end_.places[static_cast<size_t>(exit.rank)] =
        comm::state_text(board_->state(static_cast<int>(exit.rank)), monotonic_seconds());
  }

  void kill_the_rest() {
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      if (processes_.process(rank) != 0) end_.killed[static_cast<size_t>(rank)] = true;
    }
    processes_.kill_all();
  }

  const uint64_t number_;
  const int64_t ranks_;
  comm::RankProcesses processes_;
  std::optional<comm::RankBoard> board_;
  bool stop_passed_on_ = false;
  GenerationEnd end_;
};

bool is_echo(const std::string& failure) {
  return starts_with(failure, std::string(error_kind_name(ErrorKind::peer)) + "\n");
}

// Who began it: a rank that a signal ended, or with words of its own, or that had to be killed;
// what others said is an echo of it.
comm::RankExit find_culprit(const GenerationEnd& end) {
  const auto find = [&](const auto& is_it) -> const comm::RankExit* {
    for (const comm::RankExit& exit : end.exits) {
      if (is_it(exit, static_cast<size_t>(exit.rank))) return &exit;
    }
    return nullptr;
  };
  const comm::RankExit* found =
      find([&](const auto& exit, size_t rank) { return exit.signal != 0 && !end.killed[rank]; });
  if (found == nullptr) {
    found = find([&](const auto& exit, size_t rank) {
      return !exit.ok() && !end.killed[rank] && exit.code != exit_requeue &&
             !is_echo(end.failures[rank]);
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
  if (end.killed[rank]) {
    text += "did not end and was killed";
  } else if (exit.signal != 0) {
    text += fmt::format("was ended by signal {} ({})", exit.signal, strsignal(exit.signal));
  } else if (exit.code == comm::kExitRankGone) {
    text += "said that it is gone for good";
  } else {
    text += fmt::format("ended with exit code {}", exit.code);
  }
  if (!end.places[rank].empty()) text += fmt::format(" in {}", end.places[rank]);
  const std::string& words = end.failures[rank];
  if (!words.empty()) text += ": " + words.substr(words.find('\n') + 1);
  return text;
}

class Supervisor {
 public:
  Supervisor(const TrainArguments& arguments, TrainPlan plan)
      : files_(posix_file_system()),
        plan_(std::move(plan)),
        ranks_(arguments.processes),
        least_(arguments.least_processes > 0 ? arguments.least_processes : arguments.processes),
        words_(words_of(arguments)) {}

  int run() {
    newest_ = newest_checkpoint();
    for (uint64_t generation = 1;; ++generation) {
      comm::RankProcesses::Variables variables;
      if (!note_.empty()) variables.emplace_back(kNoteVariable, note_);
      const GenerationEnd end = Generation(words_, ranks_, generation, variables).run();
      if (end.is_well) return end.code;
      if (stop_signal() != 0) {
        // The last checkpoint holds; whether this one does its own rank has said.
        fail(ErrorKind::peer, "stopping failed: {}", culprit_text(end, find_culprit(end)));
      }
      const comm::RankExit culprit = find_culprit(end);
      const std::string why = culprit_text(end, culprit);
      if (culprit.signal == 0 && !end.killed[static_cast<size_t>(culprit.rank)] &&
          (culprit.code == exit_usage || culprit.code == exit_do_not_restart)) {
        print_message(fmt::format("tutti: not started again: {}\n", why));
        return culprit.code;
      }
      decide(end, culprit, why);
    }
  }

 private:
  std::vector<std::string> words_of(const TrainArguments& arguments) const {
    std::vector<std::string> words = {"train", arguments.target};
    words.insert(words.end(), arguments.overrides.begin(), arguments.overrides.end());
    for (const std::string& file : arguments.with) words.insert(words.end(), {"--with", file});
    words.insert(words.end(), {"--run", plan_.run_folder});
    const auto number = [&](const char* name, double value) {
      words.insert(words.end(), {name, fmt::format("{}", value)});
    };
    number("--check-replicas", static_cast<double>(arguments.check_replicas_every));
    if (arguments.watchdog_seconds > 0) number("--watchdog", arguments.watchdog_seconds);
    if (arguments.trace_steps > 0) number("--trace", static_cast<double>(arguments.trace_steps));
    if (arguments.stop_after_step > 0) {
      number("--stop-after", static_cast<double>(arguments.stop_after_step));
    }
    if (arguments.json) words.emplace_back("--json");
    return words;
  }

  int64_t newest_checkpoint() const {
    int64_t newest = -1;
    for (const auto& info :
         checkpoint::list_checkpoints(files_, train::checkpoints_path(plan_.run_folder))) {
      if (info.valid) newest = std::max(newest, info.step);
    }
    return newest;
  }

  // Whether and how to go on; throws when not.
  void decide(const GenerationEnd& end, const comm::RankExit& culprit, const std::string& why) {
    if (plan_.recipe.mlperf.enabled()) {
      fail(ErrorKind::peer, "{}; an MLPerf run is not started again", why);
    }
    const int64_t newest = newest_checkpoint();
    const bool progress = newest > newest_;
    newest_ = newest;
    without_checkpoint_ = progress ? 1 : without_checkpoint_ + 1;
    at_one_step_ = !progress && end.steps == failed_step_ ? at_one_step_ + 1 : 1;
    failed_step_ = end.steps;
    const bool at_start = end.steps == 0;
    deaths_at_start_ = !at_start ? 0 : culprit.rank == died_at_start_ ? deaths_at_start_ + 1 : 1;
    died_at_start_ = culprit.rank;

    const bool is_gone = culprit.code == comm::kExitRankGone || deaths_at_start_ >= kDeathsAtStart;
    if (is_gone && least_ < ranks_) {
      go_on_without(culprit, why);
    } else if (culprit.code == comm::kExitRankGone) {
      fail(ErrorKind::peer, "{}; to go on with fewer ranks, allow it: --min-nproc", why);
    } else if (at_one_step_ >= kFailuresAtOneStep) {
      fail(ErrorKind::peer, "given up after {} failures in a row {}; the last: {}", at_one_step_,
           at_start ? std::string("before the first step") : fmt::format("in step {}", end.steps),
           why);
    } else if (without_checkpoint_ >= kFailuresWithoutCheckpoint) {
      fail(ErrorKind::peer, "given up after {} failures without a newer checkpoint; the last: {}",
           without_checkpoint_, why);
    }
    note_ = fmt::format("{}; {} ranks start again {}", why, ranks_,
                        newest < 0 ? std::string("from the beginning")
                                   : fmt::format("from the checkpoint after step {}", newest));
    print_message(fmt::format("tutti: {}\n", note_));
  }

  void go_on_without(const comm::RankExit& culprit, const std::string& why) {
    int64_t fewer = ranks_ - 1;
    while (fewer >= least_ && !spec::fits(plan_.recipe, fewer)) --fewer;
    if (fewer < least_) {
      fail(ErrorKind::peer, "{}; no layout of {} to {} ranks (--min-nproc) can go on", why, least_,
           ranks_ - 1);
    }
    print_message(fmt::format("tutti: rank {} is gone for good: {} ranks instead of {}\n",
                              culprit.rank, fewer, ranks_));
    ranks_ = fewer;
    at_one_step_ = deaths_at_start_ = 0;
  }

  FileSystem& files_;
  const TrainPlan plan_;
  int64_t ranks_;
  const int64_t least_;
  const std::vector<std::string> words_;
  std::string note_;
  int64_t newest_ = -1;  // step of the newest checkpoint when the ranks were started; -1: none
  int64_t without_checkpoint_ = 0;
  int64_t at_one_step_ = 0;
  int64_t failed_step_ = -1;
  int64_t deaths_at_start_ = 0;
  int64_t died_at_start_ = -1;
};

}  // namespace

void tell_launcher(comm::Store& store, const comm::LaunchEnvironment& environment,
                   const Error& error) noexcept {
  try {
    store.set(failure_key(environment.generation, environment.rank),
              std::string(error_kind_name(error.kind())) + "\n" + error.what());
  } catch (const Error&) {
    return;  // the launcher is gone, and this process with it
  }
}

int train_with_ranks(const TrainArguments& arguments) {
  watch_signals();
  if (arguments.parent > 0 && !end_with_parent(arguments.parent)) {
    fail(ErrorKind::io, "--end-with-parent: process {} is gone", arguments.parent);
  }
  TrainPlan plan = make_train_plan(posix_file_system(), arguments, arguments.processes, "--nproc");
  return Supervisor(arguments, std::move(plan)).run();
}

}  // namespace tutti::cli
