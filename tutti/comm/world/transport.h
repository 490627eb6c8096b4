// The transport of a world's collectives, and its choice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::comm {

// automatic: NCCL where every rank has a GPU of its own (choose_transport), else shared memory
// among ranks of one host and gloo between hosts. local, gloo: nothing else. nccl: an error where
// automatic would not choose it.
//
// With NCCL the group of all ranks still goes through the hosts' memory: it carries what ranks send
// each other, which is the hosts' own, and so it also works when a GPU does not.
enum class Transport { automatic, local, gloo, nccl };

// Where a rank is.
struct RankLocation {
  std::string host;
  std::string gpu;  // what is its own there, such as "0000:1a:00.0"; empty: it computes on the host

  bool operator==(const RankLocation&) const = default;
};
// As text without a line break, and back.
std::string to_text(const RankLocation& location);
RankLocation parse_rank_location(std::string_view text);

struct TransportChoice {
  bool nccl = false;
  std::string why;  // for people; empty where no rank has a GPU
};

// From the locations of all ranks, in rank order; the same on all of them.
TransportChoice choose_transport(const std::vector<RankLocation>& locations, bool build_has_nccl);

}  // namespace tutti::comm
