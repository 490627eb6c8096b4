// What a session leaves behind: checkpoints beside training, and its end.
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/machine.h"
#include "tutti/base/units.h"
#include "tutti/checkpoint/seal/seal.h"
#include "tutti/spec/model/flops.h"
#include "tutti/train/session/peak_record.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/session_internal.h"

namespace tutti::train {

void Session::open_writer() {
  checkpoint::WriterOptions writer;
  writer.snapshot_bytes = checkpoint::tensor_bytes(checkpoint_tensors(trainer_));
  writer.stream = &trainer_.stream();
  writer.write.key_file = recipe_.checkpoint.key_file;
  checkpoint::save_key(files_, writer.write.key_file);  // better missing now than at the first save
  writer.retention = {recipe_.checkpoint.keep_last, recipe_.checkpoint.keep_best > 0};
  if (consensus_.size() > 1) {
    writer.joint.rank = static_cast<int>(consensus_.rank());
    writer.joint.ranks = static_cast<int>(consensus_.size());
    // Other than those of earlier sessions, whose files may still lie there.
    const uint64_t now =
        hash_text(fmt::format("{} {}", options_.world->generation(), wall_seconds()));
    writer.joint.attempt = hash_hex(consensus_.of_leader(now));
  }
  writer_ = std::make_unique<checkpoint::Writer>(files_, checkpoint_folder(), writer);
}

// What is decided here is so on all ranks: whether a writer is busy was agreed on after the step.
void Session::save(checkpoint::IfBusy if_busy) {
  state_.elapsed_seconds = elapsed();
  last_save_ = monotonic_seconds();
  if (if_busy == checkpoint::IfBusy::skip && agreed_.writer_is_busy) {
    telemetry_.warn(fmt::format(
        "checkpoint at step {} skipped: the previous one is still being written", state_.step));
    return;
  }
  enter(comm::RankPhase::saving, state_.step);
  meet_fault("save", state_.step);
  check_replicas();
  writer_->save(checkpoint_tensors(trainer_), to_checkpoint_state(state_, recipe_),
                checkpoint::IfBusy::wait);
  last_save_ = monotonic_seconds();
  saved_step_ = state_.step;
}

// A session without copies ends those of an earlier one, which would be behind it.
void Session::open_copies() {
  if (options_.copy_every == 0) {
    if (consensus_.leads()) forget_peer_copies(files_, options_.run_folder);
    return;
  }
  copies_ = std::make_unique<PeerCopies>(
      files_,
      peer_copies_folder(options_.memory_root,
                         peer_copies_number(files_, options_.run_folder, consensus_)),
      options_.run_folder, recipe_.checkpoint.key_file, consensus_);
  const bool on_device = trainer_.stream().memory() == engine::ArenaKind::device;
  if (on_device || options_.trainer.enqueue_steps) {
    fetch_ = std::make_unique<StateFetch>(trainer_);
  }
}

// When everything else has its memory: a host that swaps, or kills, costs more than copies save.
void Session::check_room_for_copies() {
  const auto problem = copies_->lacks_room(checkpoint::tensor_bytes(checkpoint_tensors(trainer_)),
                                           room_for_peer_copies(options_.memory_root));
  if (!problem) return;
  telemetry_.warn(fmt::format("no peer copies are kept: {}", *problem));
  copies_->forget();
  copies_.reset();
  fetch_.reset();
}

void Session::keep_copies() {
  check_replicas();
  enter(comm::RankPhase::saving, state_.step);
  const double begin = monotonic_seconds();
  state_.elapsed_seconds = elapsed();
  const auto problem = copies_->keep(fetch_ ? fetch_->tensors() : checkpoint_tensors(trainer_),
                                     to_checkpoint_state(state_, recipe_));
  if (problem) {
    telemetry_.warn(fmt::format("step {} has no peer copies: {}", state_.step, *problem));
  } else if (!copies_cost_logged_) {
    copies_cost_logged_ = true;
    telemetry_.info(fmt::format(
        "peer copies every {} steps, {:.2f} s each{}: rank 0 holds {}{}", options_.copy_every,
        monotonic_seconds() - begin,
        fetch_ ? fmt::format(", {} over the link of its device",
                             format_bytes(static_cast<double>(fetch_->fetched_bytes())))
               : "",
        format_bytes(static_cast<double>(copies_->kept_bytes())),
        copies_->hosts() > 1 ? ", of another host too"
                             : "; there is one host: they outlive processes, not the host"));
  }
}

void Session::report_saves(const std::vector<checkpoint::SaveResult>& results) {
  for (const checkpoint::SaveResult& result : results) {
    summary_.checkpoint_stall_seconds += result.stall_seconds;
    if (result.error) {
      if (saved_step_ == result.step) saved_step_ = -1;
      save_problem_ = result.error->what();
      telemetry_.emit(telemetry::CheckpointFailed{result.step, result.error->what()});
      continue;
    }
    ++summary_.checkpoints;
    telemetry_.emit(telemetry::CheckpointSaved{result.step, result.path, result.bytes,
                                               result.stall_seconds, result.write_seconds});
    sample(result.path);
    if (result.retention_error) {
      telemetry_.warn(
          fmt::format("older checkpoints were not removed: {}", result.retention_error->what()));
    }
  }
}

// A text that cannot be written does not cause a run to fail.
void Session::sample(const std::string& checkpoint) {
  if (!sampler_) return;
  enter(comm::RankPhase::saving, state_.step);
  try {
    telemetry_.emit(sampler_->write(checkpoint, trainer_.stream().threads()));
  } catch (const Error& error) {
    telemetry_.warn(fmt::format("no text after {}: {}", checkpoint, error.what()));
  }
}

// Rank 0 commits a checkpoint, so that it knows.
bool Session::is_saved() { return consensus_.of_leader(int32_t{saved_step_ == state_.step}) != 0; }

void Session::finish(Outcome outcome) {
  const double train_seconds = monotonic_seconds() - started_;
  gpu_watch_.reset();  // its last look is of the time of training
  mlperf_.stops(state_.step, outcome == Outcome::target_reached);
  if (consensus_.leads()) mlperf_.log_corpora(files_);
  const bool complete = outcome == Outcome::target_reached || outcome == Outcome::steps_done;
  if (!is_saved()) save(checkpoint::IfBusy::wait);
  enter(comm::RankPhase::finishing, state_.step);
  report_saves(writer_->wait());
  // What must not be lost is worth a second attempt: the first may have met a full disk that
  // retention has freed since.
  if (!is_saved()) {
    save(checkpoint::IfBusy::wait);
    enter(comm::RankPhase::finishing, state_.step);
    report_saves(writer_->wait());
  }
  const bool saved = is_saved();
  summarize(outcome, train_seconds);
  summary_.exit_code = complete ? exit_ok : exit_requeue;
  // A run whose result is lost must not count as done.
  if (!saved) {
    fail(ErrorKind::io,
         "{} at step {}, but its checkpoint could not be written{}; start the same command again "
         "to resume from the newest one in '{}'",
         complete ? "training ended" : "stopped", state_.step,
         save_problem_.empty() ? "" : " (" + save_problem_ + ")", checkpoint_folder());
  }
  if (copies_) copies_->forget();
  // What hosts still have that were left out is garbage from now on.
  if (complete && consensus_.leads()) forget_peer_copies(files_, options_.run_folder);
  report_memory();
  telemetry_.emit(telemetry::RunFinished{outcome_name(outcome), to_json(summary_)});
  telemetry_.flush();
}

void Session::summarize(Outcome outcome, double train_seconds) {
  Summary& s = summary_;
  s.outcome = outcome;
  s.reached_target = state_.time_to_target_seconds.has_value();
  s.time_to_target_seconds = state_.time_to_target_seconds.value_or(0);
  s.train_seconds = train_seconds;
  s.steps = state_.step;
  s.tokens = state_.tokens;
  s.skipped_steps = state_.skipped;
  s.final_loss = state_.last_loss;
  s.validation_loss = state_.validation_loss;
  if (session_steps_ > 0) {
    const auto useful = static_cast<double>(session_facts_.useful);
    s.tokens_per_second = useful / step_seconds_;
    s.useful_token_share = useful / static_cast<double>(session_steps_ * step_rows());
    s.target_share = static_cast<double>(session_facts_.targets) / useful;
    s.model_flops_per_token = session_flops_ / useful;
  }
  const double achieved = session_steps_ > 0 ? session_flops_ / step_seconds_ : 0;
  peak_.reach(achieved);
  note_peak();
  if (peak_.was_raised() && consensus_.leads()) {
    best_peak(files_, options_.run_folder, peak_key_, s.gemm_peak_flops);
  }
  if (s.gemm_peak_flops > 0) s.mfu_of_gemm_peak = achieved / s.gemm_peak_flops;
  if (s.nominal_peak_flops > 0) s.mfu_of_nominal_peak = achieved / s.nominal_peak_flops;
  s.mfu_formula = spec::model_flops_formula(recipe_);
  s.data_wait_seconds = train_data_->wait_seconds();
  s.peak_memory_bytes = peak_resident_bytes();
  s.run_folder = options_.run_folder;
  EnergyUsed energy;
  for (const EnergyUsed& one : consensus_.exchange(energy_ ? energy_->used() : EnergyUsed{})) {
    energy += one;
  }
  s.energy_source = energy_source(energy);
  if (!s.energy_source.empty()) s.energy_joules = energy.joules();
  s.session_tokens = session_facts_.useful;
  use_.peak_memory_bytes = s.peak_memory_bytes;
  if (consensus_.size() > 1) s.ranks = consensus_.exchange(use_);
}

}  // namespace tutti::train
