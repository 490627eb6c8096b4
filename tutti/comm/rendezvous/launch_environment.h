// The identity of this process among the ranks of a run, as its launcher sets it in the
// environment.
//
// Read in this order: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (torchrun's and everybody's
// convention), SLURM_PROCID ... (srun), OMPI_COMM_WORLD_RANK ... (mpirun), PMIX_RANK. Two that
// disagree are an error naming both, but for launchers within launchers, whose outer variables
// speak of the inner launcher: everything under torchrun (TORCHELASTIC_RUN_ID), Slurm's under
// mpirun. Slurm's also mean nothing outside of srun (a job without SLURM_STEP_ID: a batch script).
// Without any, the process is a world of its own.
//
// Ranks meet at a store (tcp_store.h) that rank 0 serves at MASTER_ADDR:MASTER_PORT. Under torchrun
// that port belongs to its agent: the store takes the first free of the kStorePorts ports behind
// it, and ranks look for it there; the session identifies it as theirs. Slurm gives address (first
// host of the step) and port (from the job's number) where MASTER_* are not set; mpirun on one host
// a port from its name space. A launcher of our own serves the store itself and says where, how the
// session is called, and which start of its ranks this is: TUTTI_STORE=host:port, TUTTI_SESSION,
// TUTTI_GENERATION.
//
// TUTTI_SECRET, or the file that TUTTI_SECRET_FILE names, must be the same on all ranks; worlds of
// more than one host do not start without.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/rendezvous/store.h"
#include "tutti/comm/world/world.h"

namespace tutti::comm {

struct LaunchEnvironment {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;  // among the ranks of this host
  int64_t local_size = 1;
  uint64_t generation = 1;  // grows when the launcher starts its ranks again
  std::string launcher;     // "torchrun", "slurm", "mpirun", "pmix", "environment", "none"

  std::string address;           // of the store
  std::vector<int> ports;        // it is at one of these
  bool store_is_served = false;  // by the launcher, not by rank 0
  std::string session;           // names the run, so that two on one machine do not meet
  std::string secret;
};

inline constexpr int kStorePorts = 8;

// The value of a variable, if it is set and not empty.
using ReadVariable = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> read_process_variable(const std::string& name);

// Throws usage naming variables and values.
LaunchEnvironment read_launch_environment(const ReadVariable& read = read_process_variable);

// "n[01-03,7],login" -> n01, n02, n03, n7, login (Slurm's notation). Throws usage.
std::vector<std::string> expand_hosts(const std::string& hosts);

// Serves the store (rank 0, unless the launcher does) or connects to it. Throws peer when there is
// none within the timeout, permission when the secrets differ. Null for a world of one rank.
std::shared_ptr<Store> meet_at_store(const LaunchEnvironment& environment, double timeout_seconds);

// The world of this launch: meets at the store, then the other ranks. Throws usage when the mesh
// has another number of ranks than the launcher started, and as meet_at_store and World do.
std::unique_ptr<World> join_world(const LaunchEnvironment& environment, const spec::Mesh& mesh,
                                  double timeout_seconds = 60,
                                  Transport transport = Transport::automatic);
// The same with the store that meet_at_store has returned. `gpu` and `device`: what this rank
// computes on, if it is not the host (WorldOptions).
std::unique_ptr<World> join_world(const LaunchEnvironment& environment, const spec::Mesh& mesh,
                                  std::shared_ptr<Store> store, double timeout_seconds,
                                  Transport transport, const std::string& gpu = "",
                                  int device = -1);

}  // namespace tutti::comm
