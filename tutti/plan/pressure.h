// What breaks first when a run grows: how near it is to each of its limits, and what that means in
// one sentence. Every pressure is what is used over what there is, so 1 is the limit:
//
//   memory       bytes of the fullest rank over the chip's
//   power        watts of a rack over the site's cap (where both are stated)
//   network      exposed communication over half of the step: at 1 it takes as long as all the rest
//   failures     share of the wall time lost to failures and checkpoints over a half
//   parallelism  pipeline bubble over half of the step: too few micro-batches for so many ranks
//
// The halves are a choice of ours: beyond them more chips are spent on the loss than on the model.
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/choice.h"

namespace tutti::plan {

struct Pressure {
  std::string key;
  double used = 0;   // of the limit
  std::string text;  // "a rank needs 120 GiB of 268 GiB"
};

// Largest first.
std::vector<Pressure> pressures(const Choice& choice, const RunTerms& terms);

// "Breaks first: memory: ... (214% of the limit). Next: failures: ... (38% of the limit)."
std::string pressure_sentence(const std::vector<Pressure>& pressures);

}  // namespace tutti::plan
