// One run on one rank, for the sources of the session alone: session.cpp has the loop of a run,
// session_start.cpp what happens before its first step, session_save.cpp what it saves.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/checkpoint/store/writer.h"
#include "tutti/data/corpus/dataset.h"
#include "tutti/data/loader/loader.h"
#include "tutti/train/session/fault.h"
#include "tutti/train/session/gpu_watch.h"
#include "tutti/train/session/home_owner.h"
#include "tutti/train/session/mlperf_run.h"
#include "tutti/train/session/peak_meter.h"
#include "tutti/train/session/rank_consensus.h"
#include "tutti/train/session/run_energy.h"
#include "tutti/train/session/run_state.h"
#include "tutti/train/session/session.h"
#include "tutti/train/session/step_trace.h"
#include "tutti/train/session/watchdog.h"
#include "tutti/train/step/state_fetch.h"
#include "tutti/train/step/trainer.h"
#include "tutti/train/tasks/checkpoint_sampler.h"

namespace tutti::train {

// Members live as long as the session.
class Session {
 public:
  Session(const spec::Recipe& recipe, const SessionOptions& options, FileSystem& files,
          telemetry::Telemetry& telemetry);

  Summary run();

 private:
  // session_start.cpp
  std::string checkpoint_folder() const;  // in the run's home
  void open_run_folder();
  HomeOwner find_owner();
  void check_history(const std::optional<Restored>& restored);
  void remove_leftovers(const std::string& folder);
  void name_run(const HomeOwner& owner);
  void start_from_weights(const std::string& path);
  void load_frozen(const std::string& path);
  void take_teacher(bool resumed);
  void open_corpora();
  void start_loaders();
  void announce();
  void report_memory();

  // session.cpp
  void watch_actions();
  void enter(comm::RankPhase phase, int64_t step);
  void meet_fault(const std::string& where, int64_t step);
  void meet_fault(const spec::Action& action);
  void* byte_to_flip(const std::string& where);
  void train();
  void take_step();
  void begin_step();
  void count_step(const StepResult& result, double rate, double seconds, double data_wait_seconds);
  bool may_run_ahead() const;
  bool schedule_has(spec::ActionKind kind, int64_t step) const;
  bool evaluation_due_after(int64_t step) const;
  bool copies_due_after(int64_t step) const;
  void count_nonfinite(const StepResult& result);
  bool evaluation_due() const;
  bool checkpoint_due() const;
  void evaluate();
  std::optional<Outcome> settle_step();
  std::optional<Outcome> reason_to_end();

  // session_peak.cpp
  void measure_peaks();
  void keep_peak(double measured, double lost);
  double mfu_of_step(double flops, double seconds);
  void note_peak();

  // session_ranks.cpp
  void agree();
  void report_slow_ranks(const std::vector<StepReport>& reports);
  void check_memory();
  bool replicas_are_due_after(int64_t step) const;
  void check_replicas();
  bool asked_to_stop();

  // session_save.cpp
  void open_writer();
  void save(checkpoint::IfBusy if_busy);
  void report_saves(const std::vector<checkpoint::SaveResult>& results);
  void sample(const std::string& checkpoint);
  bool is_saved();
  void open_copies();
  void check_room_for_copies();
  void keep_copies();
  void finish(Outcome outcome);
  void summarize(Outcome outcome, double train_seconds);

  int64_t step_rows() const { return recipe_.batch.global * recipe_.batch.sequence; }
  double elapsed() const;

  const spec::Recipe recipe_;
  const spec::Schedule schedule_ = spec::make_schedule(recipe_);
  const SessionOptions options_;
  FileSystem& files_;
  telemetry::Telemetry& telemetry_;
  const RankConsensus consensus_;
  std::unique_ptr<Watchdog> watchdog_;  // with several ranks
  std::optional<Fault> fault_;
  bool fault_is_planned_ = false;  // on any rank, when training began
  std::array<std::optional<spec::Action>, spec::kActionKinds> last_of_kind_;  // of faulted_step_
  int64_t faulted_step_ = -1;
  MlperfRun mlperf_;  // before the trainer: building it is initialisation
  Trainer trainer_;
  StepTrace trace_;
  RunState state_;
  Summary summary_;
  std::string peak_key_;  // of the run's machines, in its record of peaks
  PeakMeter peak_;
  bool peak_warned_ = false;                         // that steps were faster
  std::optional<checkpoint::Base> initial_weights_;  // when this session began with them
  std::shared_ptr<const data::Dataset> train_set_;
  std::shared_ptr<const data::Dataset> validation_set_;
  std::unique_ptr<data::Loader> train_data_;
  std::unique_ptr<data::Loader> validation_data_;
  std::unique_ptr<checkpoint::Writer> writer_;
  std::unique_ptr<CheckpointSampler> sampler_;  // on the first rank, where asked for
  std::unique_ptr<PeerCopies> copies_;          // where asked for
  std::unique_ptr<StateFetch> fetch_;           // for them, where the state is a device's
  bool copies_cost_logged_ = false;             // what they cost
  double started_ = 0;                          // monotonic, when training began
  double elapsed_before_ = 0;                   // in earlier sessions of the run
  double step_seconds_ = 0;                     // of all steps of this session
  double last_save_ = 0;
  int64_t session_steps_ = 0;
  // Steps that have begun and of which the result is not known yet: one, or two where they run
  // ahead (Trainer::begin_step). What else a session does, it does while there is none.
  struct BegunStep {
    double rate = 0;
    data::SampleFacts facts;  // of the samples that this rank read
    double begin_seconds = 0;
    double data_wait_seconds = 0;
    double waited_before = 0;  // for other ranks, until it began
  };
  std::deque<BegunStep> begun_;
  double last_result_ = 0;             // monotonic, when the result before was known
  std::unique_ptr<RunEnergy> energy_;  // on the first rank of a host
  double energy_sampled_ = 0;
  std::unique_ptr<GpuWatch> gpu_watch_;  // on the first rank, of its host
  data::SampleFacts session_facts_;      // of all steps of this session
  double session_flops_ = 0;             // model FLOPs of them
  int64_t saved_step_ = -1;
  std::string save_problem_;  // of the last checkpoint that failed, on the rank that commits
  bool new_best_ = false;     // the evaluation after this step was the best so far

  StepReport step_report_;  // of this rank, about the last step
  Agreed agreed_;           // after it
  RankUse use_;
  SlowRanks slow_ranks_;
  int64_t checked_step_ = -1;  // after which replicas were last compared
};

}  // namespace tutti::train
