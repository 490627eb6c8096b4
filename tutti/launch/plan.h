// The arguments and the plan of `tutti train`: recipe, mesh and run folder, decided once for all
// ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::launch {

struct TrainArguments {
  std::string target;
  std::vector<std::string> overrides;
  std::vector<std::string> with;
  std::string run;
  int64_t trace_steps = 0;
  int64_t stop_after_step = 0;
  int64_t processes = 0;        // 0: not said
  int64_t least_processes = 0;  // 0: as many as `processes`
  double watchdog_seconds = 0;
  int64_t check_replicas_every = 100;
  int64_t copy_every = 0;
  int64_t ranks_per_node = 0;  // over the nodes of a Slurm job; 0: on this machine
  std::string node_check;      // command that a node must pass before it is used; empty: none
  std::string notice;          // file whose appearance means: save and stop; empty: none
  bool force_resume = false;   // although the run folder does not fit together
  bool dry_run = false;
  bool verbose = false;  // print the whole recipe
  int parent = 0;        // process that must not die before this one; 0: any may
  bool json = false;
};

struct TrainPlan {
  spec::Recipe recipe;
  std::string run_folder;
  std::vector<std::string> mesh_changes;  // what the number of ranks changed in the recipe
};

// ranks 0: not given, the mesh is the recipe's. `origin`: where it was given. Throws what is wrong
// with the recipe, its files, the run folder or the number of ranks.
TrainPlan make_train_plan(FileSystem& files, const TrainArguments& arguments, int64_t ranks,
                          const std::string& origin);

// On standard error: what is trained on what, sizes, the mesh; `verbose`: all of the recipe before.
void print_train_plan(const TrainPlan& plan, int64_t memory_bytes, bool verbose);

// As text for other ranks, and back.
std::string to_text(const TrainPlan& plan);
TrainPlan parse_train_plan(const std::string& text);

}  // namespace tutti::launch
