// Faults on request, for tests: the environment variable
//
//   TUTTI_FAULT="rank=1 step=5 at=backward do=kill"
//
// lets rank 1 kill itself when it comes to its first backward pass of step 5. `at`: an action of
// the schedule (spec/schedule/schedule.h), start, evaluate or save. `do`: kill, stop (SIGSTOP),
// hang, exit, gone (exit code kExitRankGone), throw, flip (a bit), slow (`seconds` of sleep, from
// that step on). `in`: where a bit flips: weights, which the model computes with; gradient; or, of
// what the rank owns of the state, param, adamw.m or adamw.v. `generation`: of the world in which
// it happens, 1 by default; 0: in all. Several faults are separated by semicolons; of each rank the
// first of a generation happens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/spec/schedule/schedule.h"

namespace tutti::train {

enum class FaultKind { kill, stop, hang, exit, gone, raise, flip, slow };

struct Fault {
  int64_t rank = 0;
  int64_t step = 1;
  std::string at = "forward";
  FaultKind kind = FaultKind::kill;
  std::string in = "weights";
  double seconds = 1;
  uint64_t generation = 1;

  bool due(int64_t now_step, const std::string& where) const {
    return where == at && (kind == FaultKind::slow ? now_step >= step : now_step == step);
  }
};

// Throws usage naming what is wrong with the text.
std::vector<Fault> parse_faults(const std::string& text);

// Of this rank in this generation, as the environment says.
std::optional<Fault> requested_fault(int64_t rank, uint64_t generation);

// Does it; `byte`: what is flipped a bit in.
void strike(const Fault& fault, void* byte);

}  // namespace tutti::train
