#include "tutti/node/copy_bandwidth.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/machine.h"
#include "tutti/engine/arena.h"

namespace tutti::node {

double measure_copy_bandwidth(int repeats, int64_t bytes) {
  const engine::Arena from("copy source", bytes);
  const engine::Arena to("copy target", bytes);
  std::memset(from.data(), 1, static_cast<size_t>(bytes));
  const int threads = describe_machine().cores;
  double best = 0;
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    const double begin = monotonic_seconds();
    std::vector<std::thread> workers;
    for (int64_t i = 0; i < threads; ++i) {
      const int64_t first = bytes * i / threads;
      const int64_t count = bytes * (i + 1) / threads - first;
      workers.emplace_back([&, first, count] {
        std::memcpy(static_cast<char*>(to.data()) + first,
                    static_cast<const char*>(from.data()) + first, static_cast<size_t>(count));
      });
    }
    for (std::thread& worker : workers) worker.join();
    const double seconds = monotonic_seconds() - begin;
    if (repeat > 0) best = std::max(best, 2.0 * static_cast<double>(bytes) / seconds);
  }
  return best;
}

double measure_copy_bandwidth(engine::Stream& stream) {
  if (stream.memory() == engine::ArenaKind::host) return measure_copy_bandwidth();
  constexpr int64_t kBytes = int64_t{1} << 30;
  constexpr int kAtOnce = 10;
  const engine::Arena from("copy source", kBytes, stream.memory());
  const engine::Arena to("copy target", kBytes, stream.memory());
  from.poison(0, kBytes);
  double best = 0;
  for (int repeat = 0; repeat <= 5; ++repeat) {
    stream.synchronize();
    const double begin = monotonic_seconds();
    for (int i = 0; i < kAtOnce; ++i) stream.transfer(to.data(), from.data(), kBytes);
    stream.synchronize();
    const double seconds = (monotonic_seconds() - begin) / kAtOnce;
    if (repeat > 0) best = std::max(best, 2.0 * static_cast<double>(kBytes) / seconds);
  }
  return best;
}

}  // namespace tutti::node
