#include "tutti/train/session/session.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/engine/notes.h"
#include "tutti/optim/learning_rate.h"
#include "tutti/spec/model/flops.h"
#include "tutti/spec/schedule/schedule.h"
#include "tutti/train/session/budget.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/session_internal.h"
#include "tutti/train/step/teacher.h"

namespace tutti::train {
namespace {

constexpr double kEnergyEverySeconds = 10;
// For the other ranks' parts of a checkpoint, once the run has failed: a launcher waits as long for
// them to end (launch/generation.cpp).
constexpr double kGraceSeconds = 5;

BatchView view_of(const data::Batch& batch) {
  return {batch.tokens, batch.targets, batch.first_sample * batch.sequence, batch.positions,
          batch.starts};
}

// The run's recipe says what all ranks together do; how many threads a rank has is its own matter.
spec::Recipe recipe_of_rank(spec::Recipe recipe, const SessionOptions& options) {
  if (options.threads > 0) recipe.threads = options.threads;
  return recipe;
}

std::unique_ptr<Watchdog> make_watchdog(const SessionOptions& options) {
  if (options.world == nullptr) return nullptr;
  WatchdogOptions watchdog;
  watchdog.limit_seconds = options.watchdog_seconds;
  watchdog.ends_process = options.ranks_are_processes;
  return std::make_unique<Watchdog>(*options.world, watchdog);
}

}  // namespace

Session::Session(const spec::Recipe& recipe, const SessionOptions& options, FileSystem& files,
                 telemetry::Telemetry& telemetry)
    : recipe_(recipe),
      options_(options),
      files_(files),
      telemetry_(telemetry),
      consensus_(options.world, recipe.model.kv_heads),
      watchdog_(make_watchdog(options)),
      fault_(requested_fault(consensus_.rank(),
                             options.world == nullptr ? 1 : options.world->generation())),
      mlperf_(recipe_, telemetry),
      trainer_(recipe_of_rank(recipe, options), consensus_.ranks(), options.trainer),
      trace_(consensus_.leads() ? options.trace_steps : 0,
             join_path(options.run_folder, "trace.json"), recipe.parallel) {
  trainer_.handle(spec::ActionKind::evaluate, [this] { evaluate(); });
  trainer_.handle(spec::ActionKind::save, [this] { save(checkpoint::IfBusy::skip); });
}

double Session::elapsed() const { return elapsed_before_ + monotonic_seconds() - started_; }

void Session::enter(comm::RankPhase phase, int64_t step) {
  if (watchdog_) watchdog_->enter(phase, step);
}

void Session::meet_fault(const std::string& where, int64_t step) {
  if (!fault_ || !fault_->due(step, where)) return;
  const Fault fault = *fault_;
  if (fault.kind != FaultKind::slow) fault_.reset();
  strike(fault, fault.kind == FaultKind::flip ? byte_to_flip(fault.in) : nullptr);
}

// A pass over a chunk counts once, however many layers it has.
void Session::meet_fault(const spec::Action& action) {
  std::optional<spec::Action>& last = last_of_kind_.at(static_cast<size_t>(action.kind));
  const bool same = last && last->micro == action.micro && last->chunk == action.chunk &&
                    faulted_step_ == state_.step;
  if (faulted_step_ != state_.step) last_of_kind_ = {};
  faulted_step_ = state_.step;
  last_of_kind_.at(static_cast<size_t>(action.kind)) = action;
  if (!same) meet_fault(spec::action_name(action.kind), state_.step + 1);
}

void* Session::byte_to_flip(const std::string& where) {
  for (const StateTensor& tensor : trainer_.state().tensors()) {
    if (tensor.name.starts_with(where + ".")) return tensor.data;
  }
  if (where == "gradient") {
    return static_cast<char*>(trainer_.state().gradients().front().data) + 2;
  }
  return static_cast<char*>(trainer_.memory().arena("weights").data()) + 64;
}

void Session::watch_actions() {
  const bool traces = trace_.records(session_steps_);
  if (!watchdog_ && !fault_ && !traces) return trainer_.on_action({});
  trainer_.on_action([this](const spec::Action& action) {
    trace_.begin_action(action);
    if (watchdog_) watchdog_->enter(action);
    if (fault_) meet_fault(action);
  });
}

void Session::begin_step() {
  const int64_t before = state_.step + static_cast<int64_t>(begun_.size());
  enter(comm::RankPhase::training, before + 1);
  BegunStep step;
  step.rate = optim::learning_rate(recipe_.optimizer.learning_rate, recipe_.schedule,
                                   recipe_.train.steps, before);
  const double waited_for_data = train_data_->wait_seconds();
  step.waited_before = options_.world == nullptr ? 0 : options_.world->waited_seconds();
  step.begin_seconds = monotonic_seconds();
  watch_actions();
  trace_.begin_step(session_steps_, trainer_.stream());
  std::optional<int64_t> update;
  if (begun_.empty()) update = state_.updates + 1;
  trainer_.begin_step(
      [&] {
        const data::Batch& batch = train_data_->next();
        step.facts += batch.facts;
        return view_of(batch);
      },
      step.rate, update);
  trace_.end_action();
  step.data_wait_seconds = train_data_->wait_seconds() - waited_for_data;
  begun_.push_back(step);
}

// Whether the next step may begin before the result of this one is known: nothing is to be done
// between them that is known now. All ranks say the same.
bool Session::may_run_ahead() const {
  const int64_t step = state_.step + 1;
  const bool wanted = agreed_.stop_signal != 0 || agreed_.asked_to_save || agreed_.save_is_due ||
                      agreed_.over_budget;
  return trainer_.steps_run_ahead() && options_.trace_steps == 0 && !fault_is_planned_ && !wanted &&
         step < recipe_.train.steps && !evaluation_due_after(step) && !copies_due_after(step) &&
         !replicas_are_due_after(step) && !schedule_has(spec::ActionKind::save, step) &&
         (options_.stop_after_step == 0 || step < options_.stop_after_step);
}

void Session::take_step() {
  if (begun_.empty()) begin_step();
  if (may_run_ahead()) begin_step();
  const StepResult result = trainer_.finish_step();
  trace_.end_step(session_steps_, files_, trainer_.stream());
  for (const std::string& text : engine::take_notes()) telemetry_.info(text);
  const BegunStep step = begun_.front();
  begun_.pop_front();
  const double now = monotonic_seconds();
  const double seconds = now - std::max(step.begin_seconds, last_result_);
  last_result_ = now;

  ++state_.step;
  ++session_steps_;
  step_report_ = {};
  step_report_.useful = step.facts.useful;
  step_report_.targets = step.facts.targets;
  step_report_.squared_rows = step.facts.squared_rows;
  step_report_.waited_seconds =
      options_.world == nullptr ? 0 : options_.world->waited_seconds() - step.waited_before;
  step_report_.own_seconds = seconds - step_report_.waited_seconds;
  use_.own_seconds += step_report_.own_seconds;
  use_.waited_seconds += step_report_.waited_seconds;
  if (watchdog_) watchdog_->step_done(seconds);
  if (energy_ && now - energy_sampled_ > kEnergyEverySeconds) {
    energy_->sample();
    energy_sampled_ = now;
  }
  agree();
  count_step(result, step.rate, seconds, step.data_wait_seconds);
}

void Session::count_step(const StepResult& result, double rate, double seconds,
                         double data_wait_seconds) {
  const data::SampleFacts& facts = agreed_.facts;
  const double flops = spec::model_flops(recipe_, facts.useful, facts.squared_rows);
  state_.tokens += facts.useful;
  session_facts_ += facts;
  session_flops_ += flops;
  state_.last_loss = result.loss;
  step_seconds_ += seconds;
  count_nonfinite(result);

  telemetry::StepDone event;
  event.micro_batches = recipe_.batch.global / (recipe_.batch.micro * recipe_.parallel.dp);
  event.step = state_.step;
  event.tokens = state_.tokens;
  event.loss = result.loss;
  event.gradient_norm = result.gradient_norm;
  event.learning_rate = rate;
  event.step_seconds = seconds;
  event.targets = result.targets;
  event.useful_share = static_cast<double>(facts.useful) / static_cast<double>(step_rows());
  event.tokens_per_second = static_cast<double>(facts.useful) / seconds;
  event.mfu = mfu_of_step(flops, seconds);
  event.data_wait_seconds = data_wait_seconds;
  event.skipped = !result.applied;
  event.routing = result.routing;
  event.parts = result.parts;
  telemetry_.emit(event);
  if (session_steps_ == 1) report_memory();
}

void Session::count_nonfinite(const StepResult& result) {
  if (result.applied) {
    ++state_.updates;
    state_.nonfinite_in_a_row = 0;
    return;
  }
  ++state_.skipped;
  ++state_.nonfinite_in_a_row;
  const std::string& tensor = result.nonfinite_tensor;
  telemetry_.emit(telemetry::NonFinite{state_.step, tensor, state_.nonfinite_in_a_row});
  if (state_.nonfinite_in_a_row >= recipe_.train.stop_after_nonfinite) {
    fail(
        ErrorKind::diverged,
        "training diverged: {} steps in a row had non-finite gradients, the last at step {}, first "
        "in tensor '{}'; lower optimizer.learning_rate or look at the data near sample {}",
        state_.nonfinite_in_a_row, state_.step, tensor, state_.step * recipe_.batch.global);
  }
}

bool Session::schedule_has(spec::ActionKind kind, int64_t step) const {
  const std::vector<spec::Action> actions = spec::actions_after(schedule_, step);
  return std::any_of(actions.begin(), actions.end(),
                     [kind](const spec::Action& action) { return action.kind == kind; });
}

bool Session::evaluation_due_after(int64_t step) const {
  if (!validation_data_) return false;
  return step >= recipe_.train.steps || schedule_has(spec::ActionKind::evaluate, step);
}

bool Session::copies_due_after(int64_t step) const {
  return copies_ && step % options_.copy_every == 0;
}

bool Session::evaluation_due() const {
  return state_.evaluated_step != state_.step && evaluation_due_after(state_.step);
}

void Session::evaluate() {
  const double begin = monotonic_seconds();
  meet_fault("evaluate", state_.step);
  mlperf_.evaluation_starts(state_.step);
  validation_data_->seek(0);
  // A few batches at a time, so that a request to stop does not wait for a long evaluation.
  constexpr int64_t kBatchesBetweenLooks = 8;
  EvaluationResult total;
  double sum = 0;
  for (int64_t left = validation_data_->batches_per_pass(); left > 0;) {
    enter(comm::RankPhase::evaluating, state_.step);
    if (asked_to_stop()) return;
    const int64_t count = std::min(left, kBatchesBetweenLooks);
    const EvaluationResult part =
        trainer_.evaluate([&] { return view_of(validation_data_->next()); }, count);
    sum += part.loss * static_cast<double>(part.tokens);
    total.tokens += part.tokens;
    left -= count;
  }
  if (total.tokens == 0) {
    fail(ErrorKind::usage,
         "data.validation: every target of '{}' that is evaluated is masked; use another corpus or "
         "more evaluate.samples",
         spec::blend_text(recipe_.data.validation));
  }
  total.loss = sum / static_cast<double>(total.tokens);
  state_.evaluated_step = state_.step;
  state_.validation_loss = total.loss;
  new_best_ = !state_.best_validation_loss || total.loss < *state_.best_validation_loss;
  if (new_best_) state_.best_validation_loss = total.loss;
  mlperf_.evaluated(state_.step, total.loss);
  telemetry_.emit(telemetry::EvaluationDone{state_.step, total.loss, total.tokens,
                                            monotonic_seconds() - begin});
  const auto& target = recipe_.train.target_validation_loss;
  if (target && total.loss <= *target && !state_.time_to_target_seconds) {
    state_.time_to_target_seconds = elapsed();
  }
}

bool Session::checkpoint_due() const {
  const spec::CheckpointConfig& config = recipe_.checkpoint;
  if (new_best_ && config.keep_best > 0) return true;
  if (schedule_has(spec::ActionKind::save, state_.step)) return true;
  return agreed_.save_is_due;
}

std::optional<Outcome> Session::reason_to_end() {
  if (state_.time_to_target_seconds) return Outcome::target_reached;
  if (state_.step >= recipe_.train.steps) return Outcome::steps_done;
  if (agreed_.stop_signal != 0) return Outcome::stopped;
  if (options_.stop_after_step > 0 && state_.step >= options_.stop_after_step) {
    return Outcome::stopped;
  }
  if (agreed_.over_budget) {
    if (const auto exceeded = budget_exceeded(recipe_.run.budget, elapsed())) {
      telemetry_.emit(*exceeded);
    }
    return Outcome::over_budget;
  }
  return std::nullopt;
}

// What is due after a step, whose end it may be.
std::optional<Outcome> Session::settle_step() {
  if (evaluation_due()) {
    trainer_.run_after({{.kind = spec::ActionKind::evaluate}});
    step_report_ = {};
    agree();
  }
  if (const auto outcome = reason_to_end()) return outcome;
  if (agreed_.asked_to_save) {
    agreed_.asked_to_save = false;
    save(checkpoint::IfBusy::wait);
  } else if (checkpoint_due()) {
    trainer_.run_after({{.kind = spec::ActionKind::save}});
  }
  return std::nullopt;
}

void Session::train() {
  agree();
  const auto planned = consensus_.exchange(int32_t{fault_ ? 1 : 0});
  fault_is_planned_ = std::count(planned.begin(), planned.end(), 1) > 0;
  // Peer copies are made before other actions due after their step.
  const bool is_settled = state_.step == 0 || saved_step_ == state_.step;
  std::optional<Outcome> outcome = is_settled ? reason_to_end() : settle_step();
  while (!outcome) {
    take_step();
    new_best_ = false;
    if (begun_.empty()) {
      if (replicas_are_due_after(state_.step)) check_replicas();
      if (copies_due_after(state_.step)) keep_copies();
      outcome = settle_step();
    }
    while (auto result = writer_->poll()) report_saves({*result});
  }
  finish(*outcome);
}

Summary Session::run() {
  if (!options_.note.empty()) telemetry_.warn(options_.note);
  if (options_.world != nullptr && options_.check_replicas_every > 0) trainer_.state().watch();
  if (fault_) meet_fault("start", fault_->step);
  // A missing corpus is reported before anything else, unless a clock runs for it.
  if (!mlperf_.enabled()) open_corpora();
  open_run_folder();
  measure_peaks();
  if (mlperf_.enabled()) {
    mlperf_.starts();
    open_corpora();
  }
  start_loaders();
  if (mlperf_.enabled()) mlperf_.counts(*train_set_, *validation_set_);
  announce();
  // The events record the run's identity before its first checkpoint does.
  if (!mlperf_.enabled()) telemetry_.flush();
  if (options_.world == nullptr || options_.world->local_rank() == 0) {
    energy_ = std::make_unique<RunEnergy>(posix_file_system(), options_.gpus);
  }
  if (consensus_.leads()) {
    gpu_watch_ =
        std::make_unique<GpuWatch>(telemetry_, options_.gpus, recipe_.telemetry.gpu_every_seconds);
  }
  started_ = last_save_ = energy_sampled_ = monotonic_seconds();
  try {
    train();
  } catch (const std::exception& error) {
    if (writer_) writer_->hurry(kGraceSeconds);
    if (!watchdog_) throw;
    const auto* known = dynamic_cast<const Error*>(&error);
    if (known != nullptr && known->kind() == ErrorKind::peer) {
      const std::string scene = watchdog_->scene();
      throw Error(known->kind(), scene.empty() ? error.what() : error.what() + ("; " + scene));
    }
    options_.world->abort(fmt::format("{} (in {})", error.what(), watchdog_->where()));
    throw;
  }
  return summary_;
}

Summary run_session(const spec::Recipe& recipe, const SessionOptions& options, FileSystem& files,
                    telemetry::Telemetry& telemetry) {
  if (recipe.lora.enabled() && recipe.checkpoint.initialize_from.empty()) {
    fail(ErrorKind::usage,
         "lora: adapters need a model below them; set checkpoint.initialize_from to the run or "
         "checkpoint to tune");
  }
  spec::Recipe described = recipe;
  resolve_teacher(files, described);
  try {
    return Session(described, options, files, telemetry).run();
  } catch (const std::exception& error) {
    if (options.world != nullptr) options.world->abort(error.what());
    throw;
  }
}

}  // namespace tutti::train
