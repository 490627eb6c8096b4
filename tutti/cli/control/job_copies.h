// Copies in the memory of hosts (train/session/peer_copies.h) of runs that are jobs: they are there
// for as long as a launch lasts, and none is left when it has ended, however it did.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/spec/recipe/recipe.h"

namespace tutti::cli {

inline constexpr const char* kSweepVerb = "sweep-copies";  // not for people

// Steps between copies of a job on so many nodes: `asked`, or where that is -1 one step on two
// nodes or more where the recipe's device is the CPU, and none elsewhere.
int64_t copies_of_job(int64_t asked, int64_t nodes, const spec::Recipe& recipe);

// Of a Kubernetes JobSet: none, since it restarts with new pods, and the memory of the former ones
// is gone with them. Throws usage where some are asked for.
int64_t copies_of_job_set(int64_t asked);

// What a command's words say about them: steps, and 0 where there are none.
int64_t copies_of_words(const std::vector<std::string>& words);
std::string copies_text(int64_t steps);

// When a launch with these words has ended: nothing takes its copies any more, and unless its ranks
// saved, which clears what they held, they leave the memory of this machine or, within a Slurm job,
// of all nodes of it that answer. Prints what could not be done; never throws.
void clear_job_copies(const std::vector<std::string>& words, std::optional<int> exit_code) noexcept;

// The same of a run whose job will not be launched again, on this machine alone. What is left on
// others goes when the next run with copies starts there.
void forget_job_copies(const std::string& run_folder) noexcept;

}  // namespace tutti::cli
