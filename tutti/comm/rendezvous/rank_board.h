// What every rank of a host is doing, in memory that they share with each other and with their
// launcher: for watchdogs, and for reports of where a dead or silent rank was.
//
// A rank writes its own slot only; readers take no lock, so a state that is just changing may be
// torn. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "tutti/comm/local/segment.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::comm {

enum class RankPhase : uint32_t { absent, starting, training, evaluating, saving, finishing };

struct RankState {
  RankPhase phase = RankPhase::absent;
  int64_t step = 0;  // of the run: that which is trained, or after which it evaluates or saves
  bool in_action = false;  // of the step's schedule; set only while training
  spec::Action action;
  double since_seconds = 0;  // monotonic time at which the phase or the action began
  double seen_seconds = 0;   // monotonic time at which it last showed that it runs; 0: never
  bool waits = false;        // it was then inside a collective
  int process = 0;           // its id; 0: not known
};

// Where it is, to follow "in": "step 17, backward of micro-batch 1, for 3.2 s"; "start-up, for 1
// s".
std::string state_text(const RankState& state, double now_seconds);

class RankBoard {
 public:
  static int64_t bytes(int ranks);
  // `segment` of bytes(ranks), zero at first.
  RankBoard(std::shared_ptr<Segment> segment, int ranks);

  int ranks() const { return ranks_; }
  void enter(int rank, RankPhase phase, int64_t step) const;
  void enter(int rank, const spec::Action& action) const;
  // The rank runs, and waits in a collective or not.
  void show(int rank, bool waits) const;
  RankState state(int rank) const;

 private:
  struct Slot;
  std::shared_ptr<Segment> segment_;
  int ranks_ = 0;
  Slot* slots_ = nullptr;
};

}  // namespace tutti::comm
