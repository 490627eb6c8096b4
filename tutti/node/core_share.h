// The cores of a rank: ranks of one host take disjoint ones of equal number, those of a rank close
// to each other and so to one part of the memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::node {

struct CoreShare {
  std::vector<int> cores;  // as the system numbers its hardware threads, ascending
  int sharing = 1;         // ranks that have the same: more than one with more ranks than cores
};

// Of rank `local_rank` of the `local_size` of this host, out of the cores that this process may
// use. With more ranks than cores each has one core, which others have too.
CoreShare share_cores(int64_t local_rank, int64_t local_size);

// Whether this process may use all its cores: it has not been bound yet.
bool may_use_all_cores();

// Runs this thread, and those that it starts from now on, on these cores only. Throws unsupported.
// Memory that they are the first to write then lies near them.
void bind_to(const CoreShare& share);

// "0-3,8".
std::string cores_text(const std::vector<int>& cores);

}  // namespace tutti::node
