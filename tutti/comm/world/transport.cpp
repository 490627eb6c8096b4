#include "tutti/comm/world/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::comm {

std::string to_text(const RankLocation& location) { return location.host + "\t" + location.gpu; }

RankLocation parse_rank_location(std::string_view text) {
  const size_t tab = text.find('\t');
  if (tab == std::string_view::npos) return {std::string(text), ""};
  return {std::string(text.substr(0, tab)), std::string(text.substr(tab + 1))};
}

TransportChoice choose_transport(const std::vector<RankLocation>& locations, bool build_has_nccl) {
  const auto without =
      std::find_if(locations.begin(), locations.end(),
                   [](const RankLocation& location) { return location.gpu.empty(); });
  const auto any = std::any_of(locations.begin(), locations.end(),
                               [](const auto& location) { return !location.gpu.empty(); });
  if (!any) return {};
  if (without != locations.end()) {
    return {false, fmt::format("through the hosts' memory: rank {} has no GPU",
                               without - locations.begin())};
  }
  std::map<std::pair<std::string, std::string>, size_t> first;
  for (size_t rank = 0; rank < locations.size(); ++rank) {
    const auto [other, is_new] =
        first.emplace(std::pair(locations[rank].host, locations[rank].gpu), rank);
    if (is_new) continue;
    return {false,
            fmt::format("through the hosts' memory, slowly: ranks {} and {} share the GPU {}",
                        other->second, rank, locations[rank].gpu)};
  }
  if (!build_has_nccl) {
    return {false, "through the hosts' memory, slowly: this build has no NCCL"};
  }
  return {true, "NCCL: one GPU per rank"};
}

}  // namespace tutti::comm
