// One start of all ranks of a run (a generation): what they publish while they run, and which of
// them ended it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/comm/rendezvous/rank_board.h"
#include "tutti/comm/rendezvous/rank_processes.h"

namespace tutti::launch {

// How one generation of ranks ended.
struct GenerationEnd {
  std::vector<comm::RankExit> exits;       // in the order in which the ranks ended
  std::vector<bool> killed;                // per rank: by us, for it did not end
  std::vector<bool> stopped;               // of these: it did not run at all
  std::vector<std::string> failures;       // per rank: its own words, "kind\nmessage"
  std::vector<std::string> last_activity;  // per rank: what it was doing when it ended
  std::vector<std::string> nodes;          // per rank, where known
  std::vector<std::string> dead_nodes;
  int64_t steps = 0;     // the step that the furthest rank was in; 0: none yet
  bool is_well = false;  // every rank ended with 0, or every one with 75
  int code = 0;
};

class Generation {
 public:
  // A rank that is stopped (SIGSTOP) for longer than `stopped_seconds` and that the watchdogs of
  // the others have not ended by then, because they do not run or are not there yet, is killed
  // here.
  Generation(std::unique_ptr<comm::StartedRanks> ranks, int64_t count, uint64_t number,
             double stopped_seconds);

  // Until all ranks have ended; passes on what signals ask for.
  GenerationEnd run();

 private:
  void find_board();
  void pass_on_signals();
  bool has_failure() const;
  void note_exit(const comm::RankExit& exit);
  void kill_the_rest(bool only_stopped);
  void kill_if_stopped_for_long(double awake_seconds);
  void kill_rank(int64_t rank, bool is_stopped);

  const uint64_t number_;
  const int64_t ranks_;
  std::unique_ptr<comm::StartedRanks> processes_;
  std::optional<comm::RankBoard> board_;
  const double stopped_limit_;
  std::vector<double> stopped_seconds_;  // per rank: for which it has been stopped, while this ran
  bool stop_passed_on_ = false;
  GenerationEnd end_;
};

// The culprit: a rank whose node is gone, or that a signal ended, or that ended with words of its
// own, or that was stopped, or ended without a word, or had to be killed; what others said is an
// echo of it.
comm::RankExit find_culprit(const GenerationEnd& end);
std::string culprit_text(const GenerationEnd& end, const comm::RankExit& exit);

// Where a rank leaves its words for its launcher.
std::string failure_key(uint64_t generation, int64_t rank);

}  // namespace tutti::launch
