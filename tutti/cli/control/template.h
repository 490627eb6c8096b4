// A job as other systems take it: text to be given to them, with the environment contract of
// docs/launch.md (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TUTTI_SECRET), exit codes and
// signals.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::cli {

struct TemplateJob {
  std::string name;        // made a DNS label
  std::string recipe;      // as the container sees it
  std::string run_folder;  // on the volume
  std::string image;
  std::string claim;  // persistent volume claim that holds recipe, data and run
  int64_t pods = 1;   // one rank each
  int64_t cores = 0;  // of each pod; 0: not said
  int64_t gpus = 0;
  int64_t max_restarts = 4;
  int64_t copy_every = 0;  // steps between copies in the memory of two pods; 0: none
};

// JobSet of Kubernetes (jobset.x-k8s.io/v1alpha2): one indexed job of as many pods as ranks.
std::string jobset_yaml(const TemplateJob& job);

// PyTorchJob of Kubeflow's training operator (kubeflow.org/v1), which sets the ranks' environment.
std::string pytorchjob_yaml(const TemplateJob& job);

}  // namespace tutti::cli
