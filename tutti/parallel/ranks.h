// Where a rank stands in the mesh, and whom it computes with. Groups are null where they would be
// of one rank; alone, all of them are.
#pragma once

#include <initializer_list>

#include "tutti/comm/group.h"
#include "tutti/comm/world.h"
#include "tutti/engine/stream.h"
#include "tutti/model/groups.h"
#include "tutti/spec/mesh.h"

namespace tutti::parallel {

struct Ranks {
  spec::Coordinates at;
  comm::Group* world = nullptr;
  comm::Group* replicas = nullptr;         // dp x cp: the same parameters
  comm::Group* expert_replicas = nullptr;  // of those, the same experts
  comm::Group* pipeline = nullptr;         // the stages, in their order
  model::Groups layers;                    // who shares its layers
};

// Of a rank of `world`, which must outlive what is returned. Collective: makes the groups.
Ranks ranks_of(comm::World& world);

// Sums a few numbers over all ranks; every rank gets the same. Each travels as two f32, so whole
// numbers up to 2^24 per rank are exact and others keep 48 bits less what f32 sums round.
void sum_over_world(const Ranks& ranks, engine::Stream& stream,
                    std::initializer_list<double*> values);

}  // namespace tutti::parallel
