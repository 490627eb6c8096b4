#include "tutti/train/initialize.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "tutti/base/rng.h"

namespace tutti::train {
namespace {

// Normals for elements [0, count), split over threads; the values don't depend on the split.
void fill_normal_threads(float* out, int64_t count, uint64_t key, float std) {
  constexpr int64_t kPerThread = int64_t{1} << 18;
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  const int64_t parts = std::clamp<int64_t>(count / kPerThread, 1, std::max<int64_t>(cores, 1));
  std::vector<std::thread> threads;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = count * part / parts;
    const int64_t end = count * (part + 1) / parts;
    threads.emplace_back(
        [=] { fill_normal(out + begin, end - begin, key, static_cast<uint64_t>(begin), 0, std); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void initialize_parameters(const spec::ParamLayout& layout, uint64_t seed, float* flat) {
  std::fill(flat, flat + layout.elements, 0.0F);
  for (const spec::PlacedParam& placed : layout.params) {
    float* out = flat + placed.element_offset;
    const int64_t count = placed.param.count();
    switch (placed.param.init) {
      case spec::Init::zeros: break;
      case spec::Init::ones: std::fill(out, out + count, 1.0F); break;
      case spec::Init::normal:
        fill_normal_threads(out, count, stream_key(seed, "init", placed.name),
                            static_cast<float>(placed.param.init_std));
        break;
    }
  }
}

}  // namespace tutti::train
