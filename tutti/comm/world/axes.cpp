#include "tutti/comm/world/axes.h"

#include "tutti/base/check.h"
#include "tutti/base/text.h"

namespace tutti::comm {

using spec::Axis;
using spec::Coordinates;

namespace {

constexpr Axis kAxes[] = {Axis::dp, Axis::cp, Axis::ep, Axis::tp, Axis::pp};

int64_t data_index(const spec::Mesh& mesh, const Coordinates& at) {
  return at.dp * mesh.cp + at.cp;
}

template <typename Same>
std::vector<int64_t> select(const spec::Mesh& mesh, int64_t rank, const Same& same) {
  const Coordinates mine = coordinates(mesh, rank);
  std::vector<int64_t> ranks;
  for (int64_t other = 0; other < mesh.world(); ++other) {
    if (same(mine, coordinates(mesh, other))) ranks.push_back(other);
  }
  return ranks;
}

}  // namespace

std::string Axes::name() const {
  std::vector<std::string> names;
  for (const Axis axis : kAxes) {
    if (has(axis)) names.emplace_back(spec::axis_name(axis));
  }
  return join(names, " x ");
}

std::vector<int64_t> members(const spec::Mesh& mesh, int64_t rank, Axes axes) {
  const bool expert = axes.has(Axis::ep);
  TUTTI_CHECK(!expert || (!axes.has(Axis::dp) && !axes.has(Axis::cp)),
              "{}: ep is a part of dp x cp", axes.name());
  TUTTI_CHECK(!expert || mesh.dp * mesh.cp % mesh.ep == 0, "ep {} does not divide dp {} x cp {}",
              mesh.ep, mesh.dp, mesh.cp);
  return select(mesh, rank, [&](const Coordinates& a, const Coordinates& b) {
    if (!axes.has(Axis::tp) && a.tp != b.tp) return false;
    if (!axes.has(Axis::pp) && a.pp != b.pp) return false;
    if (expert) return data_index(mesh, a) / mesh.ep == data_index(mesh, b) / mesh.ep;
    return (axes.has(Axis::dp) || a.dp == b.dp) && (axes.has(Axis::cp) || a.cp == b.cp);
  });
}

std::vector<int64_t> expert_replicas(const spec::Mesh& mesh, int64_t rank) {
  return select(mesh, rank, [&](const Coordinates& a, const Coordinates& b) {
    return a.tp == b.tp && a.pp == b.pp &&
           data_index(mesh, a) % mesh.ep == data_index(mesh, b) % mesh.ep;
  });
}

std::vector<int64_t> tensor_copies(const spec::Mesh& mesh, int64_t rank, int64_t count) {
  TUTTI_CHECK(count > 0 && mesh.tp % count == 0, "{} copies on tp {}", count, mesh.tp);
  return select(mesh, rank, [&](const Coordinates& a, const Coordinates& b) {
    return a.pp == b.pp && a.dp == b.dp && a.cp == b.cp && a.tp / count == b.tp / count;
  });
}

std::vector<int64_t> pipeline_ends(const spec::Mesh& mesh, int64_t rank) {
  const std::vector<int64_t> stages = members(mesh, rank, Axis::pp);
  return {stages.front(), stages.back()};
}

}  // namespace tutti::comm
