#include "tutti/comm/collectives/bench.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/engine/arena.h"

namespace tutti::comm {
namespace {

using engine::Stream;
using engine::Vector;

constexpr int kBatches = 5;
constexpr double kBatchSeconds = 0.1;

// Every rank gets the largest value of all.
double largest(Group& group, Stream& stream, double value) {
  auto nanoseconds = static_cast<int64_t>(value * 1e9);
  const Vector one = {&nanoseconds, DType::i64, 1};
  group.all_reduce(stream, one, one, Reduce::max).wait(stream);
  return static_cast<double>(nanoseconds) * 1e-9;
}

// Seconds of `calls` runs of body(), as the slowest rank sees them.
template <typename Body>
double time_calls(Group& group, Stream& stream, int64_t calls, const Body& body) {
  group.barrier(stream).wait(stream);
  const double begin = monotonic_seconds();
  Ticket last;
  for (int64_t call = 0; call < calls; ++call) last = body();
  last.wait(stream);
  return largest(group, stream, monotonic_seconds() - begin);
}

struct Kind {
  const char* name;
  double bus_factor;
  std::function<Ticket()> call;
};

// `buffer` holds size() * piece elements.
std::vector<Kind> kinds(Group& group, Stream& stream, Vector buffer, Vector other) {
  const int n = group.size();
  const int64_t piece = buffer.count / n;
  const double share = static_cast<double>(n - 1) / n;
  const Vector mine = {static_cast<float*>(buffer.data) + group.rank() * piece, DType::f32, piece};
  return {
      {"all_reduce", 2 * share,
       [=, &group, &stream] { return group.all_reduce(stream, buffer, buffer); }},
      {"reduce_scatter", share,
       [=, &group, &stream] { return group.reduce_scatter(stream, buffer, mine); }},
      {"all_gather", share,
       [=, &group, &stream] { return group.all_gather(stream, mine, buffer); }},
      {"all_to_all", share,
       [=, &group, &stream] { return group.all_to_all(stream, buffer, other); }},
      {"broadcast", 1, [=, &group, &stream] { return group.broadcast(stream, buffer, 0); }},
      {"send_receive", 1,
       [=, &group, &stream] {
         const Ticket received = group.shift(stream, buffer, other).received;
         received.wait(stream);
         return received;
       }},
  };
}

}  // namespace

double measure_copies(World& world, Stream& stream, int64_t bytes, int cores) {
  const engine::Arena from("copy source", bytes);
  const engine::Arena to("copy target", bytes);
  Group& group = world.all();
  const bool copies = world.local_rank() < cores;
  const int64_t ranks = std::min<int64_t>(world.size(), cores);
  double best = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    const double seconds = time_calls(group, stream, 4, [&] {
      if (copies) std::memcpy(to.data(), from.data(), static_cast<size_t>(bytes));
      return Ticket();
    });
    best = std::max(best, 4 * static_cast<double>(ranks * bytes) / seconds);
  }
  return best;
}

std::vector<CollectiveBench> bench_collectives(
    World& world, Stream& stream, const std::vector<int64_t>& sizes_bytes,
    const std::function<void(int64_t done, int64_t total)>& progress) {
  Group& group = world.all();
  const int64_t unit = group.size() * static_cast<int64_t>(sizeof(float));
  const auto rounded = [&](int64_t bytes) { return (bytes + unit - 1) / unit * unit; };
  const int64_t most = rounded(*std::max_element(sizes_bytes.begin(), sizes_bytes.end()));
  const engine::Arena arena("buffer", most, engine::ArenaKind::shared);
  const engine::Arena second("second buffer", most, engine::ArenaKind::shared);
  world.share(arena);
  world.share(second);
  const int64_t total = static_cast<int64_t>(sizes_bytes.size()) *
                        static_cast<int64_t>(kinds(group, stream, {}, {}).size());
  int64_t done = 0;
  std::vector<CollectiveBench> out;
  for (const int64_t size : sizes_bytes) {
    const int64_t bytes = rounded(size);
    const Vector buffer = {arena.data(), DType::f32, bytes / 4};
    const Vector other = {second.data(), DType::f32, bytes / 4};
    for (const Kind& kind : kinds(group, stream, buffer, other)) {
      const double once = std::min(time_calls(group, stream, 1, kind.call),
                                   time_calls(group, stream, 2, kind.call) / 2);
      const auto calls = static_cast<int64_t>(std::clamp(kBatchSeconds / once, 1.0, 2000.0));
      std::vector<double> seconds;
      for (int batch = 0; batch < kBatches; ++batch) {
        seconds.push_back(time_calls(group, stream, calls, kind.call) / static_cast<double>(calls));
      }
      std::sort(seconds.begin(), seconds.end());
      CollectiveBench bench;
      bench.name = kind.name;
      bench.bytes = bytes;
      bench.seconds = seconds[kBatches / 2];
      bench.algorithm_bytes_per_second = static_cast<double>(bytes) / bench.seconds;
      bench.bus_bytes_per_second = bench.algorithm_bytes_per_second * kind.bus_factor;
      out.push_back(std::move(bench));
      progress(++done, total);
    }
  }
  // The arenas end here, and no rank may still use them.
  group.barrier(stream).wait(stream);
  return out;
}

}  // namespace tutti::comm
