// Pressures: how close a run is to each of its limits, what breaks first when it grows, and what
// that means in one sentence. Every pressure is usage over capacity, so 1 is the limit:
//
//   memory       bytes of the fullest rank over the chip's
//   power        watts of a rack over the site's cap (if both are stated)
//   network      exposed communication over half of the step: at 1 it takes as long as all the rest
//   failures     share of the wall time lost to failures and checkpoints over a half
//   parallelism  pipeline bubble over half of the step: too few micro-batches for so many ranks
//
// The halves are our choice: beyond them more chips are spent on the loss than on the model.
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/choice.h"

namespace tutti::plan {

struct Pressure {
  std::string key;
  double used = 0;   // share of the limit
  std::string text;  // "a rank needs 120 GiB of 268 GiB"
};

// Largest first.
std::vector<Pressure> pressures(const Choice& choice, const RunTerms& terms);

// "Breaks first: memory: ... (214% of the limit). Next: failures: ... (38% of the limit)."
std::string pressure_sentence(const std::vector<Pressure>& pressures);

}  // namespace tutti::plan
