#include "tutti/spec/mesh/mesh.h"

#include <algorithm>

#include "tutti/base/check.h"

namespace tutti::spec {

const char* axis_name(Axis axis) {
  switch (axis) {
    case Axis::tp: return "tp";
    case Axis::cp: return "cp";
    case Axis::dp: return "dp";
    case Axis::pp: return "pp";
    case Axis::ep: return "ep";
  }
  return "?";
}

int64_t Mesh::size(Axis axis) const {
  switch (axis) {
    case Axis::tp: return tp;
    case Axis::cp: return cp;
    case Axis::dp: return dp;
    case Axis::pp: return pp;
    case Axis::ep: return ep;
  }
  return 1;
}

int64_t replicas(const Mesh& mesh, bool expert) {
  return mesh.dp * mesh.cp / (expert ? mesh.ep : 1);
}

Coordinates coordinates(const Mesh& mesh, int64_t rank) {
  TUTTI_CHECK(rank >= 0 && rank < mesh.world(), "rank {} of {}", rank, mesh.world());
  Coordinates at;
  at.tp = rank % mesh.tp;
  rank /= mesh.tp;
  at.cp = rank % mesh.cp;
  rank /= mesh.cp;
  at.dp = rank % mesh.dp;
  at.pp = rank / mesh.dp;
  return at;
}

int64_t rank_of(const Mesh& mesh, const Coordinates& at) {
  TUTTI_CHECK(at.tp >= 0 && at.tp < mesh.tp && at.cp >= 0 && at.cp < mesh.cp && at.dp >= 0 &&
                  at.dp < mesh.dp && at.pp >= 0 && at.pp < mesh.pp,
              "tp {} cp {} dp {} pp {} outside the mesh", at.tp, at.cp, at.dp, at.pp);
  return ((at.pp * mesh.dp + at.dp) * mesh.cp + at.cp) * mesh.tp + at.tp;
}

LayerRange stage_layers(const Mesh& mesh, int64_t layers, int64_t stage) {
  const int64_t stages = mesh.virtual_stages();
  TUTTI_CHECK(stage >= 0 && stage < stages, "virtual stage {} of {}", stage, stages);
  TUTTI_CHECK(stages <= layers, "{} virtual stages for {} layers", stages, layers);
  const int64_t most = (layers + stages - 1) / stages;
  const int64_t missing = most * stages - layers;  // < stages
  const int64_t from_end = (missing + 1) / 2;      // stages at the end with one layer less
  const int64_t from_start = missing / 2;
  const int64_t taken_before =
      std::min(stage, from_start) + std::max<int64_t>(0, stage - (stages - from_end));
  const bool shorter = stage < from_start || stage >= stages - from_end;
  return {stage * most - taken_before, most - (shorter ? 1 : 0)};
}

}  // namespace tutti::spec
