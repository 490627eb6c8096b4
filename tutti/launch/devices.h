// The accelerator of a rank of a command, with the cores near it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/rendezvous/launch_environment.h"
#include "tutti/comm/rendezvous/store.h"
#include "tutti/comm/world/world.h"
#include "tutti/node/device_binding.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::launch {

struct RankDevice {
  std::string gpu;  // its address; empty: the recipe computes on the processor
  int device = -1;
  int threads = 0;                     // cores that were taken instead of others; 0: none were
  std::vector<std::string> gpus_here;  // of all ranks of this host
};

// Chooses it with all ranks' in mind (node/device_binding.h); `alone`: the first. Absent: the
// recipe computes on the processor, or there is none.
std::optional<node::DeviceBinding> choose_device(const spec::Recipe& recipe,
                                                 const comm::LaunchEnvironment& environment,
                                                 bool alone);

// Announces the choice to the others, and moves this rank to the cores near it where `bind`. Rank 0
// prints all of them on standard error when `verbose`. Collective; store null: alone.
RankDevice take_device(const std::optional<node::DeviceBinding>& chosen,
                       const comm::LaunchEnvironment& environment, comm::Store* store, bool bind,
                       bool verbose);

// How the ranks of a recipe with accelerators exchange data, and the settings of NCCL, which are
// put into its environment. Nothing where they compute on the processor.
void use_transport(const comm::World& world, bool verbose);

}  // namespace tutti::launch
