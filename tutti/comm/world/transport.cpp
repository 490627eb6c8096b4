#include "tutti/comm/world/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::comm {

std::string to_text(const RankPlace& place) { return place.host + "\t" + place.gpu; }

RankPlace parse_rank_place(std::string_view text) {
  const size_t tab = text.find('\t');
  if (tab == std::string_view::npos) return {std::string(text), ""};
  return {std::string(text.substr(0, tab)), std::string(text.substr(tab + 1))};
}

TransportChoice choose_transport(const std::vector<RankPlace>& places, bool build_has_nccl) {
  const auto without = std::find_if(places.begin(), places.end(),
                                    [](const RankPlace& place) { return place.gpu.empty(); });
  const auto any = std::any_of(places.begin(), places.end(),
                               [](const auto& place) { return !place.gpu.empty(); });
  if (!any) return {};
  if (without != places.end()) {
    return {false,
            fmt::format("through the hosts' memory: rank {} has no GPU", without - places.begin())};
  }
  std::map<std::pair<std::string, std::string>, size_t> first;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const auto [other, is_new] =
        first.emplace(std::pair(places[rank].host, places[rank].gpu), rank);
    if (is_new) continue;
    return {false,
            fmt::format("through the hosts' memory, slowly: ranks {} and {} share the GPU {}",
                        other->second, rank, places[rank].gpu)};
  }
  if (!build_has_nccl) {
    return {false, "through the hosts' memory, slowly: this build has no NCCL"};
  }
  return {true, "NCCL: one GPU per rank"};
}

}  // namespace tutti::comm
