#include "tutti/node/link_probe.h"

#include <algorithm>

#include "tutti/base/clock.h"
#include "tutti/base/quantile.h"
#include "tutti/engine/arena.h"

namespace tutti::node {
namespace {

using comm::Group;
using engine::Stream;
using engine::Vector;

constexpr int64_t kBytes = int64_t{16} << 20;
constexpr int kRoundTrips = 100;
constexpr int kTransfers = 5;

// Seconds of one round trip of `buffer`, begun by `first`; both ends take part.
double round_trip(Group& group, Stream& stream, Vector buffer, int peer, bool first) {
  const double begin = monotonic_seconds();
  if (first) {
    group.send(stream, buffer, peer).wait(stream);
    group.receive(stream, buffer, peer).wait(stream);
  } else {
    group.receive(stream, buffer, peer).wait(stream);
    group.send(stream, buffer, peer).wait(stream);
  }
  return monotonic_seconds() - begin;
}

double median_round_trip(Group& group, Stream& stream, Vector buffer, int peer, bool first,
                         int times) {
  std::vector<double> seconds;
  for (int i = 0; i <= times; ++i) {
    const double took = round_trip(group, stream, buffer, peer, first);
    if (i > 0) seconds.push_back(took);  // the first connects
  }
  return quantile(seconds, 0.5);
}

// The links 0-1, 2-3, ... (round 0), 1-2, 3-4, ... (round 1), and the one that closes the ring
// where it would share a rank with those (round 2).
int round_of(int64_t link, int64_t ranks) {
  if (link == ranks - 1 && ranks % 2 == 1) return 2;
  return static_cast<int>(link % 2);
}

double all_reduce_rate(Group& group, Stream& stream, Vector buffer) {
  std::vector<double> seconds;
  for (int i = 0; i <= kTransfers; ++i) {
    group.barrier(stream).wait(stream);
    const double begin = monotonic_seconds();
    group.all_reduce(stream, buffer, buffer).wait(stream);
    if (i > 0) seconds.push_back(monotonic_seconds() - begin);
  }
  const auto n = static_cast<double>(group.size());
  const auto bytes = static_cast<double>(buffer.count) * sizeof(float);
  return 2 * (n - 1) / n * bytes / quantile(seconds, 0.5);
}

}  // namespace

LinkProbe probe_links(comm::World& world, Stream& stream) {
  Group& group = world.all();
  const int64_t ranks = group.size();
  const int64_t links = ranks == 2 ? 1 : ranks;
  const engine::Arena arena("link probe", kBytes);
  const Vector large = {arena.data(), DType::f32, kBytes / 4};
  const Vector small = {arena.data(), DType::f32, 1};
  // Of each link: nanoseconds one way, bytes per second; from the rank where it begins.
  std::vector<int64_t> table(static_cast<size_t>(2 * links), 0);
  for (int round = 0; round < 3; ++round) {
    group.barrier(stream).wait(stream);
    for (int64_t link = 0; link < links; ++link) {
      const bool begins = link == group.rank();
      const bool ends = (link + 1) % ranks == group.rank();
      if (round_of(link, ranks) != round || (!begins && !ends)) continue;
      const auto peer = static_cast<int>(begins ? (link + 1) % ranks : link);
      const double latency = median_round_trip(group, stream, small, peer, begins, kRoundTrips) / 2;
      const double transfer = median_round_trip(group, stream, large, peer, begins, kTransfers) / 2;
      if (!begins) continue;
      table[static_cast<size_t>(2 * link)] = static_cast<int64_t>(latency * 1e9);
      table[static_cast<size_t>(2 * link + 1)] =
          static_cast<int64_t>(static_cast<double>(kBytes) / transfer);
    }
  }
  const Vector all = {table.data(), DType::i64, 2 * links};
  group.all_reduce(stream, all, all, comm::Reduce::max).wait(stream);
  LinkProbe out;
  for (int64_t link = 0; link < links; ++link) {
    out.links.push_back({link, static_cast<double>(table[static_cast<size_t>(2 * link)]) * 1e-9,
                         static_cast<double>(table[static_cast<size_t>(2 * link + 1)])});
  }
  const double rate = all_reduce_rate(group, stream, large);
  // The slowest rank's, so that all have the same.
  auto slowest = -static_cast<int64_t>(rate);
  const Vector one = {&slowest, DType::i64, 1};
  group.all_reduce(stream, one, one, comm::Reduce::max).wait(stream);
  out.all_reduce_bytes_per_second = -static_cast<double>(slowest);
  return out;
}

}  // namespace tutti::node
