// State of a run besides its tensors; saving and restoring both.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/checkpoint/store/snapshot.h"
#include "tutti/train/session/peer_copies.h"
#include "tutti/train/session/rank_consensus.h"
#include "tutti/train/step/trainer.h"

namespace tutti::train {

struct RunState {
  int64_t step = 0;     // steps taken, skipped ones included
  int64_t updates = 0;  // steps applied: the optimizer's bias correction counts these
  int64_t skipped = 0;  // non-finite steps
  int64_t nonfinite_in_a_row = 0;
  int64_t tokens = 0;
  double elapsed_seconds = 0;  // training and evaluation, over all sessions of the run
  double last_loss = 0;
  std::optional<double> validation_loss;  // of the last evaluation,
  int64_t evaluated_step = -1;            // which was after this step
  std::optional<double> best_validation_loss;
  std::optional<double> time_to_target_seconds;  // set when the target was reached
  std::optional<checkpoint::Base> base;          // of the adapters
  std::optional<checkpoint::Teacher> teacher;
  // Of the run, from its first step on: distinguishes its checkpoints from those of another run.
  // Empty in checkpoints of earlier versions, and of what is not a run.
  std::string run_id;
  Json corpora;  // which corpora it learns from: identify_corpora (lineage.h); null: not known
};

// The fields that decide whether parameters of one model fit another.
Json describe_model(const spec::ModelConfig& model);
// The same with "lora", where there are adapters: what a checkpoint of the recipe's run holds.
Json describe_model(const spec::Recipe& recipe);

// The state as a checkpoint stores it, with the recipe (saved_recipe, resume.h).
// next_sample = step * global batch.
checkpoint::State to_checkpoint_state(const RunState& state, const spec::Recipe& recipe);

// What this rank saves of it: all ranks of a mesh consensus, everything once.
std::vector<checkpoint::TensorSource> checkpoint_tensors(const Trainer& trainer);

// Parameters and optimizer state of any mesh into those that this rank holds, reading no more than
// these. Collective. Throws usage for a checkpoint of another model.
void load_state(checkpoint::Reader& reader, Trainer& trainer);

struct Restored {
  RunState state;
  std::string path;     // of the checkpoint
  bool durable = true;  // else a copy in memory (peer_copies.h)
};

// Loads the newest valid checkpoint of the folder into the trainer; nullopt when there is none.
// Damaged ones are passed over with a warning; one that is not sealed with the recipe's key, which
// anybody can have put there, is taken with one. Throws usage for a checkpoint of another model.
// With several ranks rank 0 looks for it; all load what they need of the one it found. `copies`,
// when not null, may have a newer one. Collective.
std::optional<Restored> restore_newest(FileSystem& files, const std::string& folder,
                                       Trainer& trainer, const RankConsensus& consensus,
                                       PeerCopies* copies,
                                       const std::function<void(const std::string&)>& warn);

}  // namespace tutti::train
