// Coordinates of a rank in the mesh, and its groups. Groups of a single rank are null.
#pragma once

#include "tutti/comm/group.h"
#include "tutti/comm/world/world.h"
#include "tutti/model/groups.h"
#include "tutti/spec/mesh/mesh.h"

namespace tutti::parallel {

struct Ranks {
  spec::Coordinates at;
  int local_rank = 0;               // on its host
  int device = -1;                  // of its host, which is to be this rank's; -1: not chosen
  comm::World* home = nullptr;      // that the groups are of
  comm::Group* world = nullptr;     // for exchanges between hosts
  comm::Group* sums = nullptr;      // the same ranks, for what their streams sum
  comm::Group* replicas = nullptr;  // dp x cp: the same parameters
  comm::Group* expert_replicas = nullptr;     // of those, the same experts
  comm::Group* pipeline = nullptr;            // the stages, in their order
  comm::Group* pipeline_gradients = nullptr;  // the same, for what goes backward
  comm::Group* pipeline_ends = nullptr;       // first and last stage, on these two
  model::Groups layers;                       // ranks that share its layers
  comm::Group* tensor_copies = nullptr;       // of layers.tp, the same key/value heads
};

// Of a rank of `world`, which must outlive what is returned. Collective: makes the groups.
// kv_heads: of the model, which tensor parallel ranks may hold several times.
Ranks ranks_of(comm::World& world, int64_t kv_heads);

}  // namespace tutti::parallel
