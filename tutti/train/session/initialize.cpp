#include "tutti/train/session/initialize.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "tutti/base/rng.h"

namespace tutti::train {
namespace {

// Calls fill(out, count, first) for parts of [0, count) on threads; values don't depend on the
// split.
template <typename Fill>
void fill_on_threads(float* out, int64_t count, const Fill& fill) {
  constexpr int64_t kPerThread = int64_t{1} << 18;
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  const int64_t parts = std::clamp<int64_t>(count / kPerThread, 1, std::max<int64_t>(cores, 1));
  if (parts == 1) return fill(out, count, uint64_t{0});
  std::vector<std::thread> threads;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = count * part / parts;
    const int64_t end = count * (part + 1) / parts;
    threads.emplace_back([=] { fill(out + begin, end - begin, static_cast<uint64_t>(begin)); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void initialize_parameter(const spec::PlacedParam& placed, uint64_t seed, float* out) {
  const spec::Param& param = placed.param;
  const uint64_t key = stream_key(seed, "init", placed.name);
  std::fill(out, out + placed.shard.count(), 0.0F);
  spec::visit_runs(param, placed.shard, [&](const spec::ShardRun& run) {
    float* at = out + run.local_first;
    const auto global = static_cast<uint64_t>(run.global_first);
    switch (param.init) {
      case spec::Init::zeros: break;
      case spec::Init::ones: std::fill(at, at + run.count, 1.0F); break;
      case spec::Init::normal:
        fill_on_threads(at, run.count, [&](float* part, int64_t n, uint64_t first) {
          fill_normal(part, n, key, global + first, 0, static_cast<float>(param.init_std));
        });
        break;
      case spec::Init::uniform:
        fill_on_threads(at, run.count, [&](float* part, int64_t n, uint64_t first) {
          fill_uniform(part, n, key, global + first, static_cast<float>(param.init_bound));
        });
        break;
    }
  });
}

}  // namespace tutti::train
