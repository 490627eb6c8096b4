#include "tutti/launch/output.h"

#include <fmt/format.h>

#include "tutti/comm/rendezvous/launch_environment.h"
#include "tutti/comm/rendezvous/rank_processes.h"

namespace tutti::launch {

std::string rank_prefix() {
  const auto rank = comm::read_process_variable("RANK");
  const auto size = comm::read_process_variable("WORLD_SIZE");
  return rank && size && *size != "1" ? fmt::format("rank {}: ", *rank) : std::string();
}

bool answers_for_the_command() {
  const std::string prefix = rank_prefix();
  return !comm::has_launcher() && (prefix.empty() || prefix == "rank 0: ");
}

}  // namespace tutti::launch
