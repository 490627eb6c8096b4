// Twenty layouts drawn at random in each run. The seed is printed; TUTTI_LAYOUTS_SEED repeats it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "tests/layouts/models.h"
#include "tests/layouts/not_yet.h"
#include "tutti/base/error.h"
#include "tutti/base/rng.h"
#include "tutti/base/text.h"

namespace tutti::train {
namespace {

using namespace testing;

constexpr int kLayouts = 20;
constexpr int64_t kMostRanks = 8;

class Draw {
 public:
  explicit Draw(uint64_t seed) : key_(stream_key(seed, "layouts")) {}

  // One of [0, count).
  int64_t below(int64_t count) {
    return static_cast<int64_t>(random_u64(key_, next_++) % static_cast<uint64_t>(count));
  }
  int64_t one_of(const std::vector<int64_t>& values) {
    return values[static_cast<size_t>(below(static_cast<int64_t>(values.size())))];
  }

  Layout layout() {
    Layout out;
    out.kind = static_cast<Kind>(below(3));
    spec::Mesh& mesh = out.mesh;
    int64_t left = 1 + below(kMostRanks);
    const auto take = [&](int64_t& size) {
      size = 1 + below(left);
      left /= size;
    };
    for (const int64_t axis : {below(2), below(2) + 2, int64_t{0}, int64_t{1}, int64_t{2}}) {
      if (axis == 0) take(mesh.dp);
      if (axis == 1) take(mesh.tp);
      if (axis == 2) take(mesh.pp);
      if (axis == 3) take(mesh.cp);
    }
    if (mesh.pp > 1) {
      mesh.vpp = one_of({1, 1, 2});
      if (mesh.vpp == 1 && below(3) == 0) mesh.pipeline = spec::Pipeline::zero_bubble;
    }
    if (out.kind == Kind::experts) mesh.ep = one_of({1, 2, 2, 4});
    if (spec::replicas(mesh) > 1) mesh.zero = below(4);
    out.micro = one_of({1, 1, 2, 3});
    if (out.kind != Kind::experts) out.dropout = one_of({0, 0, 1}) == 1 ? 0.1 : 0;
    out.recompute = below(4) == 0;
    out.adapters = below(6) == 0;
    return out;
  }

 private:
  uint64_t key_;
  uint64_t next_ = 0;
};

bool is_valid(const Layout& layout) {
  const spec::Recipe recipe = recipe_of(layout);
  if (recipe.batch.global % (recipe.batch.micro * recipe.parallel.dp) != 0) return false;
  try {
    spec::validate(recipe);
  } catch (const Error&) {
    return false;
  }
  return true;
}

uint64_t seed_of_run() {
  const char* given = std::getenv("TUTTI_LAYOUTS_SEED");
  if (given != nullptr) return std::strtoull(given, nullptr, 10);
  return static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) %
         1000000000;
}

TEST(DrawnLayouts, AreAsOneRank) {
  const uint64_t seed = seed_of_run();
  fmt::print("TUTTI_LAYOUTS_SEED={}\n", seed);
  SCOPED_TRACE(fmt::format("repeat with TUTTI_LAYOUTS_SEED={}", seed));
  Draw draw(seed);
  std::set<std::string> seen;
  int tried = 0;
  for (int draws = 0; tried < kLayouts; ++draws) {
    ASSERT_LT(draws, 100000) << "no more layouts to draw";
    const Layout layout = draw.layout();
    if (layout.mesh.world() == 1 || layout.mesh.world() > kMostRanks || !is_valid(layout) ||
        !seen.insert(text_of(layout)).second) {
      continue;
    }
    if (!is_to_be_tried(recipe_of(layout), text_of(layout))) continue;
    fmt::print("{}\n", text_of(layout));
    expect_same_as_alone(layout);
    ++tried;
  }
}

}  // namespace
}  // namespace tutti::train
