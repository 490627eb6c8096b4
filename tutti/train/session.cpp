#include "tutti/train/session.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/signals.h"
#include "tutti/checkpoint/writer.h"
#include "tutti/data/dataset.h"
#include "tutti/data/loader.h"
#include "tutti/engine/gemm_peak.h"
#include "tutti/optim/learning_rate.h"
#include "tutti/spec/flops.h"
#include "tutti/spec/schedule.h"
#include "tutti/train/bench.h"
#include "tutti/train/budget.h"
#include "tutti/train/initial_weights.h"
#include "tutti/train/lineage.h"
#include "tutti/train/mlperf_run.h"
#include "tutti/train/run_folder.h"
#include "tutti/train/run_state.h"
#include "tutti/train/step_trace.h"
#include "tutti/train/teacher.h"
#include "tutti/train/trainer.h"

namespace tutti::train {
namespace {

data::DatasetOptions dataset_options(const spec::Recipe& recipe) {
  return {recipe.batch.sequence, recipe.data.packing, recipe.model.vocabulary, recipe.train.seed};
}

BatchView view_of(const data::Batch& batch) {
  return {batch.tokens, batch.targets, batch.first_sample * batch.sequence, batch.positions,
          batch.starts};
}

// One run in one process. Members live as long as the session; run() is the story.
class Session {
 public:
  Session(const spec::Recipe& recipe, const SessionOptions& options, FileSystem& files,
          telemetry::Telemetry& telemetry)
      : recipe_(recipe),
        options_(options),
        files_(files),
        telemetry_(telemetry),
        mlperf_(recipe_, telemetry),
        trainer_(recipe),
        trace_(options.trace_steps, join_path(options.run_folder, "trace.json")) {}

  Summary run();

 private:
  void open_run_folder();
  void start_from_weights(const std::string& path);
  void load_frozen(const std::string& path);
  void take_teacher(bool resumed);
  void open_corpora();
  void start_loaders();
  void measure_peaks();
  void announce();
  void tell_memory();
  void take_step();
  void count_nonfinite(const StepResult& result);
  bool evaluation_due() const;
  bool checkpoint_due() const;
  void evaluate();
  void save(checkpoint::IfBusy if_busy);
  void report_saves(const std::vector<checkpoint::SaveResult>& results);
  std::optional<Outcome> reason_to_end();
  void finish(Outcome outcome);
  int64_t step_rows() const { return recipe_.batch.global * recipe_.batch.sequence; }
  double elapsed() const { return elapsed_before_ + monotonic_seconds() - started_; }

  const spec::Recipe recipe_;
  const SessionOptions options_;
  FileSystem& files_;
  telemetry::Telemetry& telemetry_;
  MlperfRun mlperf_;  // before the trainer: building it is initialisation
  Trainer trainer_;
  StepTrace trace_;
  RunState state_;
  Summary summary_;
  std::optional<checkpoint::Base> initial_weights_;  // when this session began with them
  std::shared_ptr<const data::Dataset> train_set_;
  std::shared_ptr<const data::Dataset> validation_set_;
  std::unique_ptr<data::Loader> train_data_;
  std::unique_ptr<data::Loader> validation_data_;
  std::unique_ptr<checkpoint::Writer> writer_;
  double started_ = 0;         // monotonic, when training began
  double elapsed_before_ = 0;  // in earlier sessions of the run
  double step_seconds_ = 0;    // of all steps of this session
  double last_save_ = 0;
  int64_t session_steps_ = 0;
  data::SampleFacts session_facts_;  // of all steps of this session
  double session_flops_ = 0;         // model FLOPs of them
  int64_t saved_step_ = -1;
  bool new_best_ = false;  // the evaluation after this step was the best so far
};

void Session::open_run_folder() {
  files_.create_directories(options_.run_folder);
  write_file_atomic(files_, recipe_path(options_.run_folder), spec::to_yaml(recipe_));
  const std::string folder = checkpoints_path(options_.run_folder);
  const auto restored = restore_newest(files_, folder, trainer_,
                                       [&](const std::string& text) { telemetry_.warn(text); });
  if (restored) {
    mlperf_.refuse_resume(options_.run_folder);
    state_ = *restored;
    saved_step_ = state_.step;
    telemetry_.info(fmt::format("resuming at step {} of {}", state_.step, recipe_.train.steps));
  } else if (recipe_.checkpoint.initialize_from.empty()) {
    trainer_.initialize();
  } else {
    start_from_weights(find_weights(files_, recipe_.checkpoint.initialize_from));
  }
  if (restored && recipe_.lora.enabled()) {
    if (!state_.base) {
      fail(ErrorKind::corrupt, "'{}' holds adapters without saying what is below them", folder);
    }
    load_frozen(find_base(files_, *state_.base, recipe_.checkpoint.initialize_from));
  }
  if (recipe_.distill.enabled()) take_teacher(restored.has_value());
  elapsed_before_ = state_.elapsed_seconds;
  // The target may have changed since it was reached.
  const auto& target = recipe_.train.target_validation_loss;
  if (!target || !state_.validation_loss || *state_.validation_loss > *target) {
    state_.time_to_target_seconds.reset();
  }

  checkpoint::WriterOptions writer;
  writer.snapshot_bytes = checkpoint::tensor_bytes(checkpoint_tensors(trainer_));
  writer.retention = {recipe_.checkpoint.keep_last, recipe_.checkpoint.keep_best > 0};
  writer_ = std::make_unique<checkpoint::Writer>(files_, folder, writer);
}

void Session::start_from_weights(const std::string& path) {
  trainer_.initialize_trainable();
  load_frozen(path);
  initial_weights_ = base_of(files_, path);
  if (recipe_.lora.enabled()) state_.base = initial_weights_;
  telemetry_.info(fmt::format("starting from the parameters of {}", path));
}

// All parameters, where none is frozen.
void Session::load_frozen(const std::string& path) {
  load_weights(files_, path, recipe_,
               [&](const spec::PlacedParam& placed, const std::vector<float>& values) {
                 trainer_.set_parameter(placed, values.data());
               });
  trainer_.state_changed();
}

void Session::take_teacher(bool resumed) {
  if (resumed && !state_.teacher) {
    fail(ErrorKind::corrupt, "'{}' was saved without saying which teacher it learned from",
         checkpoints_path(options_.run_folder));
  }
  const LoadedTeacher teacher = load_teacher(files_, recipe_, state_.teacher);
  trainer_.set_teacher(teacher.master.data());
  state_.teacher = teacher.record;
  telemetry_.info(fmt::format("learning from {}, temperature {}, weight {}",
                              teacher.record.checkpoint.path, recipe_.distill.temperature,
                              recipe_.distill.weight));
}

void Session::open_corpora() {
  const data::DatasetOptions options = dataset_options(recipe_);
  train_set_ =
      std::make_shared<const data::Dataset>(files_, recipe_.data.train, options, "data.train");
  if (!recipe_.data.validation.empty()) {
    validation_set_ = std::make_shared<const data::Dataset>(files_, recipe_.data.validation,
                                                            options, "data.validation");
  }
}

void Session::start_loaders() {
  data::TrainLoaderOptions train;
  train.rows = recipe_.batch.micro;
  train.global_batch = recipe_.batch.global;
  train.start_step = state_.step;
  train_data_ = std::make_unique<data::Loader>(train_set_, train);
  for (const std::string& line : train_set_->describe()) telemetry_.info(line);
  if (!validation_set_) return;
  data::EvalLoaderOptions validation;
  validation.rows = recipe_.batch.micro;
  validation.max_samples = recipe_.evaluate.samples;
  validation_data_ = std::make_unique<data::Loader>(validation_set_, validation);
}

void Session::measure_peaks() {
  const DType compute = recipe_.precision == spec::Precision::f32 ? DType::f32 : DType::bf16;
  summary_.nominal_peak_flops = nominal_peak_flops(compute, recipe_.threads);
  if (options_.measure_peak) {
    summary_.gemm_peak_flops = engine::measure_gemm_peak(trainer_.stream(), compute, {2048}, 5);
  }
}

void Session::announce() {
  summary_.model_flops_per_token = spec::model_flops_per_token(recipe_);
  for (const spec::ArenaPlan& arena : trainer_.memory().map().arenas) {
    summary_.memory.push_back({arena.name, arena.bytes});
  }
  summary_.recompute = spec::recompute_text(recipe_.recompute);
  summary_.recompute_freed_bytes = spec::bytes_freed_by_recompute(recipe_);
  const Machine machine = describe_machine();
  telemetry::RunStarted event;
  event.run = options_.run_folder;
  event.name = recipe_.run.name;
  const spec::ParamTable parameters = spec::param_table(recipe_.model, recipe_.lora);
  event.parameters = parameters.count();
  event.steps = recipe_.train.steps;
  event.first_step = state_.step;
  event.tokens_per_step = step_rows();
  event.flops_per_token = summary_.model_flops_per_token;
  event.gemm_peak_flops = summary_.gemm_peak_flops;
  event.target_loss = recipe_.train.target_validation_loss;
  event.mfu_formula = spec::model_flops_formula(recipe_);
  if (state_.teacher) event.teacher = describe_teacher(recipe_, *state_.teacher);
  event.details = Json{{"cpu", machine.cpu},
                       {"cores", machine.cores},
                       {"host", machine.host},
                       {"instruction_set", engine::cpu_isa()},
                       {"owner", recipe_.run.owner},
                       {"project", recipe_.run.project},
                       {"data_class", recipe_.run.data_class},
                       {"trainable_parameters", parameters.trainable_count()},
                       {"memory_map_bytes", trainer_.memory().map().total_bytes()},
                       {"recipe", spec::to_yaml(recipe_)}};
  if (initial_weights_) {
    event.details["initial_weights"] =
        Json{{"path", initial_weights_->path}, {"manifest_xxh3", initial_weights_->manifest_xxh3}};
  }
  telemetry_.emit(event);

  telemetry::MachineDescribed place = describe_place(recipe_, trainer_.stream());
  place.gemm_peak_flops = summary_.gemm_peak_flops;
  place.nominal_peak_flops = summary_.nominal_peak_flops;
  telemetry_.emit(place);

  const auto describe = [&](const char* role, const data::Dataset& set) {
    for (size_t i = 0; i < set.corpora(); ++i) {
      const data::Corpus& corpus = set.corpus(i);
      telemetry_.emit(describe_corpus(files_, role, corpus.prefix(), corpus));
    }
  };
  describe("training", *train_set_);
  if (validation_set_) describe("validation", *validation_set_);
  tell_memory();
}

void Session::tell_memory() {
  telemetry_.emit(telemetry::MemoryMeasured{state_.step, resident_bytes(), peak_resident_bytes(),
                                            summary_.memory});
}

void Session::take_step() {
  const double rate = optim::learning_rate(recipe_.optimizer.learning_rate, recipe_.schedule,
                                           recipe_.train.steps, state_.step);
  const double waited = train_data_->wait_seconds();
  const double begin = monotonic_seconds();
  trace_.begin_step(session_steps_, trainer_.stream());
  data::SampleFacts facts;
  const StepResult result = trainer_.step(
      [&] {
        const data::Batch& batch = train_data_->next();
        facts += batch.facts;
        return view_of(batch);
      },
      rate, state_.updates + 1);
  trace_.end_step(session_steps_, files_, trainer_.stream());
  const double seconds = monotonic_seconds() - begin;

  const double flops = spec::model_flops(recipe_, facts.useful, facts.squared_rows);
  ++state_.step;
  ++session_steps_;
  state_.tokens += facts.useful;
  session_facts_ += facts;
  session_flops_ += flops;
  state_.last_loss = result.loss;
  step_seconds_ += seconds;
  count_nonfinite(result);

  telemetry::StepDone event;
  event.micro_batches = recipe_.batch.global / recipe_.batch.micro;
  event.step = state_.step;
  event.tokens = state_.tokens;
  event.loss = result.loss;
  event.gradient_norm = result.gradient_norm;
  event.learning_rate = rate;
  event.step_seconds = seconds;
  event.targets = result.targets;
  event.useful_share = static_cast<double>(facts.useful) / static_cast<double>(step_rows());
  event.tokens_per_second = static_cast<double>(facts.useful) / seconds;
  if (summary_.gemm_peak_flops > 0) event.mfu = flops / seconds / summary_.gemm_peak_flops;
  event.data_wait_seconds = train_data_->wait_seconds() - waited;
  event.skipped = !result.applied;
  event.routing = result.routing;
  event.parts = result.parts;
  telemetry_.emit(event);
  if (session_steps_ == 1) tell_memory();
}

void Session::count_nonfinite(const StepResult& result) {
  if (result.applied) {
    ++state_.updates;
    state_.nonfinite_in_a_row = 0;
    return;
  }
  ++state_.skipped;
  ++state_.nonfinite_in_a_row;
  telemetry_.emit(
      telemetry::NonFinite{state_.step, result.nonfinite_tensor, state_.nonfinite_in_a_row});
  if (state_.nonfinite_in_a_row >= recipe_.train.stop_after_nonfinite) {
    fail(
        ErrorKind::diverged,
        "training diverged: {} steps in a row had non-finite gradients, the last at step {}, first "
        "in tensor '{}'; lower optimizer.learning_rate or look at the data near sample {}",
        state_.nonfinite_in_a_row, state_.step, result.nonfinite_tensor,
        state_.step * recipe_.batch.global);
  }
}

bool Session::evaluation_due() const {
  if (!validation_data_ || state_.evaluated_step == state_.step) return false;
  if (state_.step >= recipe_.train.steps) return true;
  return spec::evaluation_due(recipe_, state_.step);
}

void Session::evaluate() {
  const double begin = monotonic_seconds();
  mlperf_.evaluation_starts(state_.step);
  validation_data_->seek(0);
  // A few batches at a time, so that a request to stop does not wait for a long evaluation.
  constexpr int64_t kBatchesBetweenLooks = 8;
  EvaluationResult total;
  double sum = 0;
  for (int64_t left = validation_data_->batches_per_pass(); left > 0;) {
    if (stop_signal() != 0) return;
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
  if (config.every_steps > 0 && state_.step % config.every_steps == 0) return true;
  return config.every_seconds > 0 && monotonic_seconds() - last_save_ >= config.every_seconds;
}

void Session::save(checkpoint::IfBusy if_busy) {
  state_.elapsed_seconds = elapsed();
  const auto saved =
      writer_->save(checkpoint_tensors(trainer_), to_checkpoint_state(state_, recipe_), if_busy);
  last_save_ = monotonic_seconds();
  if (!saved) {
    telemetry_.warn(fmt::format(
        "checkpoint at step {} skipped: the previous one is still being written", state_.step));
    return;
  }
  saved_step_ = state_.step;
}

void Session::report_saves(const std::vector<checkpoint::SaveResult>& results) {
  for (const checkpoint::SaveResult& result : results) {
    summary_.checkpoint_stall_seconds += result.stall_seconds;
    if (result.error) {
      if (saved_step_ == result.step) saved_step_ = -1;
      telemetry_.emit(telemetry::CheckpointFailed{result.step, result.error->what()});
      continue;
    }
    ++summary_.checkpoints;
    telemetry_.emit(telemetry::CheckpointSaved{result.step, result.path, result.bytes,
                                               result.stall_seconds, result.write_seconds});
    if (result.retention_error) {
      telemetry_.warn(
          fmt::format("older checkpoints were not removed: {}", result.retention_error->what()));
    }
  }
}

std::optional<Outcome> Session::reason_to_end() {
  if (state_.time_to_target_seconds) return Outcome::target_reached;
  if (state_.step >= recipe_.train.steps) return Outcome::steps_done;
  if (stop_signal() != 0) return Outcome::stopped;
  if (options_.stop_after_step > 0 && state_.step >= options_.stop_after_step) {
    return Outcome::stopped;
  }
  if (const auto exceeded = budget_exceeded(recipe_.run.budget, elapsed())) {
    telemetry_.emit(*exceeded);
    return Outcome::over_budget;
  }
  return std::nullopt;
}

void Session::finish(Outcome outcome) {
  const double train_seconds = monotonic_seconds() - started_;
  mlperf_.stops(state_.step, outcome == Outcome::target_reached);
  mlperf_.tell_corpora(files_);
  const bool complete = outcome == Outcome::target_reached || outcome == Outcome::steps_done;
  if (saved_step_ != state_.step) save(checkpoint::IfBusy::wait);
  report_saves(writer_->wait());
  // What must not be lost is worth a second attempt: the first may have met a full disk that
  // retention has freed since.
  if (saved_step_ != state_.step) {
    save(checkpoint::IfBusy::wait);
    report_saves(writer_->wait());
  }

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
  if (s.gemm_peak_flops > 0) s.mfu_of_gemm_peak = achieved / s.gemm_peak_flops;
  if (s.nominal_peak_flops > 0) s.mfu_of_nominal_peak = achieved / s.nominal_peak_flops;
  s.mfu_formula = spec::model_flops_formula(recipe_);
  s.data_wait_seconds = train_data_->wait_seconds();
  s.peak_memory_bytes = peak_resident_bytes();
  s.run_folder = options_.run_folder;
  s.exit_code = complete ? exit_ok : exit_requeue;
  if (!complete && saved_step_ != state_.step) {
    fail(ErrorKind::io,
         "stopped at step {}, but its checkpoint could not be written; the newest one "
         "is in '{}'",
         state_.step, checkpoints_path(options_.run_folder));
  }
  tell_memory();
  telemetry_.emit(telemetry::RunFinished{outcome_name(outcome), to_json(s)});
  telemetry_.flush();
}

Summary Session::run() {
  // A missing corpus is told before anything else, but where a clock runs for it.
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
  started_ = last_save_ = monotonic_seconds();
  std::optional<Outcome> outcome = reason_to_end();
  while (!outcome) {
    take_step();
    new_best_ = false;
    if (evaluation_due()) evaluate();
    outcome = reason_to_end();
    if (outcome) break;
    if (take_checkpoint_request()) {
      save(checkpoint::IfBusy::wait);
    } else if (checkpoint_due()) {
      save(checkpoint::IfBusy::skip);
    }
    while (auto result = writer_->poll()) report_saves({*result});
  }
  finish(*outcome);
  return summary_;
}

}  // namespace

Summary run_session(const spec::Recipe& recipe, const SessionOptions& options, FileSystem& files,
                    telemetry::Telemetry& telemetry) {
  if (recipe.lora.enabled() && recipe.checkpoint.initialize_from.empty()) {
    fail(ErrorKind::usage,
         "lora: adapters need a model below them; set checkpoint.initialize_from to the run or "
         "checkpoint to tune");
  }
  spec::Recipe described = recipe;
  resolve_teacher(files, described);
  return Session(described, options, files, telemetry).run();
}

}  // namespace tutti::train
