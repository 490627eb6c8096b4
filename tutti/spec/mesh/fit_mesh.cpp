#include "tutti/spec/mesh/fit_mesh.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::spec {
namespace {

constexpr size_t kShownLayouts = 3;

int64_t largest_divisor(int64_t number, int64_t most) {
  int64_t divisor = std::clamp<int64_t>(most, 1, number);
  while (number % divisor != 0) --divisor;
  return divisor;
}

// `recipe` on `mesh`; nullopt when that cannot be, with the reason in `why` where it is asked for.
std::optional<Recipe> on_mesh(const Recipe& recipe, const Mesh& mesh,
                              std::optional<Error>* why = nullptr) {
  Recipe out = recipe;
  out.parallel = mesh;
  if (replicas(mesh) == 1) out.parallel.zero = 0;
  try {
    if (out.batch.global % mesh.dp != 0) {
      fail(ErrorKind::usage, "batch.global: {} is not a multiple of dp {}", out.batch.global,
           mesh.dp);
    }
    out.batch.micro = largest_divisor(out.batch.global / mesh.dp, recipe.batch.micro);
    validate(out);
    check_executable(out, mesh.world());
    return out;
  } catch (const Error& error) {
    if (why != nullptr) *why = error;
    return std::nullopt;
  }
}

std::optional<Recipe> on_ranks(const Recipe& recipe, int64_t ranks,
                               std::optional<Error>* why = nullptr) {
  Mesh mesh = recipe.parallel;
  mesh.dp = 1;
  const int64_t unit = mesh.world();
  if (ranks % unit != 0) {
    if (why != nullptr) {
      *why =
          Error(ErrorKind::usage,
                fmt::format("parallel: {} ranks are not a multiple of tp {} x pp {} x cp {} = {}",
                            ranks, mesh.tp, mesh.pp, mesh.cp, unit));
    }
    return std::nullopt;
  }
  mesh.dp = ranks / unit;
  return on_mesh(recipe, mesh, why);
}

// Layouts of exactly `ranks` ranks, those closest to what the recipe says first.
std::vector<Mesh> layouts_of(const Recipe& recipe, int64_t ranks) {
  const Mesh& wanted = recipe.parallel;
  const auto distance = [&](const Mesh& mesh) {
    double sum = 0;
    for (const Axis axis : {Axis::tp, Axis::pp, Axis::cp, Axis::ep}) {
      sum += std::abs(
          std::log2(static_cast<double>(mesh.size(axis)) / static_cast<double>(wanted.size(axis))));
    }
    return sum;
  };
  std::vector<std::pair<double, Mesh>> found;
  const auto divisors = [](int64_t number) {
    std::vector<int64_t> out;
    for (int64_t d = 1; d <= number; ++d) {
      if (number % d == 0) out.push_back(d);
    }
    return out;
  };
  if (ranks > 4096) return {};
  for (const int64_t tp : divisors(ranks)) {
    for (const int64_t pp : divisors(ranks / tp)) {
      for (const int64_t cp : divisors(ranks / tp / pp)) {
        Mesh mesh = wanted;
        mesh.tp = tp;
        mesh.pp = pp;
        mesh.cp = cp;
        mesh.dp = ranks / (tp * pp * cp);
        if (pp == 1) mesh.vpp = 1;
        if (on_mesh(recipe, mesh)) found.emplace_back(distance(mesh), mesh);
      }
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Mesh> out;
  for (size_t i = 0; i < std::min(found.size(), kShownLayouts); ++i) {
    out.push_back(found[i].second);
  }
  return out;
}

std::vector<std::string> nearest_layouts(const Recipe& recipe, int64_t ranks) {
  std::vector<std::string> out;
  for (const Mesh& mesh : layouts_of(recipe, ranks)) {
    out.push_back(fmt::format("{} ranks as {}", ranks, mesh_text(mesh)));
  }
  const int64_t most = std::min<int64_t>(2 * ranks + recipe.parallel.world(), 4096);
  for (const int64_t step : {-1, 1}) {
    for (int64_t other = ranks + step; other >= 1 && other <= most; other += step) {
      const auto found = on_ranks(recipe, other);
      if (!found) continue;
      out.push_back(fmt::format("{} ranks as {}", other, mesh_text(found->parallel)));
      break;
    }
  }
  return out;
}

}  // namespace

std::string mesh_text(const Mesh& mesh) {
  std::string text = fmt::format("dp {}", mesh.dp);
  for (const Axis axis : {Axis::tp, Axis::pp, Axis::cp, Axis::ep}) {
    if (mesh.size(axis) > 1) text += fmt::format(" {} {}", axis_name(axis), mesh.size(axis));
  }
  if (mesh.vpp > 1) text += fmt::format(" vpp {}", mesh.vpp);
  if (mesh.zero > 0) text += fmt::format(" zero {}", mesh.zero);
  return text;
}

std::vector<std::string> fit_mesh(Recipe& recipe, int64_t ranks, const std::string& origin) {
  std::optional<Error> why;
  const auto fitted = on_ranks(recipe, ranks, &why);
  if (!fitted) {
    const std::vector<std::string> near = nearest_layouts(recipe, ranks);
    throw Error(why->kind(), fmt::format("{}: {}{}", origin, why->what(),
                                         near.empty() ? "" : "; nearest: " + join(near, ", ")));
  }
  std::vector<std::string> changes;
  if (fitted->parallel.dp != recipe.parallel.dp) {
    changes.push_back(fmt::format("dp {} (from {})", fitted->parallel.dp, origin));
  }
  if (fitted->parallel.zero != recipe.parallel.zero) {
    changes.push_back(
        fmt::format("zero 0 (no rank has a replica; the recipe says {})", recipe.parallel.zero));
  }
  if (fitted->batch.micro != recipe.batch.micro) {
    changes.push_back(fmt::format("micro-batch {} (of {} sequences per rank and step)",
                                  fitted->batch.micro, fitted->batch.global / fitted->parallel.dp));
  }
  recipe = *fitted;
  return changes;
}

bool fits(const Recipe& recipe, int64_t ranks) { return on_ranks(recipe, ranks).has_value(); }

}  // namespace tutti::spec
