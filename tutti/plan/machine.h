// This machine as systems of the catalog: a chip with its measured ceilings, and, for ranks that
// share its cores and memory, chips with an equal share each.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tutti/catalog/systems.h"
#include "tutti/plan/constants.h"

namespace tutti::plan {

// Measured upper bounds of the machine's rates and sizes.
struct MachineCeilings {
  double bf16_flops = 0;
  double f32_flops = 0;
  double bytes_per_second = 0;  // of a copy: read and written
  double memory_bytes = 0;
  // Per rank, between ranks that share it, by a ring's formula; 0: shared_memory_link.
  double link_bytes_per_second = 0;
};

// The share of one of `ranks` that compute at the same time.
MachineCeilings share_of(const MachineCeilings& ceilings, int64_t ranks);

// Bytes per second of the link between `ranks` that share memory, for which a ring's formula gives
// the time of their sum. A rank sums its part S/n of all n buffers and copies the other parts: S/n
// (n + 1) + 2 S (n-1)/n = S (3 - 1/n) bytes read or written, where the ring sends 2 S (n-1)/n.
double shared_memory_link(double copied_bytes_per_second, int64_t ranks);

// A system of `ranks` ranks on one such machine, one node; "NAME" for one rank, else "NAME-RANKS".
// Its chips are of generation NAME: they use the constants of one rank, unless others are given.
catalog::System machine_system(const std::string& name, const MachineCeilings& ceilings,
                               int64_t ranks = 1);

// Ranks on the machine that were measured themselves: constants of their own chip generation.
struct MeasuredRanks {
  int64_t ranks = 2;
  MachineCeilings ceilings;  // of all of them together
  Constants constants;
};

// The files that define the machine as systems of the catalog, one for every number of ranks that
// divides `threads`: paths below a catalog folder, contents.
std::vector<std::pair<std::string, std::string>> machine_files(
    const std::string& name, const MachineCeilings& ceilings, int64_t threads,
    const Constants& constants, const std::string& source, const std::string& date,
    const std::vector<MeasuredRanks>& measured = {});

}  // namespace tutti::plan
