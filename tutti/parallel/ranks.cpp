#include "tutti/parallel/ranks.h"

#include "tutti/base/check.h"
#include "tutti/spec/model/shard.h"

namespace tutti::parallel {

Ranks ranks_of(comm::World& world, int64_t kv_heads) {
  const spec::Mesh& mesh = world.mesh();
  Ranks ranks;
  ranks.at = spec::coordinates(mesh, world.rank());
  ranks.local_rank = world.local_rank();
  ranks.device = world.device();
  ranks.home = &world;
  if (world.size() > 1) {
    ranks.world = &world.all();
    ranks.sums = &world.all_computing();
  }
  if (spec::replicas(mesh) > 1) {
    ranks.replicas = &world.group({spec::Axis::dp, spec::Axis::cp});
  }
  if (mesh.ep > 1 && spec::replicas(mesh, true) > 1) {
    ranks.expert_replicas = &world.expert_replicas();
  }
  const auto along = [&](spec::Axis axis) {
    return mesh.size(axis) > 1 ? &world.group(axis) : nullptr;
  };
  ranks.pipeline = along(spec::Axis::pp);
  ranks.pipeline_gradients = mesh.vpp > 1 ? &world.pipeline_gradients() : ranks.pipeline;
  if (mesh.pp > 1 && (ranks.at.pp == 0 || ranks.at.pp == mesh.pp - 1)) {
    ranks.pipeline_ends = &world.pipeline_ends();
  }
  ranks.layers = {along(spec::Axis::tp), along(spec::Axis::cp), along(spec::Axis::ep)};
  TUTTI_CHECK(kv_heads > 0, "{} key/value heads", kv_heads);
  const int64_t copies = spec::tensor_copies(kv_heads, mesh);
  if (copies > 1) ranks.tensor_copies = &world.tensor_copies(copies);
  return ranks;
}

}  // namespace tutti::parallel
