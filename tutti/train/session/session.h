// A training run from recipe to summary: run folder, resume, data, steps, evaluation, checkpoints,
// signals, budget, events.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/comm/world/world.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/telemetry/events.h"
#include "tutti/telemetry/sink.h"
#include "tutti/train/step/trainer.h"

namespace tutti::train {

inline constexpr const char* kMemoryRoot = "/dev/shm";

struct SessionOptions {
  std::string run_folder;       // created when absent; resumed when it holds a checkpoint
  int64_t trace_steps = 0;      // record this many steps (after the second) into trace.json
  bool measure_peak = true;     // measure the GEMM peak first, for MFU
  int64_t stop_after_step = 0;  // > 0: checkpoint and stop after this step (as if asked to)
  int threads = 0;              // of this rank; 0: as the recipe says

  // Of several ranks. Every rank of the world runs the session, with the same recipe and options;
  // null: alone. The world outlives the session.
  comm::World* world = nullptr;
  bool ranks_are_processes = false;    // else threads of one process
  double watchdog_seconds = 0;         // limit of a step; 0: as watchdog.h says
  int64_t check_replicas_every = 100;  // steps, and before a checkpoint; 0: never
  // Steps between copies of the state in the memory of two hosts (peer_copies.h); 0: none. They
  // lie under `memory_root`, on tmpfs.
  int64_t copy_every = 0;
  std::string memory_root = kMemoryRoot;
  std::string note;  // why this session was started, for the log
  // Continue although the folder's checkpoints are missing or another run's: warn instead of
  // throwing.
  bool force_resume = false;

  std::vector<std::string> gpus;  // that ranks of this host compute on (RunEnergy)
  TrainerOptions trainer;
};

// Why a run ended.
enum class Outcome { target_reached, steps_done, stopped, over_budget };
const char* outcome_name(Outcome outcome);

using telemetry::MemoryByKind;

// What one of several ranks used, of this session's training steps.
struct RankUse {
  int64_t peak_memory_bytes = 0;
  double own_seconds = 0;     // of steps, computing or getting data
  double waited_seconds = 0;  // of steps, for communication and for other ranks
};

struct Summary {
  Outcome outcome = Outcome::steps_done;
  bool reached_target = false;
  double time_to_target_seconds = 0;  // 0 when not reached; includes evaluation
  double train_seconds = 0;           // of this session, includes evaluation
  int64_t steps = 0;                  // of the whole run
  int64_t tokens = 0;                 // of documents, without padding
  int64_t skipped_steps = 0;
  double final_loss = 0;  // of the last step
  std::optional<double> validation_loss;
  // Of training steps of this session. Tokens are those of documents, without padding.
  double tokens_per_second = 0;
  double useful_token_share = 1;  // of all rows of the steps; below 1 with packed documents
  double target_share = 1;        // of those: not masked
  double model_flops_per_token = 0;
  double mfu_of_gemm_peak = 0;
  double gemm_peak_flops = 0;  // the best that the run has seen, in its precision
  double mfu_of_nominal_peak = 0;
  double nominal_peak_flops = 0;  // cores x clock x FLOPs per cycle; 0 when unknown
  std::string mfu_formula;
  double checkpoint_stall_seconds = 0;
  int64_t checkpoints = 0;
  double data_wait_seconds = 0;
  // Of all hosts, of this session, from counters (RunEnergy); absent where there are none.
  std::optional<double> energy_joules;
  int64_t session_tokens = 0;
  std::string energy_source;         // which counters
  int64_t peak_memory_bytes = 0;     // resident set, as the system counts it
  std::vector<MemoryByKind> memory;  // arenas, of one rank
  std::string mesh;                  // "dp 2 zero 1"; empty: alone
  std::vector<RankUse> ranks;        // in their order; empty: alone
  std::string recompute;
  int64_t recompute_freed_bytes = 0;  // of the arenas
  std::string run_folder;
  int exit_code = 0;  // 0, or 75 when checkpointed and not finished
};

// Trains until the target, the last step, a signal or the budget. Throws diverged after
// stop_after_nonfinite steps in a row; usage where the run's events record checkpoints that are not
// there, or the newest checkpoint is of another run; everything else that goes wrong outside throws
// Error.
//
// With several ranks all return the same summary, but for what only rank 0 sees: checkpoints and
// waiting for data. Rank 0 writes the run folder and emits events; the others save and evaluate
// their part. What goes wrong on one rank ends the session on all: elsewhere it throws peer, naming
// that rank and what it was doing.
Summary run_session(const spec::Recipe& recipe, const SessionOptions& options, FileSystem& files,
                    telemetry::Telemetry& telemetry);

Json to_json(const Summary& summary);
// For people: a few aligned lines.
std::string format_summary(const Summary& summary);

}  // namespace tutti::train
