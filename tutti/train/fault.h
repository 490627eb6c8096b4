// Faults on request, for tests: the environment variable
//
//   TUTTI_FAULT="rank=1 step=5 at=backward do=kill"
//
// lets rank 1 kill itself when it comes to its first backward pass of step 5. `at`: an action of
// the schedule (spec/schedule.h), start, evaluate or save. `do`: kill, stop (SIGSTOP), hang, exit,
// gone (exit code kExitRankGone), throw, flip (a bit of its parameters), slow (`seconds` of sleep,
// from that step on). `generation`: of the world in which it happens, 1 by default; 0: in all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/spec/schedule.h"

namespace tutti::train {

enum class FaultKind { kill, stop, hang, exit, gone, raise, flip, slow };

struct Fault {
  int64_t rank = 0;
  int64_t step = 1;
  std::string at = "forward";
  FaultKind kind = FaultKind::kill;
  double seconds = 1;
  uint64_t generation = 1;

  bool due(int64_t now_step, const std::string& where) const {
    return where == at && (kind == FaultKind::slow ? now_step >= step : now_step == step);
  }
};

// Throws usage naming what is wrong with the text.
Fault parse_fault(const std::string& text);

// Of this rank in this generation, as the environment says.
std::optional<Fault> requested_fault(int64_t rank, uint64_t generation);

// Does it; `weights`: what is flipped a bit in.
void strike(const Fault& fault, void* weights);

}  // namespace tutti::train
